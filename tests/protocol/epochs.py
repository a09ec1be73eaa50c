"""Builders of valid records; tests make invalid ones from them with ``dataclasses.replace``."""

from __future__ import annotations

import uuid
from dataclasses import fields, replace
from datetime import UTC, datetime

from eos.ids import MessageId, TxnId
from eos.protocol import History, LogRecord, Reason, ReasonKind, State
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.task_report import PartitionFigures

NOW = datetime(2026, 11, 20, 12, 30, 15, 123456, tzinfo=UTC)
QUERY = "6f2c7a52-9c3e-4b5f-8d0a-1b2c3d4e5f60"
MARK_ID = MessageId(17, 4)
RECEIPT_ID = MessageId(17, 9)
FAILED = Reason(ReasonKind.FAILED, "the query stopped")
EMPTY = Reason(ReasonKind.EMPTY, "no records")
EXPIRED = Reason(ReasonKind.EXPIRED, "the receipt is proved absent")

FIGURES = (
    PartitionFigures(
        topic="persistent://public/default/orders-partition-0",
        producers=("standalone-0-1", "standalone-0-2"),
        records=3,
        bytes=300,
        checksum=2**64 - 1,
        first_id=MessageId(20, 0, 0, 0),
        last_id=MessageId(20, 1, 0, 1),
    ),
    PartitionFigures(
        topic="persistent://public/default/orders-partition-1",
        producers=("standalone-0-3",),
        records=1,
        bytes=0,
        checksum=3,
        first_id=MessageId(21, 0, 1, 0),
        last_id=MessageId(21, 0, 1, 0),
    ),
)


def claim(run_id: str = "run-1", *, sink_id: str = "orders") -> LogRecord:
    return LogRecord.claimed(
        sink_id=sink_id,
        run_id=run_id,
        participants=[
            PulsarPart(
                service_url="pulsar://localhost:6650",
                receipt_topic=f"persistent://public/default/__eos-receipts-{sink_id}-1",
            )
        ],
    )


def opened(
    claimed: LogRecord,
    epoch: str = "0",
    *,
    query_id: str = QUERY,
    attempt: int = 1,
    least: int = 7,
    planned_at: datetime | None = None,
) -> LogRecord:
    return LogRecord.opened(
        claimed,
        query_id=query_id,
        epoch=epoch,
        attempt=attempt,
        opened_at=NOW,
        planned_at=planned_at,
        participants=[
            replace(
                pulsar_part(claimed),
                txn=TxnId(3, least),
                ttl_ms=600_000,
                mark_id=MARK_ID,
                mark_uuid=str(uuid.uuid4()),
            )
        ],
    )


_OF_PULSAR = frozenset(field.name for field in fields(PulsarPart))


def changed(record: LogRecord, **changes: object) -> LogRecord:
    """The record with other values in it, or in its Pulsar part."""
    part = {name: value for name, value in changes.items() if name in _OF_PULSAR}
    rest = {name: value for name, value in changes.items() if name not in _OF_PULSAR}
    parts = (replace(pulsar_part(record), **part),) if part else record.participants
    return replace(record, participants=parts, **rest)


def step(
    record: LogRecord,
    state: State,
    claimed: LogRecord,
    reason: Reason | None = None,
    *,
    partitions: tuple[PartitionFigures, ...] = FIGURES,
) -> LogRecord:
    """The next record of the same attempt."""
    if state is State.PREPARED:
        part = replace(pulsar_part(record), receipt_id=RECEIPT_ID, partitions=partitions)
        return record.advance(state, claim=claimed, participants=[part])
    return record.advance(state, claim=claimed, reason=reason)


def committed_epoch(claimed: LogRecord, epoch: str = "0", *, query_id: str = QUERY):
    """OPEN, PREPARED and COMMITTED of one epoch."""
    first = opened(claimed, epoch, query_id=query_id)
    prepared = step(first, State.PREPARED, claimed)
    return [first, prepared, step(prepared, State.COMMITTED, claimed)]


def at(record: LogRecord, seq: int) -> LogRecord:
    """The record as the log would return it."""
    return replace(record, seq=seq, written_at=NOW)


def numbered(records) -> list[LogRecord]:
    return [at(record, seq) for seq, record in enumerate(records, start=1)]


def history_of(*records: LogRecord) -> History:
    return History.of(records[0].sink_id, numbered(records))


def add(history: History, record: LogRecord) -> None:
    history.append(at(record, history.last_seq + 1))
