"""One row of the commit log. What makes a record a good one stands in ``checks``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from eos.ids import MessageId, TxnId
from eos.protocol.reasons import Reason
from eos.protocol.states import State
from eos.summary import PartitionFigures

RECORD_VERSION: Final = 1
"""The version that this release writes, and the newest that it reads."""

UNWRITTEN: Final = 0
"""``seq`` of a record that was not appended yet; the log counts from 1."""


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A record, with exactly the columns of the log; build one with ``claimed`` or ``opened``,
    and its followers with ``advance``.

    Each record carries all that is known of its attempt, so the newest record of an epoch is
    enough to bring its transaction to an end.

    Attributes:
        record_version: layout of the record.
        sink_id: the sink; one table each.
        query_id: Spark's streaming query id, or ``batch``; None for CLAIMED, like all the
            columns of an epoch below. FAILED has query_id, epoch and reason only.
        epoch: Spark's batch id as text, or a batch job's own key.
        attempt: the n-th transaction opened for this epoch, from 1.
        seq: place in the log: 1, 2, 3 without a gap, the only order; 0 before the append.
        state: what the record says.
        run_id: the run that wrote the record; each CLAIMED brings a fresh one.
        txn: the transaction; columns ``txn_most`` and ``txn_least``.
        ttl_ms: its time to live, at most 24 hours.
        opened_at: when it was opened (UTC).
        service_url: the broker that the writer of the record used; never with credentials.
        receipt_topic: full name; the same in the whole log.
        mark_id: where the mark sits in the receipt topic.
        mark_uuid: what the mark says.
        receipt_id: where the receipt sits; from PREPARED on.
        partitions: what was sent, per topic partition; from PREPARED on.
        records: sum over ``partitions``; None before it is known, 0 for EMPTY.
        bytes: sum over ``partitions``; likewise.
        checksum: sum modulo 2^64 over ``partitions``; likewise.
        reason: why the transaction was aborted, from ABORTING on; why there was none; or who
            decided, and why.
        written_at: the writer's clock (UTC) at the append; None before. For people: order
            comes from ``seq`` alone.
    """

    record_version: int = RECORD_VERSION
    sink_id: str
    query_id: str | None = None
    epoch: str | None = None
    attempt: int | None = None
    seq: int = UNWRITTEN
    state: State
    run_id: str
    txn: TxnId | None = None
    ttl_ms: int | None = None
    opened_at: datetime | None = None
    service_url: str
    receipt_topic: str
    mark_id: MessageId | None = None
    mark_uuid: str | None = None
    receipt_id: MessageId | None = None
    partitions: tuple[PartitionFigures, ...] = ()
    records: int | None = None
    bytes: int | None = None
    checksum: int | None = None
    reason: Reason | None = None
    written_at: datetime | None = None

    @classmethod
    def claimed(
        cls, *, sink_id: str, run_id: str, service_url: str, receipt_topic: str
    ) -> LogRecord:
        """The record that begins a run. ``run_id`` must never have been used in this log."""
        return cls(
            sink_id=sink_id,
            state=State.CLAIMED,
            run_id=run_id,
            service_url=service_url,
            receipt_topic=receipt_topic,
        )

    @classmethod
    def opened(
        cls,
        claim: LogRecord,
        *,
        query_id: str,
        epoch: str,
        attempt: int,
        txn: TxnId,
        ttl_ms: int,
        opened_at: datetime,
        mark_id: MessageId,
        mark_uuid: str,
    ) -> LogRecord:
        """The OPEN record of a new attempt, in the run that ``claim`` began."""
        return cls(
            sink_id=claim.sink_id,
            query_id=query_id,
            epoch=epoch,
            attempt=attempt,
            state=State.OPEN,
            run_id=claim.run_id,
            txn=txn,
            ttl_ms=ttl_ms,
            opened_at=opened_at,
            service_url=claim.service_url,
            receipt_topic=claim.receipt_topic,
            mark_id=mark_id,
            mark_uuid=mark_uuid,
        )

    @classmethod
    def failed(cls, claim: LogRecord, *, query_id: str, epoch: str, reason: Reason) -> LogRecord:
        """The FAILED record of an epoch that got no transaction, in the run of ``claim``."""
        return cls(
            sink_id=claim.sink_id,
            query_id=query_id,
            epoch=epoch,
            state=State.FAILED,
            run_id=claim.run_id,
            service_url=claim.service_url,
            receipt_topic=claim.receipt_topic,
            reason=reason,
        )

    def advance(
        self,
        state: State,
        *,
        claim: LogRecord,
        reason: Reason | None = None,
        receipt_id: MessageId | None = None,
        partitions: tuple[PartitionFigures, ...] | None = None,
    ) -> LogRecord:
        """The next record of the same attempt, not yet appended; everything known is carried on.

        Args:
            state: PREPARED takes ``receipt_id`` and ``partitions`` (totals are computed),
                ABORTING and ABANDONED a ``reason``, and so does ABORTED after PREPARED.
            claim: the newest CLAIMED: its run writes the record.
        """
        record = replace(
            self,
            state=state,
            seq=UNWRITTEN,
            written_at=None,
            run_id=claim.run_id,
            service_url=claim.service_url,
            reason=reason or self.reason,
            receipt_id=receipt_id or self.receipt_id,
        )
        if state is State.EMPTY:
            return replace(record, records=0, bytes=0, checksum=0)
        return record if partitions is None else record._with_figures(partitions)

    def _with_figures(self, partitions: tuple[PartitionFigures, ...]) -> LogRecord:
        return replace(
            self,
            partitions=partitions,
            records=sum(part.records for part in partitions),
            bytes=sum(part.bytes for part in partitions),
            checksum=sum(part.checksum for part in partitions) % 2**64,
        )

    @property
    def key(self) -> tuple[str, str] | None:
        """(query id, epoch), or None for CLAIMED."""
        if self.query_id is None or self.epoch is None:
            return None
        return self.query_id, self.epoch

    def says_the_same(self, other: LogRecord) -> bool:
        """Whether both are one record, their time of writing apart."""
        return replace(self, written_at=None) == replace(other, written_at=None)
