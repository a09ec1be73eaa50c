"""The table's columns, and the conversion between records and rows.

Ids of messages are text, ``ledger:entry:partition:batch_index``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from eos.ids import MessageId
from eos.participant import kind_of
from eos.protocol import RECORD_VERSION, LogRecord, Part, Reason, State, UnknownPart
from eos.task_report import PartitionFigures

# Delta has no uint64. As an int64 SQL would show half of all checksums as negative.
_UINT64: Final = pa.decimal128(20, 0)
_UTC_TIME: Final = pa.timestamp("us", "UTC")

_PARTITION: Final = pa.struct(
    [
        ("topic", pa.string()),
        ("producers", pa.list_(pa.string())),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("checksum", _UINT64),
        ("first_id", pa.string()),
        ("last_id", pa.string()),
    ]
)

_PARTICIPANT: Final = pa.struct(
    [
        ("kind", pa.string()),
        ("identity", pa.string()),
        ("output", pa.string()),
        ("can_expire", pa.bool_()),
        ("records", pa.int64()),
        ("bytes", pa.int64()),
        ("payload", pa.string()),
    ]
)

SCHEMA: Final = pa.schema(
    [
        pa.field("record_version", pa.int32(), nullable=False),
        pa.field("sink_id", pa.string(), nullable=False),
        pa.field("query_id", pa.string()),
        pa.field("epoch", pa.string()),
        pa.field("attempt", pa.int32()),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("txn_most", pa.int64()),
        pa.field("txn_least", pa.int64()),
        pa.field("ttl_ms", pa.int64()),
        pa.field("opened_at", _UTC_TIME),
        pa.field("service_url", pa.string()),
        pa.field("receipt_topic", pa.string()),
        pa.field("mark_id", pa.string()),
        pa.field("mark_uuid", pa.string()),
        pa.field("receipt_id", pa.string()),
        pa.field("partitions", pa.list_(_PARTITION), nullable=False),
        pa.field("records", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("checksum", _UINT64),
        pa.field("reason", pa.string()),
        pa.field("written_at", _UTC_TIME, nullable=False),
        pa.field("participants", pa.list_(_PARTICIPANT)),
        pa.field("planned_at", _UTC_TIME),
    ]
)
"""Columns of the log, in order. ``participants`` came with version 2. The Pulsar participant has
its columns since version 1; people query them. The others have their payload as JSON."""

_PULSAR: Final = "pulsar"
_ENVELOPE: Final = (
    "record_version", "sink_id", "query_id", "epoch", "attempt", "run_id", "opened_at",
    "planned_at", "records", "bytes", "written_at",
)  # fmt: skip


def to_row(record: LogRecord) -> dict[str, Any]:
    """Return the record's row, by column."""
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names)
    row |= {name: getattr(record, name) for name in _ENVELOPE}
    row |= {
        "seq": record.seq,
        "state": record.state.value,
        "checksum": _decimal(record.checksum),
        "reason": str(record.reason) if record.reason else None,
    }
    for part in record.participants:
        row |= part.columns()
    row["partitions"] = [_partition_row(part) for part in row["partitions"] or ()]
    if record.record_version > 1:
        row["participants"] = [_participant_row(part) for part in record.participants]
    return row


def _participant_row(part: Part) -> dict[str, Any]:
    return {
        "kind": part.kind,
        "identity": part.identity,
        "output": part.output,
        "can_expire": part.can_expire,
        "records": part.records,
        "bytes": part.bytes,
        "payload": json.dumps(part.payload()),
    }


def to_table(*records: LogRecord) -> pa.Table:
    """Return the records as an Arrow table, one row each."""
    return pa.Table.from_pylist([to_row(record) for record in records], schema=SCHEMA)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows; times are in UTC, without a zone."""
    # For a time with a zone pyarrow imports pandas: 0.2 s of a new process.
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table.column(index).cast(pa.timestamp("us"))
            table = table.set_column(index, field.name, times)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def deduplicate(rows: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """Remove duplicates from sorted rows; also return their number."""
    found = [row for n, row in enumerate(rows) if not n or row != rows[n - 1]]
    return found, len(rows) - len(found)


class NewerRecord(ValueError):
    """A row written by a newer release."""


def from_row(row: Mapping[str, Any]) -> LogRecord:
    """Return the record of a row.

    Raises:
        ValueError: a column is missing or holds an impossible value, or the row was written by a
            newer release (``NewerRecord``).
    """
    try:
        # First: nothing else can be relied on in a record of another version.
        version = int(row["record_version"])
        if version > RECORD_VERSION:
            raise NewerRecord(
                f"record_version {version} was written by a newer release "
                f"(this one knows {RECORD_VERSION}): upgrade it"
            )
        return _record(row, version)
    except KeyError as error:
        raise ValueError(f"column {error} is missing") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"a column has the wrong type: {error}") from error


def _record(row: Mapping[str, Any], version: int) -> LogRecord:
    return LogRecord(
        record_version=version,
        sink_id=row["sink_id"],
        query_id=row["query_id"],
        epoch=row["epoch"],
        attempt=row["attempt"],
        seq=int(row["seq"]),
        state=State(row["state"]),
        run_id=row["run_id"],
        opened_at=_utc(row["opened_at"]),
        planned_at=_utc(row.get("planned_at")),
        participants=_participants(row, version),
        records=row["records"],
        bytes=row["bytes"],
        checksum=_int(row["checksum"]),
        reason=None if row["reason"] is None else Reason.parse(row["reason"]),
        written_at=_utc(row["written_at"]),
    )


def _participants(row: Mapping[str, Any], version: int) -> tuple[Part, ...]:
    """Version 1 had only one participant, with its payload in columns."""
    columns = {**row, "partitions": [_partition(part) for part in row["partitions"]]}
    if version == 1:
        return (_part({"kind": _PULSAR, "payload": "{}"}, columns),)
    return tuple(_part(entry, columns) for entry in row["participants"])


def _part(entry: Mapping[str, Any], columns: Mapping[str, Any]) -> Part:
    kind, payload = kind_of(entry["kind"]), json.loads(entry["payload"])
    if kind is None:
        return UnknownPart.parse(payload, entry)
    return kind.part.parse(payload, columns)


def _partition_row(part: PartitionFigures) -> dict[str, Any]:
    return {
        "topic": part.topic,
        "producers": list(part.producers),
        "records": part.records,
        "bytes": part.bytes,
        "checksum": _decimal(part.checksum),
        "first_id": str(part.first_id),
        "last_id": str(part.last_id),
    }


def _partition(row: Mapping[str, Any]) -> PartitionFigures:
    return PartitionFigures(
        topic=row["topic"],
        producers=tuple(row["producers"]),
        records=int(row["records"]),
        bytes=int(row["bytes"]),
        checksum=int(row["checksum"]),
        first_id=MessageId.parse(row["first_id"]),
        last_id=MessageId.parse(row["last_id"]),
    )


def _decimal(value: int | None) -> Decimal | None:
    return None if value is None else Decimal(value)


def _int(value: Decimal | None) -> int | None:
    return None if value is None else int(value)


def _utc(value: datetime | None) -> datetime | None:
    return None if value is None else value.replace(tzinfo=UTC)
