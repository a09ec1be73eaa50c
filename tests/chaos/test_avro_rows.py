"""A reader decodes a message with a schema to its record, or to none."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass, field, replace

import fastavro
import pytest

from eos.chaos._records import (
    _GROWN,
    _OLD,
    GROWN,
    GROWS_AT,
    OLD,
    TOMBSTONE,
    read,
    shape_in,
    text_of,
    topic_of,
    topics_of,
)

KEY = "key-3"


@dataclass(frozen=True)
class Message:
    """A message as in ``pulsar-client``."""

    text: str
    value: bytes | None
    key: str = KEY
    version: str = "\0"
    marks: dict[str, str] = field(default_factory=dict)

    def data(self) -> bytes:
        return self.value or b""

    def has_null_value(self) -> bool:
        return self.value is None

    def partition_key(self) -> str:
        return self.key

    def schema_version(self) -> str:
        return self.version

    def properties(self) -> dict[str, str]:
        crc = zlib.crc32(self.text.encode())
        return {"record": self.text, "crc": f"{crc:X}", **self.marks}


def encoded(row: dict, definition: dict) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(definition, {}), row)
    return out.getvalue()


def message(record_id: str, grown: bool = False, **changes: object) -> Message:
    text = text_of(record_id, "xx")
    crc = zlib.crc32(text.encode())
    inner = {"key": KEY, "twice": [text, None]} if crc % 2 else None
    row = {"text": text, "crc": crc, "inner": inner, "size": len(text), **changes}
    return Message(text, encoded(row, _GROWN if grown else _OLD))


@pytest.mark.parametrize("number", range(10))
def test_rows_are_decoded_with_their_schema(number):
    record = f"7/{number}"
    assert read(message(record)) == (record, OLD)
    assert read(message(record, grown=True)) == (record, GROWN)


def test_a_tombstone_is_known_by_its_property():
    assert read(replace(message("1/2"), value=None)) == ("1/2", TOMBSTONE)


@pytest.mark.parametrize(
    "damaged",
    [
        message("1/1", crc=5),
        message("1/1", text="another"),
        message("1/1", grown=True, size=None),
        message("1/1", inner={"key": "another", "twice": []}),
        replace(message("1/1"), version=""),
        replace(message("1/1"), marks={"crc": "0"}),
        replace(message("1/1"), value=b"\x02"),
        replace(message("1/1"), value=message("1/1").data() + b"\0"),
        replace(message("1/1"), text=text_of("1/2", "xx")),
    ],
)
def test_mismatched_parts_are_no_record(damaged):
    assert read(damaged)[0] is None


def test_schema_follows_from_epoch_text_and_key():
    texts = [text_of(f"0/{number}") for number in range(200)]
    gone = [text for text in texts if shape_in("0", text, KEY) == TOMBSTONE]
    assert 10 < len(gone) < 60
    kept = next(text for text in texts if text not in gone)
    assert shape_in(str(GROWS_AT - 1), kept, KEY) == OLD
    assert shape_in(str(GROWS_AT), kept, KEY) == GROWN
    assert shape_in("0", gone[0], "") == OLD  # without a key there is nothing to delete
    topics = topics_of("t")
    assert {topic_of(f"key-{number}", topics) for number in range(20)} == set(topics)
    assert topic_of("", topics) == "t"
