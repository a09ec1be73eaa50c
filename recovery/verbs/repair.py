"""``eos recovery log repair``: mend a commit log where what it said before is beyond doubt."""

from __future__ import annotations

from typing import Annotated

import typer

from eos.cli.reports import Report
from eos.commit_log import Mendable, examine, mend
from eos.errors import CommitLogError, EosError
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._report import Plan, PlanStep
from eos.recovery._target import Target


def repair(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Mend a log that Delta can't open, or that holds records twice.

    Mended is what is provably the same afterwards: records that stand in the table twice, equal
    in every column (two compactions at once, by an older release or by hand), are written once;
    a checkpoint that is missing or broken is forgotten when every commit is whole; newest commits
    with nothing in them do nothing then: a power failure leaves them before anybody is told.
    Anything else is refused with the finding, and nothing is changed: restore the folder from a
    copy that holds everything up to the last driver's stop. Takes no claim: a driver that is alive
    goes on.

        eos recovery log repair orders --commit-log /data/eos            # what is wrong
        eos recovery log repair orders --commit-log /data/eos --apply    # mend it

    Exit codes: 0 nothing to mend, or mended; 1 a plan with steps, or refused; 2 it could not be
    reached, or somebody else compacts it: repeat; 64 wrong options.
    """
    target.sinks(sink)
    try:
        found = examine(target.root, sink, storage_options=target.storage_options)
    except CommitLogError as error:
        return Plan(steps=[], refused=[str(error)])

    def do(progress: ChangeProgress) -> None:
        progress.doing(f"mending the log of {sink}")
        try:
            mended = mend(target.root, sink, storage_options=target.storage_options)
        except EosError as error:
            progress.went_wrong(sink, error)
            return
        for step in _steps(sink, mended):
            progress.done(step.what)

    return carry_out(target, Plan(steps=_steps(sink, found)), do, apply=apply, yes=yes)


def _steps(sink: str, found: Mendable) -> list[PlanStep]:
    steps = []
    if found.lost_checkpoint is not None:
        steps.append(
            PlanStep(
                what=f"{sink}: delete _last_checkpoint and {found.lost_checkpoint}.",
                why="That file is missing or broken, and every commit is there: Delta reads the "
                "log without it. Then look what else there is to mend.",
            )
        )
    steps.extend(
        PlanStep(
            what=f"{sink}: make {name}, which is empty, a commit that does nothing.",
            why="A power failure came before it was on the disk. Whoever appends goes on only "
            "then, so nobody has acted on it. If something else has emptied it, what was in it is "
            "gone: restore a copy instead. Then look what else there is to mend.",
        )
        for name in found.unwritten
    )
    if found.doubled:
        steps.append(
            PlanStep(
                what=f"{sink}: write {found.doubled} records once that stand in the table twice.",
                why="Each is equal to the other in every column: nothing that was decided changes.",
            )
        )
    return steps
