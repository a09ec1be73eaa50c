"""Which columns of a DataFrame are which of the messages'."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from eos.errors import InputError
from eos.schemas import AvroSchema
from sinks.columns import layout_of

pytestmark = pytest.mark.usefixtures("spark")  # which reads the types' names

READ = "value BINARY, __key BINARY, __eventTime TIMESTAMP, __messageProperties MAP<STRING, STRING>"
OURS = {
    "key": "__key",
    "event_time": "__eventTime",
    "properties": "__messageProperties",
}


def columns(text: str) -> StructType:
    found = StructType.fromDDL(text)
    assert isinstance(found, StructType)
    return found


def test_what_the_source_reads_is_taken_by_the_names_it_has_there():
    assert layout_of(columns(READ)).names == {"value": "value", **OURS}
    rows = columns(READ.replace("value BINARY", "id BIGINT"))
    layout = layout_of(rows, schema=AvroSchema())
    assert layout.names == OURS
    assert layout.record == ("id",)


@pytest.mark.parametrize("schema", [None, AvroSchema()])
def test_the_same_by_two_names_is_refused(schema):
    value = "value BINARY" if schema is None else "id INT"
    other = "event_time" if schema is None else "__event_time"
    with pytest.raises(InputError, match="twice"):
        layout_of(columns(f"{value}, {other} TIMESTAMP, __eventTime TIMESTAMP"), schema=schema)


def test_what_a_message_has_only_after_it_was_sent_is_refused():
    with pytest.raises(InputError, match="would not be written"):
        layout_of(columns("value BINARY, __messageId BINARY"))
