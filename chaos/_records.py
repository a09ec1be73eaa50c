"""The inputs of a run: made from the schedule's seed, a file each, mostly an epoch each."""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from eos.chaos._avro_rows import topic_of
from eos.chaos._record_text import padding, text_of
from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.schedule import Schedule

_KEYS = 20
_FIRST_MTIME_S = 1_700_000_000
_EMPTY_EVERY = 5


def records_of(schedule: Schedule, *topics: str) -> list[list[Record]]:
    """The records of each input; those with a key know their partition, ``epoch`` is the input's
    number until Spark has made its epochs of them.

    Args:
        topics: partitioned ones; partition n is ``<topic>-partition-<n>``. Of several, a key has
            one of its own.
    """
    rng = random.Random(schedule.seed)
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


def java_hash(text: str) -> int:
    """``String.hashCode() & Integer.MAX_VALUE`` of ASCII text, apart from the code under test."""
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF


def release(job: Job, schedule: Schedule, number: int, records: list[Record]) -> None:
    """Give the driver one input, all at once."""
    values: list[str | None] = [text_of(r.id, padding(schedule.padding)) for r in records]
    keys = [record.key or None for record in records]
    # A key's records stay in one task; others are spread.
    slots = [slot_of(record) for record in records]
    _release(job, f"input-{number:06}", _table(values, keys, slots), _FIRST_MTIME_S + number)


def release_row(job: Job, value: str | None) -> None:
    """Give the driver one row that is no record, before all that it does not know yet."""
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
    draft = target.with_name(f".{target.name}.draft")  # Spark passes over names with a dot
    pyarrow.parquet.write_table(table, draft)
    os.utime(draft, (mtime_s, mtime_s))  # it takes the oldest first
    draft.rename(target)


def slot_of(record: Record) -> int:
    """Those of a key have the same one, and others are spread."""
    return java_hash(record.key) if record.key else record.place
