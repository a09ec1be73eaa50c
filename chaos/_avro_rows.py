"""Whole rows as Avro messages, written by the harness's workload and decoded by its readers.

Rows go to four topics, keyed rows by their key; from one epoch on, they have one more column.
"""

from __future__ import annotations

import io
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from eos.chaos._records import id_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROWS_AT: Final = 5  # the first epoch with one more column
OLD: Final = "old"
GROWN: Final = "grown"
TOMBSTONE: Final = "tombstone"
_TOPICS: Final = 4
_TOMBSTONES: Final = 7  # one keyed row in so many
_RECORD: Final = "record"
_CRC: Final = "crc"


def _optional(name: str, kind: object) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}


# Written by hand: derived by eos, they would be wrong whenever eos is.
_TWICE: Final = {"type": "array", "items": ["null", "string"]}
_INNER: Final = [_optional("key", "string"), _optional("twice", _TWICE)]
_FIELDS: Final = [
    _optional("text", "string"),
    _optional("crc", "long"),
    _optional("inner", {"type": "record", "name": "Row_inner", "fields": _INNER}),
]
_OLD: Final[dict[str, Any]] = {"type": "record", "name": "Row", "fields": _FIELDS}
_GROWN: Final = {**_OLD, "fields": [*_FIELDS, _optional("size", "int")]}


def topics_of(topic: str) -> list[str]:
    """The topics of the rows."""
    return [topic, *(f"{topic}-{number}" for number in range(1, _TOPICS))]


def shape_in(epoch: str, text: str, key: str) -> str:
    """The schema that a record must be written with, or TOMBSTONE."""
    if key and zlib.crc32(text.encode()) % _TOMBSTONES == 0:
        return TOMBSTONE
    return GROWN if int(epoch) >= GROWS_AT else OLD


def whole_rows(df: DataFrame, epoch: int, topic: str) -> DataFrame:
    """Turn rows of ``value`` and ``key`` into message columns."""
    crc = "crc32(CAST(value AS BINARY))"
    names = ", ".join(f"'{name}'" for name in topics_of(topic))
    number = f"COALESCE(crc32(CAST(key AS BINARY)) % {_TOPICS}, 0)"
    inner = "IF(crc % 2 = 0, NULL, STRUCT(key, ARRAY(value, CAST(NULL AS STRING)) AS twice))"
    grown = ", CAST(LENGTH(value) AS INT) AS size" if epoch >= GROWS_AT else ""
    row = f"STRUCT(value AS text, crc, {inner} AS inner{grown})"
    return df.selectExpr("*", f"{crc} AS crc").selectExpr(
        f"IF(key IS NOT NULL AND crc % {_TOMBSTONES} = 0, NULL, {row}) AS value",
        "key",
        f"MAP('{_RECORD}', value, '{_CRC}', HEX(crc)) AS properties",
        f"ELEMENT_AT(ARRAY({names}), CAST(1 + {number} AS INT)) AS topic",
    )


def read(message: Any) -> tuple[str | None, str]:
    """The record id and schema of a message of ``pulsar-client``.

    The id is missing (None) if the message is damaged, or if its parts do not match.
    """
    # A tombstone has no value, so the record's text is in the properties, too.
    properties = message.properties()
    text = properties.get(_RECORD, "")
    crc = zlib.crc32(text.encode())
    if properties.get(_CRC) != f"{crc:X}":
        return None, ""
    if message.has_null_value():
        return id_in(text.encode()), TOMBSTONE
    inner = {"key": message.partition_key() or None, "twice": [text, None]}
    wanted = {"text": text, "crc": crc, "inner": inner if crc % 2 else None}
    # Both are tried: the checker decides which one was due, by the epoch.
    for shape, row in ((OLD, wanted), (GROWN, {**wanted, "size": len(text)})):
        if message.schema_version() and _decoded(message.data(), shape) == row:
            return id_in(text.encode()), shape
    return None, ""


def _decoded(data: bytes, shape: str) -> Any:
    import fastavro

    stream = io.BytesIO(data)
    try:
        row = fastavro.schemaless_reader(stream, _parsed(shape))
    except (EOFError, ValueError, IndexError, UnicodeDecodeError):
        return None
    # A row with one more column also decodes with the older schema, and leaves bytes over.
    return None if stream.read(1) else row


@cache
def _parsed(shape: str) -> Any:
    import fastavro  # not at the top: the driver imports this module, and never reads

    return fastavro.parse_schema(_OLD if shape == OLD else _GROWN)
