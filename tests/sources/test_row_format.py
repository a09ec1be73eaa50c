"""Odd messages as rows of Spark."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.ids import TopicName
from eos.schemas.reading import SchemaVersion
from eos.sources._row_format import RowFormat, check_storable
from eos.sources._spark_columns import row_format, schema_of_source
from eos.sources._value_format import Mode, ValueFormat
from eos.wire.avro import _avro_cursor
from eos.wire.commands import SchemaInfo, SchemaType

TOPIC = TopicName.parse("persistent://public/default/t-partition-3")
END_OF_9999 = 253_402_300_799_999
YEAR_ONE = -62_135_596_800_000


def no_version(_: bytes) -> SchemaVersion:
    raise AssertionError


def made(name: str, **columns: pa.Array) -> list[object]:
    form = RowFormat(ValueFormat(None, None, Mode.FAILFAST), (name,))
    batch = pa.RecordBatch.from_arrays([columns[need] for need in form.needs], list(form.needs))
    (rows,) = form.rows(batch, TOPIC, no_version)
    return rows.column(0).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("sent", [END_OF_9999 + 1, 2**63 - 1, -(2**63), YEAR_ONE - 1])
def test_a_time_out_of_range_is_null(sent: int, caplog) -> None:
    times = pa.array([0, None, END_OF_9999, sent], pa.int64()).view(pa.timestamp("ms", tz="UTC"))
    assert made("__eventTime", event_time=times) == [0, None, END_OF_9999 * 1000, None]
    assert f"has the event_time {sent}" in caplog.text


def test_a_schema_version_is_a_number_or_null() -> None:
    versions = pa.array([b"\0" * 7 + b"\5", None, b"\1", b"", b"\xff" * 8], pa.binary())
    assert made("__schemaVersion", schema_version=versions) == [5, None, None, None, -1]


def test_a_partition_has_its_number() -> None:
    assert made("__partition", entry=pa.array([1, 2])) == [3, 3]


def record(*names: str) -> ValueFormat:
    fields = [{"name": name, "type": "string"} for name in names]
    data = json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    written = SchemaVersion(SchemaInfo(type=SchemaType.AVRO, data=data), 0)
    return ValueFormat(written, None, Mode.FAILFAST)


def test_a_field_hides_a_message_column_unless_that_is_requested() -> None:
    values = record("id", "__key", "__op")
    assert schema_of_source(values).names == ["id", "__key", "__op"]
    assert schema_of_source(values, metadata=["__topic"]).names == [
        "id",
        "__key",
        "__op",
        "__topic",
    ]
    chosen = StructType([StructField(name, StringType()) for name in ("__key", "__topic")])
    form = row_format(values, chosen)
    assert (form.fields, set(form.needs)) == (("__key",), set(values.needs))
    for clash in (values, record("__KEY")):
        with pytest.raises(ConfigurationError, match=r"have a field '__(key|KEY)'.*'__key'"):
            schema_of_source(clash, metadata=True)


def test_a_field_with_a_name_of_permissive_mode_is_refused_in_it() -> None:
    values = record("__malformedValue")
    assert schema_of_source(values).names == ["__malformedValue"]
    with pytest.raises(ConfigurationError, match="column of mode=permissive"):
        schema_of_source(replace(values, mode=Mode.PERMISSIVE))


def test_a_record_without_fields_has_rows_without_columns() -> None:
    form = RowFormat(record(), ())
    batch = pa.RecordBatch.from_arrays([pa.array([1, 2, 3])], list(form.needs))
    (rows,) = form.rows(batch, TOPIC, no_version)
    assert (rows.num_rows, rows.num_columns) == (3, 0)


def test_malformed_messages_are_no_rows_that_nothing_tells_apart() -> None:
    values = replace(record("id", "name"), mode=Mode.PERMISSIVE)
    for sign in ("__malformedReason string", "__malformedValue binary"):
        assert row_format(values, _parsed(f"id string, {sign}"))
    assert row_format(values, _parsed("__key binary"))  # no value is decoded
    assert row_format(ValueFormat(None, None, Mode.PERMISSIVE), _parsed("value binary"))
    with pytest.raises(ConfigurationError, match=r"needs a column.*metadata=\['__malformedReason"):
        row_format(values, _parsed("id string, __key binary"))


def _parsed(columns: str) -> StructType:
    kinds = {"string": StringType(), "binary": BinaryType()}
    pairs = [one.split() for one in columns.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, kind in pairs])


def test_tombstones_and_kinds_of_keys_are_columns() -> None:
    assert made("__isTombstone", value=pa.array([b"", None, b"v"])) == [0, 1, 0]
    assert made("__keyIsBinary", key_is_binary=pa.array([True, None, False])) == [1, None, 0]


@pytest.mark.parametrize(
    "column",
    [
        StructField("value", BinaryType(), nullable=False),
        StructField("__messageProperties", MapType(StringType(), StringType(), False)),
    ],
    ids=lambda column: column.name,
)
def test_a_column_without_nulls_is_refused(column: StructField) -> None:
    """Spark would believe it: from 4.2 on tasks fail, before that it may leave rows out."""
    values = ValueFormat(None, None, Mode.FAILFAST)
    with pytest.raises(ConfigurationError, match=f"'{column.name}' is declared NOT NULL"):
        row_format(values, StructType([column]))
    own = schema_of_source(values, metadata=True)
    assert row_format(values, own)  # of all columns


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.struct([]), "'f' is a record without fields"),
        (pa.struct([("d", pa.list_(pa.struct([])))]), r"'f\.d\.item' is a record without fields"),
        (pa.map_(pa.string(), pa.struct([])), r"'f\.value' is a record without fields"),
        (pa.list_(pa.null()), "'f' has items of type null"),
        (pa.map_(pa.string(), pa.null()), "'f' has items of type null"),
    ],
)
def test_types_that_no_table_has_are_refused_by_name(kind, named):
    check_storable(pa.schema([("n", pa.null()), ("s", pa.struct([("n", pa.null())]))]))
    with pytest.raises(IncompatibleSchema, match=named):
        check_storable(pa.schema([("f", kind)]))


def test_values_whose_lists_may_have_many_cells_are_converted_in_parts(monkeypatch):
    """Each limit of a value holds for that value alone: many of them would add up."""
    monkeypatch.setattr(_avro_cursor, "MAX_ITEMS", 2_300)
    wide = {"type": "record", "name": "w", "fields": [{"name": f"f{n}", "type": "long"} for n in
                                                      range(20)]}  # fmt: skip
    listed = {"name": "l", "type": {"type": "array", "items": ["null", wide]}}
    definition = {"type": "record", "name": "r", "fields": [listed]}
    info = SchemaInfo(type=SchemaType.AVRO, data=json.dumps(definition).encode())
    form = RowFormat(ValueFormat(SchemaVersion(info, 0), None, Mode.FAILFAST), ("l",))
    values = [b"\xa0\1" + b"\0" * 80 + b"\0", *[b"\0"] * 60, None, b"\xd0\1" + b"\0" * 104 + b"\0"]
    nothing = pa.nulls(len(values), pa.binary())
    named = pa.array([bytes(8)] * len(values))
    columns = {"value": pa.array(values), "key": nothing, "schema_version": named}
    find = {bytes(8): SchemaVersion(info, 0)}.get
    parts = list(form.rows(pa.RecordBatch.from_pydict(columns), TOPIC, find))
    assert [part.num_rows for part in parts] == [31, 32]
    lists = pa.Table.from_batches(parts).column("l").to_pylist()
    assert lists == [[None] * 80, *[[]] * 60, None, [None] * 104]
