"""``eos recovery log repair``: repair a commit log whose content is beyond doubt."""

from __future__ import annotations

from typing import Annotated

import typer

from eos.cli.reports import Report
from eos.commit_log import RepairableDamage, examine, repair_log
from eos.errors import CommitLogError, EosError
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._plan import Plan, PlanStep
from eos.recovery._target import Target


def repair(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Repair a log that Delta can't open, or that holds duplicate records.

    Repairs only damage that leaves the content of the log beyond doubt:

    - Duplicate records, equal in every column, are written once. Two simultaneous compactions, by
      an older release or by hand, leave them.

    - A missing or broken checkpoint is removed if every commit is intact.

    - Empty newest commits are replaced by commits that do nothing. A power failure leaves them, and
      nothing has depended on them.

    Other damage is reported and nothing is changed: restore the folder from a copy made after the
    last driver stopped. Does not take the claim: a running driver continues.

        eos recovery log repair orders --commit-log /data/eos            # show what is wrong
        eos recovery log repair orders --commit-log /data/eos --apply    # repair it

    Exit codes: 0 nothing to repair, or repaired; 1 a plan with steps, or refused; 2 the log could
    not be reached, or another process is compacting it (retry); 64 wrong options.
    """
    target.sinks(sink)
    try:
        found = examine(target.root, sink, storage_options=target.storage_options)
    except CommitLogError as error:
        return Plan(steps=[], refused=[str(error)])

    def do(progress: ChangeProgress) -> None:
        progress.doing(f"repairing the log of {sink}")
        try:
            repaired = repair_log(target.root, sink, storage_options=target.storage_options)
        except EosError as error:
            progress.failed(sink, error)
            return
        for step in _steps(sink, repaired):
            progress.done(step.what)

    return carry_out(target, Plan(steps=_steps(sink, found)), do, apply=apply, yes=yes)


def _steps(sink: str, found: RepairableDamage) -> list[PlanStep]:
    steps = []
    if found.lost_checkpoint is not None:
        steps.append(
            PlanStep(
                what=f"{sink}: delete _last_checkpoint and {found.lost_checkpoint}.",
                why="The checkpoint is missing or broken, but every commit is there: Delta reads "
                "the log without it. Further damage is then looked for.",
            )
        )
    steps.extend(
        PlanStep(
            what=f"{sink}: replace the empty {name} by a commit that does nothing.",
            why="A power failure leaves an empty commit. A writer continues only once its commit "
            "is on disk, so nothing depends on this one. If the file was emptied in another way, "
            "its content is lost: restore a copy instead. Further damage is then looked for.",
        )
        for name in found.unwritten
    )
    if found.doubled:
        steps.append(
            PlanStep(
                what=f"{sink}: write {found.doubled} duplicate records once.",
                why="The duplicates are equal in every column: no decision changes.",
            )
        )
    return steps
