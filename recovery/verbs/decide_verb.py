"""``eos recovery decide``: record a person's decision if nothing proves the outcome."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report
from eos.errors import EosError
from eos.recovery._change import (
    Apply,
    ChangeProgress,
    GiveUp,
    Plan,
    PlanStep,
    Yes,
    carry_out,
    fencing_warning,
    label,
)
from eos.recovery._decision_checks import Verdict
from eos.recovery._evidence import Evidence
from eos.recovery._sink_view import view
from eos.recovery._target import Target
from eos.recovery.decide import STATE, ManualDecision, reason_of

_CONSEQUENCES: Final = {
    Verdict.COMMITTED: "The epoch is never written again. If it was not committed, its rows "
    "are lost.",
    Verdict.ABORTED: "The next run of its query writes the epoch again. If it was committed, its "
    "rows are duplicated.",
    Verdict.ABANDONED: "Its query may continue without the epoch's rows. If Spark runs the epoch "
    "again, it is written.",
}


class DecisionPlan(Plan):
    """A plan, with all evidence about the epoch."""

    evidence: Evidence
    is_unknown: bool  # refused only because an answer is missing, which may still come

    @property
    def exit(self) -> Exit:
        """As for a plan; unknown if an answer is missing."""
        return Exit.UNKNOWN if self.is_unknown else super().exit

    def render(self, console: Console) -> None:
        """The evidence, then the plan."""
        self.evidence.render(console)
        console.print()
        super().render(console)


def decide_verb(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    epoch: Annotated[str, typer.Option(help="Spark's batch id, or a batch job's key.")],
    verdict: Annotated[Verdict, typer.Option("--as", help="The outcome of the epoch.")],
    because: Annotated[str, typer.Option(help="How you know. Stored in the log: no secrets.")],
    query: Annotated[
        str | None,
        typer.Option(help="Its query id, or its beginning; `batch` for batch jobs."),
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who decides; your login name by default.")] = None,
    give_up: GiveUp = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds to wait for each answer.")
    ] = 20.0,
) -> Report:
    """Record a person's decision about an epoch whose outcome nothing proves.

    Try `resolve` first. Shows all evidence: the epoch's records, its mark and receipt, whether its
    messages are readable, the coordinator's answer (with --admin-url) and its age. A decision that
    contradicts the evidence is refused. --apply takes the sink's claim, checks again and appends
    the decision with your name and reason. No END_TXN is sent.

    --as committed or aborted: for an epoch that is PREPARED and stays in doubt, for example because
    its receipt topic was deleted. First look for its rows: if readers have them, it is committed;
    if not, it is aborted, and the next run writes them again.

        eos recovery decide orders --epoch 17 --as aborted \\
            --because "topic restored from the copy of Monday, nothing of epoch 17 in it"

    --as abandoned: for an epoch that was attempted and is not in the outputs, if its query should
    continue without its rows.

        eos recovery decide orders --epoch 17 --as abandoned --because "test data" --apply

    Exit codes: 0 decided; 1 a plan, or refused; 2 an answer that may prove the outcome is missing;
    64 wrong options, or the epoch does not exist.
    """
    target.sinks(sink)
    reason = reason_of(by, because)
    decision = ManualDecision(
        target, sink, epoch, query, verdict, reason, deadline_s, tuple(give_up or ())
    )
    # Only shown: `apply` gathers the evidence again, after it has taken the claim.
    plan = _plan(decision)

    def do(progress: ChangeProgress) -> None:
        progress.doing(f"{sink}, epoch {epoch}: recording {verdict.value}")
        try:
            last = decision.apply()
        except EosError as error:
            progress.failed(f"{sink}, epoch {epoch}", error)
        else:
            name = label(sink, last.query_id, last.epoch)
            progress.done(f"{name}: {last.state.value} ({last.reason})")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _plan(decision: ManualDecision) -> DecisionPlan:
    record, evidence, against = decision.check()
    name = label(decision.sink_id, record.query_id, record.epoch)
    step = PlanStep(
        what=f"{name}, {record.state.value}: append {STATE[decision.verdict].value} "
        f"({decision.reason}).",
        why=_CONSEQUENCES[decision.verdict],
    )
    history = decision.target.log(decision.sink_id).history
    return DecisionPlan(
        steps=[] if against else [step],
        warnings=[] if against else [fencing_warning(view(history, ()))],
        refused=[one.text for one in against],
        evidence=evidence,
        is_unknown=bool(against) and all(one.is_unknown for one in against),
    )
