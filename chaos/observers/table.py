"""Reads a Delta table at the end, as anybody reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from eos.chaos._record_text import id_in


def ids_in(table: str, find: Callable[[bytes], str | None] = id_in) -> tuple[str | None, ...]:
    """The id of the record in each row of the table, as found by ``find``; None if there is none,
    or if the row is damaged."""
    if not Path(table, "_delta_log").is_dir():
        return ()
    values = columns_of(table, "value")["value"].to_pylist()
    return tuple(find(value.encode()) for value in values)


def columns_of(table: str, *names: str) -> pa.Table:
    """These columns of all rows."""
    query = QueryBuilder().register("rows", DeltaTable(table))
    return pa.table(query.execute("select * from rows").read_all()).select(list(names))
