"""What goes into one epoch's commit and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from eos.errors import ConfigurationError
from eos.protocol import LogRecord, Part, check_key, epoch_number, is_streaming

Reports = Sequence[Sequence[Any]]
"""What the writing has brought back, for each participant: what its ``count`` takes."""

PlanWriting = Callable[[tuple[Part, ...]], Callable[[], Reports]]
"""Plans the epoch's writing in the attempt that the parts name, and touches nothing. What it
returns writes the rows, and comes back when none of its tasks runs."""


def planned(plan: PlanWriting, parts: tuple[Part, ...]) -> Callable[[], Reports]:
    """``plan(parts)``; what goes wrong in it comes up when the writing would begin, not before."""
    try:
        return plan(parts)
    except BaseException as error:
        failure = error

    def fail() -> Reports:
        raise failure

    return fail


@dataclass(frozen=True)
class EpochResult:
    """What became of an epoch: ``records`` and ``bytes`` are those that its outputs hold.

    ``skipped``: it was committed (or empty) before; None where the log has dropped the counts.
    ``participants``: what each output has of it; those of a ``PulsarSink`` name its transaction.
    """

    status: Literal["written", "skipped"]
    records: int | None
    bytes: int | None
    participants: tuple[Part, ...] = field(default=(), repr=False)

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


def result_of(status: Literal["written", "skipped"], record: LogRecord | None) -> EpochResult:
    """The result that ``record``, the epoch's last, stands for."""
    if record is None:
        return EpochResult(status, None, None)
    return EpochResult(status, record.records, record.bytes, record.participants)
