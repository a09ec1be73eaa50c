"""What goes into one epoch's commit and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from eos.committer.half import Begun
from eos.errors import ConfigurationError
from eos.ids import TxnId
from eos.protocol import LogRecord, check_key, epoch_number, is_streaming
from eos.summary import TaskSummary

Written = Sequence[TaskSummary]
"""What the writing half brings back from Spark for one attempt."""

Plan = Callable[[Begun], Callable[[], Written]]
"""Plans the epoch's writing in the given transaction, and touches nothing. What it returns writes
the rows, and comes back when none of its tasks runs."""


def planned(plan: Plan, begun: Begun) -> Callable[[], Written]:
    """``plan(begun)``; what goes wrong in it comes up when the writing would begin, not before."""
    try:
        return plan(begun)
    except BaseException as error:
        failure = error

    def fail() -> Written:
        raise failure

    return fail


@dataclass(frozen=True)
class EpochResult:
    """What became of an epoch: ``records`` and ``bytes`` are those that it holds in the topics.

    ``skipped``: it was committed (or empty) before; None where the log has dropped the counts.
    """

    status: Literal["written", "skipped"]
    records: int | None
    bytes: int | None
    txn: TxnId | None


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
        return EpochResult(status, None, None, None)
    return EpochResult(status, record.records, record.bytes, record.txn)
