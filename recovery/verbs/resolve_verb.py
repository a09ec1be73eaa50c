"""``eos recovery resolve``: finish unfinished epochs as their logs decided."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

import typer

from eos.cli.reports import Report
from eos.protocol import State
from eos.recovery._change import (
    ABORT,
    Apply,
    ChangeProgress,
    Deadline,
    GiveUp,
    Yes,
    carry_out,
    fencing_warning,
    finish_one,
    label,
    open_takeover,
)
from eos.recovery._plan import Plan, PlanStep
from eos.recovery._sink_view import SinkView, Unfinished, view
from eos.recovery._target import Target

_ACTIONS: Final = {
    State.OPEN: (
        f"append ABORTING, {ABORT}",
        "The log holds no decision to commit, so it can't have been committed. The next run of its "
        "query writes the epoch again.",
    ),
    State.ABORTING: (ABORT, "The log holds the decision to abort; this completes it."),
    State.PREPARED: (
        "find the mark, send END_TXN(commit); if the broker has forgotten the transaction, ask the "
        "witness; if the mark is missing, read the epoch's own messages; append COMMITTED, or "
        "ABORTED if it is proved expired",
        "The log holds the decision to commit; this completes it, or proves its outcome. If "
        "nothing proves it, it stays in doubt: `decide` shows the evidence.",
    ),
}


def plan_of(views: list[SinkView]) -> Plan:
    """The plan for resolving these sinks."""
    waiting = [sink for sink in views if sink.unfinished]
    return Plan(
        steps=[_step(sink, one) for sink in waiting for one in sink.unfinished],
        warnings=[fencing_warning(sink) for sink in waiting],
    )


def _step(sink: SinkView, one: Unfinished) -> PlanStep:
    what, why = _ACTIONS[one.state]
    return PlanStep(
        what=f"{label(sink.sink_id, one.query_id, one.epoch)}, {one.state.value}, "
        f"{one.what}: {what}.",
        why=why,
    )


def resolve_verb(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    give_up: GiveUp = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Deadline = 60.0,
) -> Report:
    """Finish unfinished epochs: commit, abort, or prove by the witness what happened.

    Shows a plan; --apply runs it step by step. It can be interrupted and repeated at any time.
    An outcome that can't be proved now stays in doubt; nothing is guessed. If it can never be
    proved, use `decide`. Epochs that were never PREPARED always end as ABORTED; without their
    receipt topic, no END_TXN is sent and the transaction expires.

        eos recovery resolve orders --commit-log /data/eos

        eos recovery resolve orders --commit-log /data/eos --apply

    Exit codes: 0 nothing to do, or all done; 1 a plan with steps, or a step failed; 2 an outcome
    can't be proved now; 64 wrong options.
    """
    names = target.sinks(sink)
    logs = [target.log(name) for name in names]
    plan = plan_of([view(log.history, ()) for log in logs])

    def do(progress: ChangeProgress) -> None:
        for log in logs:
            if log.history.unfinished:
                _resolve_one(target, log.sink_id, deadline_s, give_up, progress)

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _resolve_one(
    target: Target,
    sink_id: str,
    deadline_s: float,
    give_up: Collection[str] | None,
    progress: ChangeProgress,
) -> None:
    with open_takeover(target, sink_id, deadline_s, give_up) as takeover:
        for record in takeover.unfinished:
            finish_one(takeover, record, progress)
