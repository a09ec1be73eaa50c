"""``eos recovery decide``: where nothing proves anything, a person decides."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console

from eos.cli.exit_codes import Exit
from eos.cli.reports import Report
from eos.errors import EosError
from eos.recovery._change import (
    Apply,
    ChangeProgress,
    GiveUp,
    Yes,
    carry_out,
    fencing_warning,
    label,
)
from eos.recovery._decision_checks import Verdict
from eos.recovery._evidence import Evidence
from eos.recovery._report import Plan, PlanStep
from eos.recovery._sink_view import view
from eos.recovery._target import Target
from eos.recovery.decide import STATE, Case, reason_of

_MEANS: Final = {
    Verdict.COMMITTED: "The epoch is never written again. If the broker did not commit it after "
    "all, its rows are lost.",
    Verdict.ABORTED: "The next run of its query writes the epoch again. If the broker did commit "
    "it after all, its rows are there twice.",
    Verdict.ABANDONED: "Its query may go on without the epoch's rows. If it is asked for again, "
    "it is written.",
}


class DecisionPlan(Plan):
    """A plan, and all that can be seen of the epoch."""

    evidence: Evidence
    is_unknown: bool
    """It is refused only because something gave no answer."""

    @property
    def exit(self) -> Exit:
        """As a plan; unknown, when an answer is missing."""
        return Exit.UNKNOWN if self.is_unknown else super().exit

    def render(self, console: Console) -> None:
        """The evidence first."""
        self.evidence.render(console)
        console.print()
        super().render(console)


def decide_verb(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    epoch: Annotated[str, typer.Option(help="Spark's batch id, or a batch job's key.")],
    verdict: Annotated[Verdict, typer.Option("--as", help="What became of the epoch.")],
    because: Annotated[str, typer.Option(help="How you know. The log keeps it: no secrets.")],
    query: Annotated[
        str | None, typer.Option(help="Its query id, or the head of it; `batch` for batch jobs.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who decides; your login name by default.")] = None,
    give_up: GiveUp = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Annotated[
        float, typer.Option(min=1, max=3600, help="Of each thing that is looked at before.")
    ] = 20.0,
) -> Report:
    """Decide what became of an epoch, where neither log nor cluster can prove it.

    The last way out; `resolve` comes first. Shows all evidence: the epoch's records, mark and
    receipt, whether its messages are readable, what the coordinator says (with --admin-url), its
    age. What the evidence contradicts is refused. --apply takes the sink's claim, looks again and
    appends the decision, with your name and reason; nothing is ended at the broker.

    --as committed or aborted: for an epoch that is PREPARED and stays in doubt, its receipt topic
    gone for example. Look for its rows first: committed, if readers have them; else aborted, and
    the next run writes them again.

        eos recovery decide orders --epoch 17 --as aborted \\
            --because "topic restored from the copy of Monday, nothing of epoch 17 in it"

    --as abandoned: for an epoch that was attempted and is not in the topics, when its query shall
    go on without its rows.

        eos recovery decide orders --epoch 17 --as abandoned --because "test data" --apply

    Exit codes: 0 decided; 1 a plan, or refused; 2 something that may prove it gives no answer now;
    64 wrong options, or no such epoch.
    """
    target.sinks(sink)
    reason = reason_of(by, because)
    case = Case(target, sink, epoch, query, verdict, reason, deadline_s, tuple(give_up or ()))
    plan = _plan(case)

    def do(progress: ChangeProgress) -> None:
        progress.doing(f"{sink}, epoch {epoch}: {verdict.value}, by decision")
        try:
            last = case.carry_out()
        except EosError as error:
            progress.went_wrong(f"{sink}, epoch {epoch}", error)
        else:
            name = label(sink, last.query_id, last.epoch)
            progress.done(f"{name}: {last.state.value} ({last.reason})")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _plan(case: Case) -> DecisionPlan:
    record, evidence, against = case.look()
    name = label(case.sink_id, record.query_id, record.epoch)
    step = PlanStep(
        what=f"{name}, {record.state.value}: append {STATE[case.verdict].value} ({case.reason}).",
        why=_MEANS[case.verdict],
    )
    history = case.target.log(case.sink_id).history
    return DecisionPlan(
        steps=[] if against else [step],
        warnings=[] if against else [fencing_warning(view(history, ()))],
        refused=[one.text for one in against],
        evidence=evidence,
        is_unknown=bool(against) and all(one.is_unknown for one in against),
    )
