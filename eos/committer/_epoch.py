"""One call for one epoch: its input and result, the times of its steps, why it failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from eos.errors import (
    ConfigurationError,
    DuplicateEpochCall,
    EosError,
    InputError,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.events import EpochEvent, StateChanged, StepEnded
from eos.protocol import LogRecord, Part, Reason, ReasonKind, check_key, epoch_number, is_streaming
from eos.steps import Step


class StepTimer:
    """Starts when it is created; uses a monotonic clock.

    Args:
        publish: takes the events; must neither raise nor wait.
    """

    def __init__(
        self,
        sink_id: str = "",
        query_id: str = "",
        epoch: str = "",
        publish: Callable[[EpochEvent], None] = lambda _: None,
    ) -> None:
        self.attempts = 0
        """Number of transactions that the call has opened."""
        self.last: StateChanged | None = None
        """The newest record of the epoch appended during the call."""
        self._names = sink_id, query_id, epoch
        self._publish = publish
        self._started = self._since = time.monotonic()
        self._current: Step | None = Step.CLAIM
        self._steps: dict[str, float] = {}

    @property
    def duration_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._started

    @property
    def steps_s(self) -> Mapping[str, float]:
        """Seconds in each step so far, by label; the sum over attempts."""
        return dict(self._steps)

    def step_ended(self, step: Step) -> None:
        """``step`` has ended; it began when the previous one ended."""
        self._end(step, is_complete=True)
        self.attempts += step is Step.OPEN
        self._current = _next(step)

    def step_failed(self) -> None:
        """An error has ended the current step, if there is one."""
        if self._current is not None:
            self._end(self._current, is_complete=False)
            self._current = Step.END  # the abort

    def attempt_aborted(self) -> None:
        """The attempt was aborted; another one may follow."""
        self._end(Step.END, is_complete=True)
        self._current = None

    def finished_in_background(self, since: float) -> None:
        """The last step has ended in the background; it began at ``since`` (``time.monotonic``)."""
        self._publish_step(Step.FINISH, time.monotonic() - since, is_complete=True)

    def record_appended(self, event: StateChanged) -> None:
        """A record was appended to the sink's log."""
        _, query_id, epoch = self._names
        if (event.query_id, event.epoch) == (query_id, epoch):
            self.last = event

    def _end(self, step: Step, *, is_complete: bool) -> None:
        now = time.monotonic()
        duration_s, self._since = now - self._since, now
        self._steps[step.label] = self._steps.get(step.label, 0.0) + duration_s
        self._publish_step(step, duration_s, is_complete=is_complete)

    def _publish_step(self, step: Step, duration_s: float, *, is_complete: bool) -> None:
        sink_id, query_id, epoch = self._names
        self._publish(
            StepEnded(
                sink_id=sink_id,
                query_id=query_id,
                epoch=epoch,
                at=datetime.now(UTC),
                step=step,
                duration_s=duration_s,
                is_complete=is_complete,
            )
        )


def _next(step: Step) -> Step | None:
    return next((other for other in Step if other.number == step.number + 1), None)


Reports = Sequence[Sequence[Any]]
"""Results of the writing, per participant: the argument of its ``count``."""

PartsBegun = Callable[[], tuple[Part, ...]]
"""Waits for the parts of an attempt that is being begun."""

PlanWriting = Callable[[PartsBegun], Callable[[], Reports]]
"""Plans the epoch's writing in the attempt of these parts, without touching an output. Returns a
function that writes the rows; when it returns, none of its tasks is running."""


def plan_writing(plan: PlanWriting, parts: PartsBegun) -> Callable[[], Reports]:
    """Call ``plan(parts)``; its error is raised later, when the writing would begin."""
    try:
        return plan(parts)
    except Exception as error:  # not an interrupt: it must not wait for the parts
        failure = error

    def fail() -> Reports:
        raise failure

    return fail


@dataclass(frozen=True)
class EpochResult:
    """Result of an epoch: ``records`` and ``bytes`` are the totals in its outputs.

    ``skipped``: it was committed (or empty) before; None if the log no longer has the counts.
    ``participants``: each output's part; that of a ``PulsarSink`` names its transaction.
    ``attempts``: number of transactions that this call has opened. ``duration_s``: seconds until
    the epoch was readable, or was found to be; ``steps_s``: seconds in each step of ``eos.steps``,
    by its label.
    """

    status: Literal["written", "skipped"]
    records: int | None
    bytes: int | None
    participants: tuple[Part, ...] = field(default=(), repr=False)
    attempts: int = field(default=0, compare=False)
    duration_s: float = field(default=0.0, compare=False)
    steps_s: Mapping[str, float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def txn(self) -> Any:
        """The Pulsar transaction's ``TxnId``; None without one."""
        return next(filter(None, (getattr(part, "txn", None) for part in self.participants)), None)


def check_epoch(query_id: str, epoch: str) -> None:
    """Check that ``epoch`` is a valid name.

    Raises:
        ConfigurationError: it is not; says why.
    """
    try:
        check_key(epoch)
        if is_streaming(query_id):
            epoch_number(query_id, epoch)
    except ValueError as error:
        raise ConfigurationError(f"epoch: {error}.") from None


def result_of(
    status: Literal["written", "skipped"], record: LogRecord | None, timer: StepTimer
) -> EpochResult:
    """Return the result for ``record``, the epoch's last."""
    return EpochResult(
        status,
        record.records if record else None,
        record.bytes if record else None,
        record.participants if record else (),
        attempts=timer.attempts,
        duration_s=timer.duration_s,
        steps_s=timer.steps_s,
    )


NO_RECORDS: Final = Reason(ReasonKind.EMPTY, "the epoch had no records")


def reason_of(error: BaseException) -> Reason:
    """Return the log's reason for a failed epoch."""
    match error:
        case TransactionExpired():
            kind = ReasonKind.EXPIRED
        case TransactionPoisoned():
            kind = ReasonKind.POISONED
        case InputError():
            kind = ReasonKind.INPUT
        case ConfigurationError() | DuplicateEpochCall():
            kind = ReasonKind.FAILED
        case EosError():
            kind = ReasonKind.BROKER
        case _:  # its text may contain a row, unlike that of an error of eos
            return Reason(
                ReasonKind.FAILED, f"{_error_name(error)}; its text is in the driver's log"
            )
    return Reason(kind, error.message)


def _error_name(error: BaseException) -> str:
    """The class of an error, and Spark's error condition of one from the JVM."""
    name = type(error).__name__
    condition = getattr(error, "getCondition", None)
    try:
        found = condition() if callable(condition) else None
    except Exception:  # it asks a JVM that may have ended
        found = None
    return f"{name} ({found})" if isinstance(found, str) else name
