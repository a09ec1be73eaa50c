"""``eos recovery resolve`` and ``abort``: end unfinished epochs as their logs decided."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from eos.cli.reports import Exit, Report, age_s, ago, duration, exit_of
from eos.commit_log import CommitLog
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
    Plan,
    PlanStep,
    Yes,
    carry_out,
    fencing_warning,
    finish_one,
    label,
    open_takeover,
)
from eos.recovery._sink_view import SinkView, Unfinished, view
from eos.recovery._target import Target
from eos.wire.commands import TxnAction

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


# Without a topic there is neither a transaction nor a witness.
_WITHOUT_TOPIC: Final = {
    State.OPEN: "append ABORTING, delete what is staged, append ABORTED",
    State.ABORTING: "delete what is staged, append ABORTED",
    State.PREPARED: "commit it in its outputs, or find that it was committed; append COMMITTED, or "
    "ABORTED if it is proved that it can't be",
}


def _step(sink: SinkView, one: Unfinished) -> PlanStep:
    what, why = _ACTIONS[one.state]
    if one.txn is None:
        what = _WITHOUT_TOPIC[one.state]
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
    can't be proved now, or a driver has gone on; 64 wrong options.
    """
    logs: list[CommitLog] = []
    broken: dict[str, EosError] = {}
    names = target.sinks(sink)
    for name in names:
        try:
            logs.append(target.log(name))
        except EosError as error:  # the other sinks' epochs can still be finished
            if len(names) == 1:
                raise
            broken[name] = error
    # The plan needs no records of finished epochs, which are most of a log.
    views = [view(log.history, ()) for log in logs if log.history.unfinished]
    plan = Plan(
        steps=[_step(sink, one) for sink in views for one in sink.unfinished],
        warnings=[fencing_warning(sink) for sink in views],
        refused=_errors(broken, Exit.NEEDS_ACTION),
        unknown=_errors(broken, Exit.UNKNOWN),
    )

    def do(progress: ChangeProgress) -> None:
        for log in logs:
            if not log.history.unfinished:  # its driver must not be fenced
                continue
            try:
                with open_takeover(target, log.sink_id, deadline_s, give_up) as takeover:
                    # Read again, with the log open for writing: the plan's records may be outdated.
                    for record in takeover.unfinished:
                        finish_one(takeover, record, progress)
            except EosError as error:
                if len(names) == 1:
                    raise
                broken[log.sink_id] = error
        for name, found in broken.items():
            progress.failed(f"sink {name}", found)

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _errors(broken: Mapping[str, EosError], code: Exit) -> list[str]:
    return [f"sink {name}: {error}" for name, error in broken.items() if exit_of(error) is code]


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
    # I1: without PREPARED, a commit is impossible. With it, an abort would reverse a decision.
    undecided = [record for record in chosen if record.state is not State.PREPARED]
    plan = Plan(
        steps=[_abort_step(record) for record in undecided],
        warnings=[fencing_warning(view(log.history, ()))] if undecided else [],
        refused=[_refusal(record) for record in chosen if record.state is State.PREPARED],
    )

    def do(progress: ChangeProgress) -> None:
        keys = {record.key for record in undecided}
        with open_takeover(target, sink, deadline_s, give_up) as takeover:
            for record in takeover.unfinished:
                if record.key in keys and record.state is State.PREPARED:  # since the plan
                    progress.refused(_refusal(record))
                elif record.key in keys:
                    finish_one(takeover, record, progress)

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _is_chosen(record: LogRecord, query: str | None, epoch: str | None) -> bool:
    is_query = query is None or str(record.query_id).startswith(query)
    return is_query and (epoch is None or record.epoch == epoch)


def _abort_step(record: LogRecord) -> PlanStep:
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
    _check_no_owner(target, txn)
    found = target.admin().transaction(txn)
    if found is None:
        return Plan(
            steps=[], warnings=[f"The broker does not know transaction {txn}: it has ended."]
        )
    age = ago(age_s(found.opened_at))
    touched = ", ".join(found.topics) or "no topic yet"
    plan = Plan(
        steps=[
            PlanStep(
                what=f"send END_TXN(abort) for transaction {txn}: {found.status}, opened {age}, "
                f"time to live {duration(found.ttl_s)}, writes to {touched}.",
                why="It is in no log below --commit-log.",
            )
        ],
        warnings=[
            "It may belong to another application or to a log elsewhere: its writer loses all "
            "messages of the transaction and must write them again."
        ],
    )

    def do(progress: ChangeProgress) -> None:
        _check_no_owner(target, txn)  # since the plan its driver may have appended OPEN
        with target.client(target.recorded_url()) as client:
            try:
                client.coordinators.end(txn, TxnAction.ABORT, timeout_s=target.timeout_s)
            except (TransactionNotFound, InvalidTransactionStatus):  # it ended after the plan
                progress.done(f"transaction {txn} had already ended")
            except EosError as error:
                progress.failed(f"transaction {txn}", error)
            else:
                progress.done(f"transaction {txn}: aborted")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _check_no_owner(target: Target, txn: TxnId) -> None:
    # Ended by its id, an attempt could contradict its log, which may say PREPARED.
    owner = _owner_of(target, txn)
    if owner is not None:
        quoted = shlex.quote(owner)
        raise ConfigurationError(
            f"Transaction {txn} belongs to sink {owner}.",
            hint=f"Use `abort {quoted}` or `resolve {quoted}`, which follow the log.",
        )


def _owner_of(target: Target, txn: TxnId) -> str | None:
    """The sink whose log contains ``txn``; None if no log does."""
    # All logs below the root: a transaction's id does not name its sink.
    for sink_id in target.sinks():
        if any(pulsar_part(record).txn == txn for record in target.log(sink_id).records()):
            return sink_id
    return None
