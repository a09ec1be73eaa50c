"""Single values, in the format of the Java client."""

from __future__ import annotations

import datetime
import struct
from typing import Any

import pyarrow as pa
import pytest

from eos.schemas import PrimitiveSchema
from eos.wire.commands import SchemaType
from tests.schemas.reading.reads import decode, reasons, version

UTC = datetime.UTC
MOMENT = datetime.datetime(2026, 11, 20, 12, 0, 0, 123000)
MILLIS = int(MOMENT.replace(tzinfo=UTC).timestamp() * 1000)
DAY = (MOMENT.date() - datetime.date(1970, 1, 1)).days
NANOS = (12 * 3600 * 10**9) + 123_456_789


@pytest.mark.parametrize(
    ("kind", "data", "wanted"),
    [
        (SchemaType.NONE, b"\xff\x00", b"\xff\x00"),
        (SchemaType.STRING, "\u00e4".encode(), "\u00e4"),
        (SchemaType.STRING, b"", ""),
        (SchemaType.BOOLEAN, b"\x01", True),
        (SchemaType.BOOLEAN, b"\x00", False),
        (SchemaType.INT8, b"\xff", -1),
        (SchemaType.INT16, struct.pack(">h", -300), -300),
        (SchemaType.INT32, struct.pack(">i", -70000), -70000),
        (SchemaType.INT64, struct.pack(">q", -(2**40)), -(2**40)),
        (SchemaType.FLOAT, struct.pack(">f", 0.5), 0.5),
        (SchemaType.DOUBLE, struct.pack(">d", 0.1), 0.1),
        (SchemaType.DATE, struct.pack(">q", MILLIS), MOMENT.date()),
        (SchemaType.DATE, struct.pack(">q", -1), datetime.date(1969, 12, 31)),
        (SchemaType.TIMESTAMP, struct.pack(">q", MILLIS), MOMENT.replace(tzinfo=UTC)),
        (SchemaType.TIME, struct.pack(">q", 5), 5),
        (SchemaType.LOCAL_TIME, struct.pack(">q", 5), 5),
        (SchemaType.INSTANT, struct.pack(">qi", MILLIS // 1000, 123456789),
         MOMENT.replace(microsecond=123456, tzinfo=UTC)),
        (SchemaType.LOCAL_DATE, struct.pack(">q", DAY), MOMENT.date()),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", DAY, NANOS),
         MOMENT.replace(microsecond=123456)),
    ],
)  # fmt: skip
def test_a_value_is_read_next_to_nulls_and_values_of_another_length(kind, data, wanted):
    found = decode(version(kind), [data, None, data])
    assert found.columns.to_pydict() == {"value": [wanted, None, wanted]}
    assert reasons(found) == {}
    if kind in (SchemaType.NONE, SchemaType.STRING):
        return
    found = decode(version(kind), [data, data + b"\x00", b"", data[1:], data])
    assert found.columns.to_pydict() == {"value": [wanted, None, None, None, wanted]}
    assert reasons(found) == dict.fromkeys((1, 2, 3), f"The value is not {len(data)} bytes long.")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (SchemaType.STRING, b"\xff"),
        (SchemaType.BOOLEAN, b"\x02"),
        (SchemaType.DATE, struct.pack(">q", 2**62)),
        (SchemaType.TIMESTAMP, struct.pack(">q", -(2**63))),
        (SchemaType.INSTANT, struct.pack(">qi", 2**60, 0)),
        (SchemaType.INSTANT, struct.pack(">qi", 0, 10**9)),
        (SchemaType.LOCAL_DATE_TIME, struct.pack(">qq", 0, -1)),
    ],
)
def test_an_out_of_range_value_fails_alone(kind, data):
    found = decode(version(kind), [data, None])
    assert found.columns.to_pydict() == {"value": [None, None]}
    assert list(reasons(found)) == [0]


COLUMNS: dict[str, pa.Array] = {
    "string": pa.array(["a", None, ""]),
    "boolean": pa.array([True, None, False]),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "int16": pa.array([-(2**15), None, 5], pa.int16()),
    "int32": pa.array([-(2**31), None, 5], pa.int32()),
    "int64": pa.array([-(2**63), None, 5], pa.int64()),
    "float": pa.array([0.5, None, float("inf")], pa.float32()),
    "double": pa.array([0.1, None, -0.0], pa.float64()),
    "date": pa.array([-1, None, DAY], pa.int32()).cast(pa.date32()),
    "timestamp": pa.array([-1000, None, MILLIS * 1000], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_written_values_are_read_back(name):
    column = COLUMNS[name]
    data = PrimitiveSchema(name).writer(column.type).encode(column)
    values: list[Any] = data.cast(pa.binary()).to_pylist()
    found = decode(None, values, PrimitiveSchema(name))
    assert found.columns["value"].equals(column)
    assert reasons(found) == {}
