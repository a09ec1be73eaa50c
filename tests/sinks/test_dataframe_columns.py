"""The meaning of a DataFrame's columns for messages."""

from __future__ import annotations

from unittest.mock import Mock

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType, _parse_datatype_string

from eos.errors import InputError
from eos.schemas import AvroSchema, KeyValueSchema, PrimitiveSchema, ProtobufSchema
from eos.sinks._message_names import NOT_KEPT, OF_SOURCE
from eos.sinks._row_encoding import TaskSchemas, message_rows, without_tombstones
from eos.sinks.dataframe_columns import COLUMNS, layout_of
from tests.support.spark_releases import HAS_DATA_SOURCES, needs_data_sources

if HAS_DATA_SOURCES:
    from eos.sources._row_format import METADATA
    from eos.sources._spark_columns import schema_of_source
    from eos.sources._value_format import Mode, ValueFormat

pytestmark = pytest.mark.usefixtures("spark")  # which reads the types' names

TYPES = {
    "key": "STRING", "key_is_binary": "BOOLEAN", "ordering_key": "BINARY",
    "event_time": "TIMESTAMP", "properties": "MAP<STRING, STRING>", "partition": "INT",
    "topic": "STRING", "is_tombstone": "BOOLEAN",
}  # fmt: skip
SCHEMAS = [None, PrimitiveSchema("string"), AvroSchema()]


def columns(text: str) -> StructType:
    found = _parse_datatype_string(text)  # StructType.fromDDL came with 4.0
    assert isinstance(found, StructType)
    return found


@needs_data_sources
def test_all_columns_of_the_source_are_accepted_by_their_names():
    assert {*OF_SOURCE.values(), *NOT_KEPT} == set(METADATA)
    read = schema_of_source(ValueFormat(None, None, Mode.FAILFAST), metadata=True)
    theirs = {name: OF_SOURCE[name] for name in COLUMNS if name in OF_SOURCE}
    assert layout_of(read, names_topics=True).names == {"value": "value", **theirs}
    rows = StructType([*columns("id BIGINT, __op STRING, __deleted BOOLEAN"), *read.fields[1:]])
    layout = layout_of(rows, names_topics=True, schema=AvroSchema())
    assert layout.names == theirs
    assert layout.record == ("id", "__op", "__deleted")


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("name", TYPES)
def test_each_column_has_the_same_names_with_every_schema(schema, name):
    names = [f"__{name}", OF_SOURCE[name]]
    if schema is None or isinstance(schema, PrimitiveSchema):
        names.append(name)
    value = "id INT" if isinstance(schema, AvroSchema) else "value STRING"
    for one in names:
        found = layout_of(columns(f"{value}, {one} {TYPES[name]}"), schema=schema)
        assert found.own[-1] == one
        assert name == "topic" or found.names[name] == one
    for one in set(names) - {names[0]}:
        both = columns(f"{value}, {names[0]} {TYPES[name]}, {one} {TYPES[name]}")
        with pytest.raises(InputError, match="are both the message"):
            layout_of(both, schema=schema)


@pytest.mark.parametrize("schema", [None, AvroSchema()])
def test_two_names_of_one_column_are_refused(schema):
    value = "value BINARY" if schema is None else "id INT"
    other = "event_time" if schema is None else "__event_time"
    with pytest.raises(InputError, match="are both the message"):
        layout_of(columns(f"{value}, {other} TIMESTAMP, __eventTime TIMESTAMP"), schema=schema)


@pytest.mark.parametrize("schema", [None, AvroSchema(), KeyValueSchema()])
def test_a_binary_key_of_a_topic_is_refused_if_its_kind_is_unknown(schema):
    beside = "value BINARY" if schema is None else "id INT"
    beside = "key INT, value STRING" if isinstance(schema, KeyValueSchema) else beside
    for text in (f"{beside}, __key BINARY",):
        with pytest.raises(InputError, match=r"__keyIsBinary.*CAST\(__key AS STRING\)"):
            layout_of(columns(text), schema=schema)
    layout_of(columns(f"{beside}, __key STRING"), schema=schema)
    layout_of(columns(f"{beside}, __key BINARY, __keyIsBinary BOOLEAN"), schema=schema)


def test_a_renamed_binary_key_of_a_topic_is_recognised():
    renamed = StructField("key", BinaryType(), metadata={"pulsar": "__key"})
    with pytest.raises(InputError, match="'key' has keys of a topic"):
        layout_of(StructType([StructField("value", BinaryType()), renamed]))
    assert layout_of(columns("value BINARY, key BINARY")).names["key"] == "key"


@pytest.mark.parametrize("name", ["__KEY", "__keyisbinary", "__EventTime", "__Topic"])
def test_a_name_that_differs_by_case_alone_is_refused(name):
    with pytest.raises(InputError, match="by case alone"):
        layout_of(columns(f"id INT, {name} STRING"), schema=AvroSchema())
    layout = layout_of(columns(f"id INT, {name} STRING"), schema=AvroSchema(), metadata=False)
    assert layout.record == ("id", name)


def test_similar_names_are_fields():
    names = ("__op", "__k", "__keys", "key", "topic", "event_time", "__value", "__deleted", "_")
    fields = columns(", ".join(f"{name} INT" for name in names))
    assert layout_of(fields, schema=AvroSchema()).record == names


@needs_data_sources
def test_without_metadata_all_columns_are_fields():
    text = ", ".join(f"{name} STRING" for name in METADATA)
    layout = layout_of(
        columns(f"value STRUCT<a: INT>, {text}"), schema=AvroSchema(), metadata=False
    )
    assert (layout.record, layout.names, layout.own) == (("value", *METADATA), {}, ())
    with pytest.raises(InputError, match="'__key' are unknown"):
        layout_of(columns("value BINARY, __key STRING"), metadata=False)


