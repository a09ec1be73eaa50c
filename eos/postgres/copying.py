"""Phase one, on executors: rows go to the attempt's staging table, by COPY. No loop over rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.postgres.database import TEXT_SETTINGS, failures, sql
from eos.postgres.staged import Copied, CopyTarget
from eos.retry import attempts

# Rows are encoded in parts of this size: text has offsets of 32 bits.
_PART_BYTES: Final = 16 * 1024 * 1024
# Waits for a free connection: more tasks may begin than the server takes at once.
_CONNECT_S: Final = 60.0
# Escapes of COPY's text format, backslash first.
_ESCAPES: Final = (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"))


def copy_rows(batches: Iterable[pa.RecordBatch], target: CopyTarget, *, run: int) -> Copied:
    """Write all rows of one task run; they are durable when this returns.

    Args:
        batches: the columns of ``target``, in their order: numbers, booleans, dates, timestamps in
            UTC, and text in PostgreSQL's notation for all other types.
        run: different for each run of a task.

    Raises:
        InputError: a row does not fit; names its number in the task, and the column.
        Retriable: the database failed; nothing is written.
    """
    full = (batch for batch in batches if batch.num_rows)
    first = next(full, None)
    if first is None:
        return Copied(run, 0, 0)  # without a connection
    copied = np.zeros(2, dtype=np.int64)
    connection = attempts(_CONNECT_S)(target.database.connect, "eos task")
    names = dict(zip(target.columns, target.names, strict=True))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(target.schema, target.table),
        sql.SQL(", ").join(map(sql.Identifier, ("run", *target.columns))),
    )
    # One transaction: a task that dies leaves no rows. Some roles have limits of time for short
    # queries, which a task that waits for Spark would exceed.
    with connection, failures("copying rows", names), connection.transaction():
        connection.execute(TEXT_SETTINGS)
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for part in chain.from_iterable(map(_parts, chain((first,), full))):
                data = encode(part, run)
                copy.write(data)
                copied += (part.num_rows, len(data))
    return Copied(run, int(copied[0]), int(copied[1]))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.nbytes <= _PART_BYTES or batch.num_rows == 1:
        yield batch
        return
    # Spark cuts batches by rows: with values of a MB, one may have gigabytes.
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))


def encode(batch: pa.RecordBatch, run: int) -> memoryview:
    r"""Return rows in COPY's text format: fields by tabs, ``\N`` for null, a line for each row."""
    columns = [pa.scalar(str(run)), *(_texts(column) for column in batch.columns)]
    # The line end first: so all lines are one buffer, which is sent without a copy.
    columns[-1] = pc.binary_join_element_wise(columns[-1], "", "\n", null_handling="skip")
    lines = pc.binary_join_element_wise(*columns, "\t")
    return _bytes_of(lines)


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))  # UTC without its name
    if pa.types.is_large_string(kind):
        column = column.cast(pa.string())
    elif not pa.types.is_string(kind):
        return column.cast(pa.string()).fill_null("\\N")
    data = column.buffers()[2]
    for char, escaped in _ESCAPES:
        if data is not None and char.encode() in memoryview(data).tobytes():
            column = pc.replace_substring(column, char, escaped)
    return column.fill_null("\\N")


def _bytes_of(lines: pa.Array) -> memoryview:
    # Arrow stores the lines contiguously.
    _, offsets, data = lines.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
