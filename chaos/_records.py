"""The inputs of a run, made from the schedule's seed, and the text of a record.

``eos1|<id>|<padding>|<crc32c of the preceding text, hex>``. A pipeline may put it into JSON or add
other text, but must keep these characters together.

Whole rows are Avro messages, written by the harness's workload and decoded by its readers. They go
to four topics, keyed rows by their key; from one epoch on, they have one more column.
"""

from __future__ import annotations

import io
import os
import random
import re
import uuid
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet

from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.schedule import Schedule
from eos.wire.checksum import crc32c

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_PATTERN: Final = re.compile(rb"(eos1\|([^|]*)\|[^|]*)\|([0-9a-f]{8})")


def text_of(record_id: str, filler: str = "") -> str:
    """The text of a record; no part may contain ``|``."""
    # The checksum makes a damaged record visible in any other text.
    text = f"eos1|{record_id}|{filler}"
    return f"{text}|{crc32c(text.encode()):08x}"


def id_in(value: bytes) -> str | None:
    """The id of the record in ``value``; None if it is missing or damaged, or not the only one."""
    found = _PATTERN.findall(value)
    if len(found) != 1 or f"{crc32c(found[0][0]):08x}".encode() != found[0][2]:
        return None
    return str(found[0][1], errors="replace")


_KEYS = 20
_FIRST_MTIME_S = 1_700_000_000
_EMPTY_EVERY = 5  # an epoch without records ends EMPTY, another path through the protocol


def records_of(schedule: Schedule, *topics: str, by_key: bool = True) -> list[list[Record]]:
    """Make the records of each input; ``epoch`` is at first the number of the input.

    Each key belongs to one of the partitioned ``topics``, and ``by_key`` to one partition of it, by
    Java's hash.
    """
    rng = random.Random(schedule.seed)  # a seed is a schedule on any machine
    place = 0
    inputs = []
    for number in range(schedule.epochs):
        rows = []
        size = 0 if number % _EMPTY_EVERY == _EMPTY_EVERY - 1 else schedule.rows
        for n in range(size):
            key = f"key-{rng.randrange(_KEYS)}" if schedule.keyed else ""
            base = topic_of(key, list(topics))
            partition = f"{base}-partition-{java_hash(key) % schedule.partitions}"
            target = partition if key and by_key else None
            rows.append(Record(f"{number}/{n}", str(number), place, key, target, input=number))
            place += 1
        inputs.append(rows)
    return inputs


def topic_of(key: str, topics: list[str]) -> str:
    """The topic of a key; rows without a key go to the first."""
    return topics[zlib.crc32(key.encode()) % len(topics)] if key else topics[0]


def java_hash(text: str) -> int:
    """``String.hashCode() & Integer.MAX_VALUE`` of ASCII text."""
    # Not eos's own: the checker's expectation must not share its mistakes.
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def release(job: Job, schedule: Schedule, number: int, records: list[Record]) -> None:
    """Release one input to the driver, atomically."""
    values: list[str | None] = [text_of(r.id, "x" * schedule.padding) for r in records]
    keys = [record.key or None for record in records]
    # The records of a key stay in one task; others are distributed.
    slots = [slot_of(record) for record in records]
    _release(job, f"input-{number:06}", _table(values, keys, slots), _FIRST_MTIME_S + number)


def release_row(job: Job, value: str | None) -> None:
    """Release one row that is not a record, before all inputs that the driver has not read."""
    # Older than any input, and Spark reads the oldest first.
    _release(job, f"row-{uuid.uuid4().hex}", _table([value], [None], [0]), _FIRST_MTIME_S - 1)


def _table(values: list[str | None], keys: list[str | None], slots: list[int]) -> pa.Table:
    return pa.table(
        {
            "value": pa.array(values, pa.string()),
            "key": pa.array(keys, pa.string()),
            "slot": pa.array(slots, pa.int32()),
        }
    )


def _release(job: Job, name: str, table: pa.Table, mtime_s: int) -> None:
    target = Path(job.input_dir) / f"{name}.parquet"
    draft = target.with_name(f".{target.name}.draft")  # Spark skips names that begin with a dot
    pyarrow.parquet.write_table(table, draft)
    os.utime(draft, (mtime_s, mtime_s))  # Spark reads the oldest first
    draft.rename(target)  # a whole file at once: Spark may list the folder at any time


def slot_of(record: Record) -> int:
    """The slot of a record: the same for all records of a key, distributed for others."""
    return java_hash(record.key) if record.key else record.place


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
