"""``eos recovery abort``: abort transactions whose commit was never decided."""

from __future__ import annotations

from typing import Annotated

import typer

from eos.cli.reports import Report, age_s, duration
from eos.errors import ConfigurationError, EosError, InvalidTransactionStatus, TransactionNotFound
from eos.ids import TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import pulsar_part
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
from eos.recovery._sink_view import view
from eos.recovery._target import Target
from eos.wire.commands import TxnAction


def abort(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="The sink whose epochs to abort.")] = None,
    epoch: Annotated[
        str | None, typer.Option(help="Only this epoch; all open epochs by default.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="Only this query id, or its beginning.")] = None,
    txn: Annotated[
        str | None,
        typer.Option(
            metavar="(MOST,LEAST)",
            help="A transaction that is in no log, as shown by `orphans`. Needs --admin-url.",
        ),
    ] = None,
    give_up: GiveUp = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Deadline = 60.0,
) -> Report:
    """Abort transactions whose commit was never decided.

    With SINK, aborts epochs that are OPEN or ABORTING. A PREPARED epoch is refused: its commit is
    decided, and decisions are never reversed; use `resolve`. With --txn, aborts a transaction that
    is in no commit log. Shows a plan; --apply runs it.

        eos recovery abort orders --epoch 17 --commit-log /data/eos --apply

        eos recovery abort --txn "(0,17)" --commit-log /data/eos --admin-url http://broker:8080

    Exit codes: 0 nothing to do, or all done; 1 a plan with steps, refused, or a step failed; 2 an
    outcome can't be proved now; 64 wrong options.
    """
    if (sink is None) == (txn is None):
        raise ConfigurationError("Pass either a sink or --txn.")
    if txn is not None:
        if epoch is not None or query is not None:
            raise ConfigurationError("--epoch and --query need a sink.")
        return _abort_orphan(target, txn, apply=apply, yes=yes)
    assert sink is not None
    target.sinks(sink)
    log = target.log(sink)
    chosen = [record for record in log.history.unfinished if _is_chosen(record, query, epoch)]
    undecided = [record for record in chosen if record.state is not State.PREPARED]
    plan = Plan(
        steps=[_step(record) for record in undecided],
        warnings=[fencing_warning(view(log.history, ()))] if undecided else [],
        refused=[_refusal(record) for record in chosen if record.state is State.PREPARED],
    )

    def do(progress: ChangeProgress) -> None:
        keys = {record.key for record in undecided}
        with open_takeover(target, sink, deadline_s, give_up) as takeover:
            for record in takeover.unfinished:
                # A driver may have prepared it after the plan was made.
                if record.key in keys and record.state is not State.PREPARED:
                    finish_one(takeover, record, progress)

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _is_chosen(record: LogRecord, query: str | None, epoch: str | None) -> bool:
    is_query = query is None or str(record.query_id).startswith(query)
    return is_query and (epoch is None or record.epoch == epoch)


def _step(record: LogRecord) -> PlanStep:
    begin = "append ABORTING, " if record.state is State.OPEN else ""
    return PlanStep(
        what=f"{label(record.sink_id, record.query_id, record.epoch)}, {record.state.value}, "
        f"{record.label}: {begin}{ABORT}.",
        why="Its commit was never decided. The next run of its query writes the epoch again.",
    )


def _refusal(record: LogRecord) -> str:
    return (
        f"{label(record.sink_id, record.query_id, record.epoch)} is PREPARED: its commit is "
        "decided, and readers may already have it. `resolve` finishes it; if nothing proves its "
        "outcome, `decide` shows the evidence."
    )


def _abort_orphan(target: Target, text: str, *, apply: bool, yes: bool) -> Report:
    try:
        txn = TxnId.parse(text)
    except ValueError as error:
        raise ConfigurationError(f"--txn: {error}.") from None
    owner = owner_of(target, txn)
    if owner is not None:
        raise ConfigurationError(
            f"Transaction {txn} belongs to sink {owner}.",
            hint=f"Use `abort {owner}` or `resolve {owner}`, which follow the log.",
        )
    found = target.admin().transaction(txn)
    if found is None:
        return Plan(
            steps=[], warnings=[f"The broker does not know transaction {txn}: it has ended."]
        )
    age = duration(age_s(found.opened_at))
    touched = ", ".join(found.topics) or "no topic yet"
    plan = Plan(
        steps=[
            PlanStep(
                what=f"send END_TXN(abort) for transaction {txn}: {found.status}, opened {age} "
                f"ago, time to live {duration(found.ttl_s)}, writes to {touched}.",
                why="It is in no log below --commit-log.",
            )
        ],
        warnings=[
            "It may belong to another application or to a log elsewhere: its writer loses all "
            "messages of the transaction and must write them again."
        ],
    )

    def do(progress: ChangeProgress) -> None:
        with target.client(_recorded_url(target)) as client:
            try:
                client.coordinators.end(txn, TxnAction.ABORT, timeout_s=target.timeout_s)
            except (TransactionNotFound, InvalidTransactionStatus):
                progress.done(f"transaction {txn} had already ended")
            except EosError as error:
                progress.failed(f"transaction {txn}", error)
            else:
                progress.done(f"transaction {txn}: aborted")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _recorded_url(target: Target) -> str | None:
    """The service URL in the logs, if they all have the same."""
    urls = {
        pulsar_part(last).service_url
        for sink_id in target.sinks()
        if (last := target.log(sink_id).history.last) is not None
    }
    return urls.pop() if len(urls) == 1 else None


def owner_of(target: Target, txn: TxnId) -> str | None:
    """The sink whose log contains ``txn``; None if no log does."""
    for sink_id in target.sinks():
        if any(pulsar_part(record).txn == txn for record in target.log(sink_id).records()):
            return sink_id
    return None
