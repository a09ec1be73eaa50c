"""Tables with a topic's history, read by a new query without a broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
from pyspark.sql.types import StructType

from eos.sources._history_files import read_history
from eos.sources._history_table import HistoryTable
from eos.sources._offsets import HistorySpan
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format, schema_of_source
from eos.sources._value_format import ValueFormat

TOPIC = "persistent://public/default/t"
TIME = pa.timestamp("us", tz="UTC")


def options(path: Path, **more: Any) -> SourceOptions:
    return SourceOptions.parse(
        {"serviceUrl": "pulsar://localhost:1", "topic": TOPIC, "history": str(path), **more}
    )


def form(*names: str) -> RowFormat:
    values = ValueFormat(None, None, options(Path("/t")).mode)
    known = schema_of_source(values, metadata=True)
    return row_format(values, StructType([one for one in known if one.name in names]))


def rows(first: int, *times: datetime, topic: str | None = TOPIC) -> pa.Table:
    """Return rows with the names and types of StreamNative's connector."""
    numbers = range(first, first + len(times))
    ids = [pulsar.MessageId(-1, 5, n, 0).serialize() for n in numbers]
    return pa.table(
        {
            "value": [b"%d" % n for n in numbers],
            "__topic": pa.array([topic] * len(times), pa.string()),
            "__messageId": ids,
            "__eventTime": pa.array(times, TIME),
        }
    )


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def begun(path: Path, *names: str, **more: Any) -> HistorySpan:
    """Return the first span of a new query that reads these columns."""
    table = HistoryTable.for_new_query(options(path, **more))
    table.check_columns(form("value", *names))
    return replace(table.span(), topics=tuple(sorted(table.last_messages())))


def read(path: Path, *names: str, **more: Any) -> list[dict[str, Any]]:
    """Return all rows of a new query's history, ordered by value."""
    return read_again(path, begun(path, *names, **more), *names)


def read_again(path: Path, span: HistorySpan, *names: str) -> list[dict[str, Any]]:
    """Return those of a running query."""
    chosen, wanted = options(path), form("value", *names)
    table = HistoryTable.for_running_query(chosen, span)
    ranges = table.ranges(span.followed_by(span.count))
    found = [row for one in ranges for part in read_history(chosen, wanted, one)
             for row in part.to_pylist()]  # fmt: skip
    return sorted(found, key=lambda row: row["value"])
