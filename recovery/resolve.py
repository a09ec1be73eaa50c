"""``eos-recovery resolve``: finish what the log decided: commit, abort, or prove by the witness."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from eos.errors import EosError
from eos.protocol import LogRecord, State
from eos.transport.security import Security
from recovery.change import Apply, Progress, Yes, carry_out, fencing_warning
from recovery.report import Plan, PlanStep, Report
from recovery.sink_view import SinkView, Unfinished, query_label, view
from recovery.takeover import Takeover
from recovery.target import Target

Deadline = Annotated[
    float,
    typer.Option(min=1, max=3600, help="Of each wait for a mark, an END_TXN or the witness."),
]

ABORT: Final = (
    "find the mark, END_TXN(abort) (without its mark nothing is sent: the transaction expires by "
    "itself), append ABORTED"
)
"""How a transaction ends that nobody decided to commit."""
_WILL: Final = {
    State.OPEN: (
        f"append ABORTING, {ABORT}",
        "The log holds no decision to commit, so none can have been carried out. The epoch is "
        "written by the next run of its query.",
    ),
    State.ABORTING: (ABORT, "The log has decided to abort; this finishes it."),
    State.PREPARED: (
        "find the mark, END_TXN(commit); if the broker has forgotten the transaction, ask the "
        "witness; if the mark is gone, read the epoch's own messages; append COMMITTED, or ABORTED "
        "if it is proved expired",
        "The log has decided to commit; this finishes it, or proves what became of it. Where "
        "nothing proves it, it stays in doubt: `decide` shows the evidence.",
    ),
}


def resolve(
    sink_id: str,
    *,
    commit_log: str | Path,
    service_url: str | None = None,
    security: Security | None = None,
    admin_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    deadline_s: float = 60.0,
) -> list[LogRecord]:
    """Bring every unfinished transaction of a sink to its end, as a restarted driver would.

    Takes the sink's claim, if there is anything to do: a driver that is still alive is fenced at
    its next append. Running it again changes nothing more.

    Returns:
        The last record of each epoch that was unfinished: COMMITTED, ABORTED or EMPTY. An
        aborted epoch is written by the next run of its query.

    Raises:
        ConfigurationError: there is no such log, or nothing was ever written with it.
        InDoubt: an outcome can't be proved now; the others were ended all the same.
        Fenced: a driver claimed the sink at the same moment.
    """
    ended: list[LogRecord] = []
    failure: EosError | None = None
    with Takeover(
        sink_id,
        commit_log=commit_log,
        service_url=service_url,
        security=security,
        admin_url=admin_url,
        storage_options=storage_options,
        deadline_s=deadline_s,
    ) as takeover:
        for record in takeover.unfinished:
            try:
                ended.append(takeover.finish(record))
            except EosError as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return ended


def plan_of(views: list[SinkView]) -> Plan:
    """What resolving these sinks would do."""
    waiting = [sink for sink in views if sink.unfinished]
    return Plan(
        steps=[_step(sink, one) for sink in waiting for one in sink.unfinished],
        warnings=[fencing_warning(sink) for sink in waiting],
    )


def _step(sink: SinkView, one: Unfinished) -> PlanStep:
    what, why = _WILL[one.state]
    return PlanStep(
        what=f"{label(sink.sink_id, one.query_id, one.epoch)}, {one.state.value}, "
        f"transaction {one.txn}: {what}.",
        why=why,
    )


def label(sink_id: str, query_id: str | None, epoch: str | None) -> str:
    """How a line of output names an epoch."""
    return f"{sink_id}, epoch {epoch} of {query_label(query_id or '-')}"


def resolve_verb(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Deadline = 60.0,
) -> Report:
    """Finish what the log decided: commit, or abort, or prove by the witness what happened.

    Shows a plan; --apply does it, step by step. It may be broken off and repeated at any time.
    What can't be proved now stays in doubt: nothing is guessed; a person may `decide` it. What was
    never PREPARED always ends, as ABORTED, even without its receipt topic: nothing is ended by its
    number then, its transaction expires by itself.

        eos-recovery resolve orders --commit-log /data/eos

        eos-recovery resolve orders --commit-log /data/eos --apply

    Exit codes: 0 nothing to do, or all done; 1 a plan with steps, or a step failed; 2 an outcome
    can't be proved now; 64 wrong options.
    """
    names = target.sinks(sink)
    logs = [target.log(name) for name in names]
    plan = plan_of([view(log.history, ()) for log in logs])

    def do(progress: Progress) -> None:
        for log in logs:
            if log.history.unfinished:
                _resolve_one(target, log.sink_id, deadline_s, progress)

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _resolve_one(target: Target, sink_id: str, deadline_s: float, progress: Progress) -> None:
    with open_takeover(target, sink_id, deadline_s) as takeover:
        for record in takeover.unfinished:
            finish_one(takeover, record, progress)


def open_takeover(target: Target, sink_id: str, deadline_s: float) -> Takeover:
    """A hold on one of the target's sinks."""
    return Takeover(
        sink_id,
        commit_log=target.root,
        service_url=target.service_url,
        security=target.security,
        admin_url=target.admin_url,
        storage_options=target.storage_options,
        deadline_s=deadline_s,
        timeout_s=target.timeout_s,
    )


def finish_one(takeover: Takeover, record: LogRecord, progress: Progress) -> None:
    """End one transaction, and write down what became of it."""
    name = label(record.sink_id, record.query_id, record.epoch)
    progress.doing(f"{name}: {record.state.value}, transaction {record.txn}")
    try:
        last = takeover.finish(record)
    except EosError as error:
        progress.went_wrong(name, error)
        return
    reason = f" ({last.reason})" if last.reason else ""
    progress.done(f"{name}: {last.state.value}, transaction {last.txn}{reason}")
