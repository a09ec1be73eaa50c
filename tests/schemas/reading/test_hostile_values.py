"""Arbitrary bytes as keys and values, with all kinds of schemas: rows or an EosError, quickly."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import EosError
from eos.schemas import AvroSchema, JsonSchema, KeyValueSchema, PrimitiveSchema, ProtobufSchema
from eos.schemas.reading import SchemaVersion, value_reader
from eos.wire.commands import SchemaInfo, SchemaType
from tests.schemas.reading.reads import has, logical, record
from tests.schemas.reading.test_protobuf_reader import COLUMN, FULL

DEFINITION: Final = record(
    has("id", "long"),
    has("text", ["null", "string"]),
    has("some", {"type": "array", "items": ["null", "int"]}),
    has("by", {"type": "map", "values": record(has("a", "double"), name="inner")}),
    has("kind", {"type": "enum", "name": "k", "symbols": ["A", "B"]}),
    has("sum", logical("bytes", "decimal", precision=9, scale=2)),
    has("day", logical("int", "date")),
    has("hash", {"type": "fixed", "name": "f", "size": 4}),
)
PRIMITIVES: Final = [
    SchemaType.STRING, SchemaType.BOOLEAN, SchemaType.INT8, SchemaType.INT16, SchemaType.INT32,
    SchemaType.INT64, SchemaType.FLOAT, SchemaType.DOUBLE, SchemaType.DATE, SchemaType.TIME,
    SchemaType.TIMESTAMP, SchemaType.INSTANT, SchemaType.LOCAL_DATE, SchemaType.LOCAL_TIME,
    SchemaType.LOCAL_DATE_TIME,
]  # fmt: skip
SMALL: Final = pa.struct([("n", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.int32()))])
ROW: Final = {"n": 7, "s": "ä", "l": [1, 2]}
PARTS: Final[dict[str, Callable[[], Any]]] = {
    "avro": AvroSchema,
    "json": JsonSchema,
    "string": lambda: PrimitiveSchema("string"),
}


def info(kind: SchemaType) -> SchemaInfo:
    return SchemaInfo(type=kind, data=json.dumps(DEFINITION).encode())


def pair(key: str, value: str, encoding: str) -> SchemaInfo:
    kinds = {one: pa.string() if one == "string" else SMALL for one in PARTS}
    kind = pa.struct([("key", kinds[key]), ("value", kinds[value])])
    return KeyValueSchema(PARTS[key](), PARTS[value](), encoding=encoding).writer(kind).info


PROTOBUF: Final = ProtobufSchema().writer(COLUMN)
INFOS: Final[dict[str, SchemaInfo]] = {
    "avro": info(SchemaType.AVRO),
    "json": info(SchemaType.JSON),
    "protobuf": PROTOBUF.info,
    **{kind.name.lower(): SchemaInfo(type=kind) for kind in PRIMITIVES},
    **{
        f"{key} and {value}, {encoding}": pair(key, value, encoding)
        for key in PARTS
        for value in PARTS
        for encoding in ("inline", "separated")
    },
}
WHOLE: Final = [
    PROTOBUF.encode(pa.array([FULL], COLUMN))[0].as_py(),
    AvroSchema().writer(SMALL).encode(pa.array([ROW], SMALL))[0].as_py(),
    json.dumps(ROW).encode(),
    b"\0\0\0\4\2\4ab" + b"\0\0\0\3\2\2x",
]
SIZES: Final = st.sampled_from([0, 1, 2, 4, 8, 2**31 - 1, 2**31, 2**32 - 1])
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "text", "some", "by", "n", "s", "l"]), inner)
    ),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A value that was truncated, or changed in some places."""
    data = bytearray(draw(st.sampled_from(WHOLE)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=6))
    return bytes(data)


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    """The bytes of a pair, with sizes that may be wrong."""
    parts = draw(st.lists(st.tuples(SIZES, st.binary(max_size=6)), max_size=3))
    return b"".join(size.to_bytes(4, "big") + part for size, part in parts)


VALUES: Final = st.none() | st.one_of(
    st.binary(max_size=40), damaged(), framed(), JSON.map(lambda one: json.dumps(one).encode())
)


@pytest.mark.parametrize("name", INFOS)
@settings(max_examples=6, deadline=None)
@given(rows=st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=5))
def test_any_bytes_are_rows_or_failures_with_their_reasons(name, rows):
    reader = value_reader(SchemaVersion(INFOS[name], 0))
    values, keys = (pa.array(list(column), pa.binary()) for column in zip(*rows, strict=True))
    try:
        found = reader.decode(values, keys)
    except EosError:
        return
    found.columns.validate(full=True)
    assert (found.columns.schema, found.columns.num_rows) == (reader.schema, len(rows))
    failed = found.failures.rows.tolist()
    assert all(found.failures.reasons)
    for row in failed:
        assert all(column[row].as_py() is None for column in found.columns.columns)
    assert failed == sorted(set(failed))
    # A malformed value does not affect others: each gives the same result alone.
    for row in range(len(rows)):
        alone = reader.decode(values.slice(row, 1), keys.slice(row, 1))
        assert (len(alone.failures) > 0) == (row in failed)
        assert alone.columns.equals(found.columns.slice(row, 1), check_metadata=False) or has_nan(
            alone.columns
        )


def has_nan(columns: pa.RecordBatch) -> bool:
    return "nan" in repr(columns.to_pylist())
