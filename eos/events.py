"""Events of an epoch while it runs: for the log, metrics, traces and users' listeners.

An event is a plain value: names, numbers and states, never a row, a secret or a handle.
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
    """The outcome of one call for one epoch."""

    COMMITTED = "committed"
    """Written by this call, and readable."""
    EMPTY = "empty"
    """Done: the epoch had no rows."""
    SKIPPED = "skipped"
    """Written by an earlier call."""
    ABORTED = "aborted"
    """All attempts were aborted: nothing is readable, and the call raised an error."""
    FAILED = "failed"
    """The call raised an error before an attempt was opened."""
    IN_DOUBT = "in_doubt"
    """The outcome of an attempt can't be proved now; none was assumed."""
    FENCED = "fenced"
    """Another driver holds the sink's claim."""


@dataclass(frozen=True)
class UnfinishedAttempt:
    """An attempt without an end in the commit log. ``age_s``: seconds since it was opened."""

    state: State
    age_s: float


@dataclass(frozen=True)
class WrittenRows:
    """The rows of an attempt in one output. ``kind``: the participant's; ``output``: its name."""

    kind: str
    output: str
    records: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class EpochEvent:
    """An event of a sink's epoch; ``at`` is the driver's time (UTC)."""

    sink_id: str
    query_id: str | None
    epoch: str | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class EpochStarted(EpochEvent):
    """The sink was called for an epoch."""


@dataclass(frozen=True, kw_only=True)
class StepEnded(EpochEvent):
    """A step of ``eos.steps`` has ended, after ``duration_s`` seconds.

    Each step begins when the previous one ends: their durations add up to that of the call.
    ``is_complete``: False if an error ended the step.
    """

    step: Step
    duration_s: float
    is_complete: bool = True


@dataclass(frozen=True, kw_only=True)
class StateChanged(EpochEvent):
    """A record was appended to the commit log.

    Attributes:
        query_id, epoch, attempt: None for CLAIMED, which belongs to the sink; FAILED has no
            attempt.
        state: the record's state.
        run_id: the run that appended it.
        transaction: the attempt's transaction id at the broker, if any.
        written: the attempt's rows by output, from PREPARED on.
        reason: why it was aborted or failed; contains no row data.
        unfinished: all attempts of the sink without an end in the log.
        owed: the number of epochs that were attempted and are neither written nor abandoned.
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
        """Return the event of ``record``, the last one of ``history``."""
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
    """The sink's call for an epoch has ended, after ``duration_s`` seconds.

    Attributes:
        outcome: the outcome of the call.
        steps_s: seconds of each step, by label; the sum over all attempts, without a ``finish``
            that runs later.
        attempts: the number of transactions that this call opened.
        records, bytes: totals of the epoch in all outputs; None if unknown.
        transaction: the last attempt's transaction id at the broker, if any.
        reason: why it failed, or None; contains no row data.
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
    """Base class of listeners: override the methods of interest and pass an object to a sink.

    Each listener has its own thread, which delivers events in order, in the context (contextvars)
    of the sink's caller, if any. An epoch never waits for it. Its errors are logged; if it blocks
    until 1,000 events are pending, later events are dropped with a warning.
    """

    def on_epoch_started(self, event: EpochStarted) -> None:
        """The sink was called for an epoch."""

    def on_step_ended(self, event: StepEnded) -> None:
        """One of the ten steps has ended."""

    def on_state_changed(self, event: StateChanged) -> None:
        """A record was appended to the commit log."""

    def on_epoch_ended(self, event: EpochEnded) -> None:
        """The sink's call has ended. In a stream, COMMITTED is appended and reported later."""


def dispatch(listener: EpochListener, event: EpochEvent) -> None:
    """Call the method of ``listener`` for ``event``; its errors are raised."""
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
    """Return the attempts without an end in ``history``; ``now``: UTC."""
    return tuple(
        UnfinishedAttempt(record.state, max(0.0, (now - record.opened_at).total_seconds()))
        for record in history.unfinished
        if record.opened_at is not None
    )


def log_state(event: StateChanged) -> None:
    """Log one line at INFO in the driver's log, with the same facts as fields of the record."""
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
    """Return a metric's label for the state of an unfinished attempt: open, in_doubt, aborting."""
    return {State.OPEN: "open", State.PREPARED: "in_doubt"}.get(state, state.value.lower())


def reason_label(reason: Reason | None) -> str:
    """Return a metric's label for the reason of an abort: its kind, in lower case."""
    return (reason.kind if reason else ReasonKind.FAILED).value.lower()
