"""The inputs of a run, made from the schedule's seed, and the text of a record.

``eos1|<id>|<padding>|<crc32c of the preceding text, hex>``. A pipeline may put it into JSON or add
other text, but must keep these characters together.
"""

from __future__ import annotations

import os
import random
import re
import uuid
import zlib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet

from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.schedule import Schedule
from eos.wire.checksum import crc32c

_PATTERN: Final = re.compile(rb"(eos1\|([^|]*)\|[^|]*)\|([0-9a-f]{8})")


def text_of(record_id: str, filler: str = "") -> str:
    """The text of a record; no part may contain ``|``."""
    # The checksum makes a damaged record visible in any other text.
    text = f"eos1|{record_id}|{filler}"
    return f"{text}|{crc32c(text.encode()):08x}"


def id_in(value: bytes) -> str | None:
    """The id of the record in ``value``; None if it is missing or damaged."""
    found = _PATTERN.search(value)
    if found is None or f"{crc32c(found[1]):08x}".encode() != found[3]:
        return None
    return found[2].decode(errors="replace")


_KEYS = 20
_FIRST_MTIME_S = 1_700_000_000
_EMPTY_EVERY = 5  # an epoch without records ends EMPTY, another path through the protocol


def records_of(schedule: Schedule, *topics: str) -> list[list[Record]]:
    """Make the records of each input; ``epoch`` is at first the number of the input.

    Each key belongs to one of the partitioned ``topics``, and to one partition of it.
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
            target = f"{base}-partition-{java_hash(key) % schedule.partitions}" if key else None
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
