"""Reads a Delta table at the end, as anybody reads it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from chaos._record_text import id_in


def ids_in(table: str) -> tuple[str | None, ...]:
    """The record in each row of the table; None for a row that has none, or a damaged one."""
    if not Path(table, "_delta_log").is_dir():
        return ()
    query = QueryBuilder().register("rows", DeltaTable(table))
    rows = pa.table(query.execute("select value from rows").read_all())
    return tuple(id_in(value.encode()) for value in rows["value"].to_pylist())
