"""Values as columns, without Spark or a broker."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.ids import TopicName
from eos.schemas.reading import SchemaVersion
from eos.sources._value_format import Mode, ValueFormat, own_schema
from eos.wire.commands import SchemaInfo, SchemaType

TOPIC = TopicName.parse("t")
TEXT = SchemaVersion(SchemaInfo(type=SchemaType.STRING), 0)
MESSAGES = {
    "value": pa.array([b"a", b"\xff", None, b"\xfe", b"c"]),
    "key": pa.nulls(5, pa.binary()),
    "schema_version": pa.array([bytes(8)] * 5),
    "ledger": pa.array([7] * 5),
    "entry": pa.array(range(5)),
    "batch_index": pa.array([-1] * 5),
}


def decoded(mode: Mode) -> tuple[dict[str, list[object]], object]:
    form = pickle.loads(pickle.dumps(ValueFormat(TEXT, None, mode)))  # as it comes to a task
    assert form.schema.names[0] == "value"
    columns, keep = form.decode(TOPIC, MESSAGES, lambda _: TEXT)
    return {name: column.to_pylist() for name, column in columns.items()}, keep


def test_the_first_malformed_message_is_named():
    with pytest.raises(InputError, match=r"The message 7:1:-1 of persistent://public/default/t "):
        decoded(Mode.FAILFAST)


def test_each_malformed_value_is_kept_in_its_row():
    columns, keep = decoded(Mode.PERMISSIVE)
    assert keep is None
    assert columns["value"] == ["a", None, None, None, "c"]
    assert columns["__malformedValue"] == [None, b"\xff", None, b"\xfe", None]
    assert [bool(one) for one in columns["__malformedReason"]] == [False, True, False, True, False]


def test_malformed_rows_are_left_out_and_tombstones_are_not(caplog):
    columns, keep = decoded(Mode.DROPMALFORMED)
    assert keep.to_pylist() == [True, False, True, False, True]
    assert columns["value"][2] is None
    (record,) = caplog.records
    assert (record.malformed, record.topic) == (2, str(TOPIC))


def test_a_message_without_a_version_is_named_with_a_fix():
    unnamed = MESSAGES | {"schema_version": pa.array([bytes(8), bytes(8), None, None, None])}
    form = ValueFormat(TEXT, None, Mode.FAILFAST)
    good = {name: column.take(pa.array([0, 2, 4])) for name, column in unnamed.items()}
    with pytest.raises(IncompatibleSchema, match=r"The message 7:4:-1 of .* names no version") as e:
        form.decode(TOPIC, good, lambda _: TEXT)
    assert "schemaDefinition" in str(e.value.hint)
    assert "dropmalformed" in str(e.value.hint)


@pytest.mark.parametrize(
    ("name", "definition", "complaint"),
    [
        ("avr", None, "schema 'avr' does not exist for reading; choose one of auto, "),
        ("protobuf", None, "auto uses the registered schema"),
        ("avro", None, "needs schemaDefinition"),
        ("auto", "{}", "takes no schemaDefinition"),
        ("string", "{}", "takes no schemaDefinition"),
        ("json", "[", "Avro"),
    ],
)
def test_invalid_schemas_are_refused(name, definition, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        own_schema(name, definition)
