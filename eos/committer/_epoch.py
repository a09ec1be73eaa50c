"""What goes into one epoch's commit and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eos.committer._step_timer import EpochWatch
from eos.errors import ConfigurationError
from eos.protocol import LogRecord, Part, check_key, epoch_number, is_streaming

Reports = Sequence[Sequence[Any]]
"""What the writing has brought back, for each participant: what its ``count`` takes."""

PartsBegun = Callable[[], tuple[Part, ...]]
"""Waits for the parts of an attempt that is being begun."""

PlanWriting = Callable[[PartsBegun], Callable[[], Reports]]
"""Plans the epoch's writing in the attempt that the parts name, and touches no output. What it
returns writes the rows, and comes back when none of its tasks runs."""


def planned(plan: PlanWriting, parts: PartsBegun) -> Callable[[], Reports]:
    """``plan(parts)``; what goes wrong in it comes up when the writing would begin, not before.
    An interrupt comes up at once: who sent it does not wait for what is being begun."""
    try:
        return plan(parts)
    except Exception as error:
        failure = error

    def fail() -> Reports:
        raise failure

    return fail


@dataclass(frozen=True)
class EpochResult:
    """What became of an epoch: ``records`` and ``bytes`` are those that its outputs hold.

    ``skipped``: it was committed (or empty) before; None where the log has dropped the counts.
    ``participants``: what each output has of it; those of a ``PulsarSink`` name its transaction.
    ``attempts``: how many transactions this call has opened. ``duration_s``: seconds until it was
    readable, or found; ``steps_s``: seconds in each step of ``eos.steps``, by its label.
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
        """The Pulsar transaction's ``TxnId``; None when it has none."""
        return next(filter(None, (getattr(part, "txn", None) for part in self.participants)), None)


def check_epoch(query_id: str, epoch: str) -> None:
    """Nothing, when an epoch may have this name.

    Raises:
        ConfigurationError: it may not; says why.
    """
    try:
        check_key(epoch)
        if is_streaming(query_id):
            epoch_number(query_id, epoch)
    except ValueError as error:
        raise ConfigurationError(f"epoch: {error}.") from None


def result_of(
    status: Literal["written", "skipped"], record: LogRecord | None, watch: EpochWatch
) -> EpochResult:
    """The result that ``record``, the epoch's last, stands for."""
    return EpochResult(
        status,
        record.records if record else None,
        record.bytes if record else None,
        record.participants if record else (),
        attempts=watch.attempts,
        duration_s=watch.duration_s,
        steps_s=watch.steps_s,
    )
