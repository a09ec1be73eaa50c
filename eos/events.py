"""What is told of an epoch's life, while it happens: to the log, to metrics, to traces, to users.

An event is a value: names, numbers and states, never a row, a secret, or a handle on anything. Who
listens can't harm an epoch: ``eos.committer.Observer``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from eos.protocol import History, LogRecord, Reason, ReasonKind, State
from eos.steps import Step

_log = logging.getLogger(__name__)


class EpochOutcome(StrEnum):
    """What became of one call for one epoch."""

    COMMITTED = "committed"
    """Written now, and readable."""
    EMPTY = "empty"
    """There were no rows; done."""
    SKIPPED = "skipped"
    """An earlier call had written it."""
    ABORTED = "aborted"
    """Its attempts were aborted; nothing of it is readable, and the call ended in an error."""
    FAILED = "failed"
    """The call ended in an error before an attempt was opened."""
    IN_DOUBT = "in_doubt"
    """The commit of an attempt can't be proved now; nothing was guessed."""
    FENCED = "fenced"
    """Another driver holds the sink."""


@dataclass(frozen=True)
class UnfinishedAttempt:
    """An attempt whose end is not in the commit log. ``age_s``: seconds since it was opened."""

    state: State
    age_s: float


@dataclass(frozen=True)
class WrittenRows:
    """What an attempt holds in one output: ``kind`` is the participant's, ``output`` its name."""

    kind: str
    output: str
    records: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class EpochEvent:
    """Something that happened to an epoch of a sink, ``at`` a time of the driver's clock (UTC)."""

    sink_id: str
    query_id: str | None
    epoch: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class EpochStarted(EpochEvent):
    """The sink was called for an epoch."""


@dataclass(frozen=True, kw_only=True)
class StepEnded(EpochEvent):
    """A step of ``eos.steps`` is over, after ``duration_s`` seconds.

    Each begins where the one before ended: together they are the time that the call took.
    ``is_complete``: False when an error ended it.
    """

    step: Step
    duration_s: float
    is_complete: bool = True


@dataclass(frozen=True, kw_only=True)
class StateChanged(EpochEvent):
    """A record is in the commit log.

    Attributes:
        query_id, epoch, attempt: None for CLAIMED, which is the sink's; FAILED has no attempt.
        state: what the record says.
        run_id: who wrote it.
        transaction: the attempt's number at the broker, where it has one.
        written: what the attempt holds, from PREPARED on.
        reason: why it was aborted, or failed; holds no rows.
        unfinished: every attempt of the sink that the log does not hold the end of.
        owed: how many epochs were attempted, and are neither written nor given up.
    """

    attempt: int | None
    state: State
    run_id: str
    transaction: str | None
    written: tuple[WrittenRows, ...]
    reason: Reason | None
    unfinished: tuple[UnfinishedAttempt, ...]
    owed: int

    @classmethod
    def of(cls, record: LogRecord, history: History) -> StateChanged:
        """The event of a ``record``, the last one of ``history``."""
        at = record.written_at or datetime.now(UTC)
        return cls(
            sink_id=record.sink_id,
            query_id=record.query_id,
            epoch=record.epoch,
            at=at,
            attempt=record.attempt,
            state=record.state,
            run_id=record.run_id,
            transaction=record.txn_id,
            written=tuple(
                WrittenRows(part.kind, part.output, part.records, part.bytes or 0)
                for part in record.participants
                if part.records is not None
            ),
            reason=record.reason,
            unfinished=unfinished_in(history, at),
            owed=len(history.owing),
        )


@dataclass(frozen=True, kw_only=True)
class EpochEnded(EpochEvent):
    """The sink's call for an epoch is over, after ``duration_s`` seconds.

    Attributes:
        outcome: what became of it.
        steps_s: seconds in each step, by its label; those of several attempts together, without
            a ``finish`` that is done later.
        attempts: how many transactions this call has opened.
        records, bytes: what the outputs hold of the epoch; None where that is not known.
        transaction: the last attempt's number at the broker, where it has one.
        reason: why it failed; holds no rows. None when it did not.
    """

    outcome: EpochOutcome
    duration_s: float
    steps_s: Mapping[str, float]
    attempts: int
    records: int | None
    bytes: int | None
    transaction: str | None
    reason: Reason | None


class EpochListener:
    """What wants to be told of epochs: override what is of interest, and pass it to a sink.

    Each listener is called on a thread of its own, one event after the other, in the context
    (``contextvars``) of who calls the sink; records that are appended beside the caller's own work
    have none. An epoch never waits for it: what it raises is logged, and when it blocks until 1,000
    events wait for it, later ones are dropped, with a warning.
    """

    def on_epoch_started(self, event: EpochStarted) -> None:
        """The sink was called."""

    def on_step_ended(self, event: StepEnded) -> None:
        """One of the ten steps is over."""

    def on_state_changed(self, event: StateChanged) -> None:
        """A record is in the commit log."""

    def on_epoch_ended(self, event: EpochEnded) -> None:
        """The sink's call is over. In a stream, COMMITTED is noted behind it, and told then."""


def tell(listener: EpochListener, event: EpochEvent) -> None:
    """Call the method of ``listener`` that is for ``event``; raises what that raises."""
    match event:
        case EpochStarted():
            listener.on_epoch_started(event)
        case StepEnded():
            listener.on_step_ended(event)
        case StateChanged():
            listener.on_state_changed(event)
        case EpochEnded():
            listener.on_epoch_ended(event)


def unfinished_in(history: History, now: datetime) -> tuple[UnfinishedAttempt, ...]:
    """Each attempt that ``history`` does not hold the end of; ``now``: UTC."""
    return tuple(
        UnfinishedAttempt(record.state, max(0.0, (now - record.opened_at).total_seconds()))
        for record in history.unfinished
        if record.opened_at is not None
    )


def log_state(event: StateChanged) -> None:
    """One line in the driver's log, at INFO, with what it says as fields of the record, too."""
    if not _log.isEnabledFor(logging.INFO):
        return
    about = [f"sink {event.sink_id}"]
    if event.epoch is not None:
        about += [f"query {event.query_id}", f"epoch {event.epoch}"]
    if event.attempt is not None:
        about.append(f"attempt {event.attempt}")
    text = f"{', '.join(about)}: {event.state}"
    if event.transaction is not None:
        text += f", transaction {event.transaction}"
    if event.reason is not None:
        text += f" ({event.reason})"
    fields = {
        "sink": event.sink_id,
        "query": event.query_id,
        "epoch": event.epoch,
        "attempt": event.attempt,
        "state": event.state.value,
        "transaction": event.transaction,
        "run": event.run_id,
        "rows": sum(one.records for one in event.written) if event.written else None,
        "reason": event.reason.kind.value if event.reason else None,
    }
    _log.info("%s", text, extra=fields)


def state_label(state: State) -> str:
    """How metrics name the state of an unfinished attempt: open, in_doubt or aborting."""
    return {State.OPEN: "open", State.PREPARED: "in_doubt"}.get(state, state.value.lower())


def reason_label(reason: Reason | None) -> str:
    """How metrics name why an attempt was aborted: the kind, in lower case."""
    return (reason.kind if reason else ReasonKind.FAILED).value.lower()
