"""What a message becomes in Spark, where the message is odd."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eos.ids import TopicName
from eos.schemas.reading import SchemaVersion
from sources._columns import RowFormat
from sources._values import Mode, ValueFormat

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
END_OF_9999 = 253_402_300_799_999
YEAR_ONE = -62_135_596_800_000


def no_version(_: bytes) -> SchemaVersion:
    raise AssertionError


def made(name: str, **columns: pa.Array) -> list[object]:
    form = RowFormat(ValueFormat(None, None, Mode.FAILFAST), (name,))
    batch = pa.RecordBatch.from_arrays([columns[need] for need in form.needs], list(form.needs))
    return form.rows(batch, TOPIC, no_version).column(0).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("sent", [END_OF_9999 + 1, 2**63 - 1, -(2**63), YEAR_ONE - 1])
def test_a_time_that_no_calendar_has_is_null_and_ends_no_query(sent: int, caplog) -> None:
    times = pa.array([0, None, END_OF_9999, sent], pa.int64()).view(pa.timestamp("ms", tz="UTC"))
    assert made("__eventTime", event_time=times) == [0, None, END_OF_9999 * 1000, None]
    assert f"has the event_time {sent}" in caplog.text


def test_a_schema_version_is_the_brokers_number_and_anything_else_is_null() -> None:
    versions = pa.array([b"\0" * 7 + b"\5", None, b"\1", b""], pa.binary())
    assert made("__schemaVersion", schema_version=versions) == [5, None, None, None]


def test_a_partition_knows_its_number() -> None:
    assert made("__partition", entry=pa.array([1, 2])) == [3, 3]