@needs_data_sources
def test_without_metadata_columns_read_as_the_messages_own_are_refused():
    read = schema_of_source(ValueFormat(None, None, Mode.FAILFAST), metadata=True)
    for field in read.fields[1:]:
        rows = StructType([*columns("id INT"), field])
        with pytest.raises(InputError, match=f"{field.name} were read as the messages' own"):
            layout_of(rows, schema=AvroSchema(), metadata=False)
        renamed = StructField("own", field.dataType, metadata=field.metadata)
        rows = StructType([*columns("id INT"), renamed])
        assert layout_of(rows, schema=AvroSchema(), metadata=False).record == ("id", "own")


@needs_data_sources
def test_a_struct_value_that_was_read_as_a_field_is_refused():
    value = columns("value STRUCT<a: INT>")["value"].dataType
    field = StructField("value", value, metadata={"pulsar": "field"})
    read = StructType([*columns("key STRING"), field])
    with pytest.raises(InputError, match=r"one field of the records.*metadata=False"):
        layout_of(read, schema=AvroSchema())
    own = schema_of_source(ValueFormat(None, None, Mode.FAILFAST), metadata=True).fields[1:]
    with pytest.raises(InputError) as caught:
        layout_of(StructType([*read.fields, *own]), schema=AvroSchema())
    works = 'df.select(struct("key", "value").alias(\'value\'), "__key", "__topic", "__eventTime"'
    assert works in str(caught.value)
    assert "metadata=False" not in str(caught.value)
    both = "value STRUCT<a: INT>, key STRING, __key STRING"
    with pytest.raises(InputError, match=r'are both.*struct\("value", "key"\)\.alias.*, "__key"\)'):
        layout_of(columns(both), schema=AvroSchema())
    with pytest.raises(InputError, match=r'struct\("value", "n"\)\.alias\(.value.\), "__topic"\)'):
        layout_of(columns("value STRUCT<a: INT>, __topic STRING, n INT"), schema=AvroSchema())
    assert layout_of(read, schema=AvroSchema(), metadata=False).record == ("key", "value")
    assert layout_of(columns("key STRING, value STRUCT<a: INT>"), schema=AvroSchema()).record == ()


@pytest.mark.parametrize("name", ["__key", "__publishTime", "__sequenceId", "__TOPIC"])
def test_a_field_with_the_name_of_a_message_column_is_refused(name):
    field = StructField(name, columns("a STRING")["a"].dataType, metadata={"pulsar": "field"})
    read = StructType([*columns("x INT"), field])
    with pytest.raises(InputError, match=rf"'{name}' is a field of the records.*metadata=False"):
        layout_of(read, schema=AvroSchema())
    assert layout_of(read, schema=AvroSchema(), metadata=False).record == ("x", name)


def batch(**arrays: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(arrays)


def test_a_text_key_that_is_not_utf8_is_refused_with_its_row():
    keys = pa.array([b"a", b"\xff", None, b"\xfe"])
    kinds = pa.array([False, True, None, False])
    rows = batch(value=pa.array([b"v"] * 4), key=keys, key_is_binary=kinds)
    with pytest.raises(InputError, match="'key' has text that is not UTF-8 in row 3"):
        message_rows(rows, tombstones=False, is_pair=False)
    found = message_rows(rows.slice(0, 3), tombstones=False, is_pair=False)
    assert found.key.to_pylist() == ["a", "/w==", None]
    assert found.key_is_base64.to_pylist() == [False, True, False]
    unsaid = batch(value=pa.array([b"v"]), key=keys[:1], key_is_binary=pa.array([None], pa.bool_()))
    with pytest.raises(InputError, match="'__keyIsBinary' is null in row 0"):
        message_rows(unsaid, tombstones=False, is_pair=False)


def test_a_null_is_a_tombstone_if_it_is_marked():
    said = pa.array([True, False, None])
    with pytest.raises(InputError, match="null in row 1, where __isTombstone is not true"):
        message_rows(
            batch(value=pa.array([None, None, b""], pa.binary()), is_tombstone=said),
            tombstones=True,
            is_pair=False,
        )
    with pytest.raises(InputError, match="not null in row 0, where __isTombstone is"):
        without_tombstones(pa.array([b"v", b"v", b"v"]), said, is_json=False)
    records = pa.array([{"a": None}, {"a": None}, {"a": 1}])
    assert without_tombstones(records, said, is_json=False).is_null().to_pylist() == [
        True,
        False,
        False,
    ]
    texts = without_tombstones(pa.array(["{}", "{}", "{}"]), said, is_json=True)
    assert texts.to_pylist() == [None, "{}", "{}"]


@pytest.mark.parametrize("schema", [AvroSchema(), ProtobufSchema()])
def test_a_column_of_the_messages_own_with_the_name_of_a_field_is_refused(schema):
    id_alone = pa.struct([("id", pa.int64())])
    registered = schema.writer(pa.struct([*id_alone, ("__eventTime", pa.int64())])).info
    client = Mock()
    client.lookup.schema.return_value = (registered, bytes(8))
    with pytest.raises(InputError, match="have a field '__eventTime'"):
        TaskSchemas(client, schema, id_alone, ["__eventTime"]).look_up(["persistent://a/b/c"])
    TaskSchemas(client, schema, id_alone, ["__key"]).look_up(["persistent://a/b/c"])
