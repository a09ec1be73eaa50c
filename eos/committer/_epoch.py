"""Input and result of one epoch's commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eos.committer._step_timer import StepTimer
from eos.errors import ConfigurationError
from eos.protocol import LogRecord, Part, check_key, epoch_number, is_streaming

Reports = Sequence[Sequence[Any]]
"""Results of the writing, per participant: the argument of its ``count``."""

PartsBegun = Callable[[], tuple[Part, ...]]
"""Waits for the parts of an attempt that is being begun."""

PlanWriting = Callable[[PartsBegun], Callable[[], Reports]]
"""Plans the epoch's writing in the attempt of these parts, without touching an output. Returns a
function that writes the rows; when it returns, none of its tasks is running."""


def plan_writing(plan: PlanWriting, parts: PartsBegun) -> Callable[[], Reports]:
    """Call ``plan(parts)``; its error is raised later, when the writing would begin. An interrupt
    is raised at once: it must not wait for the parts that are being begun."""
    try:
        return plan(parts)
    except Exception as error:
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
