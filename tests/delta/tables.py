"""Small real tables, rows for them, and common queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from eos.delta.files import StagedFile
from eos.delta.staging import StagingTarget, stage
from eos.delta.target_table import TargetTable

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def made(uri: str, schema: pa.Schema = SCHEMA, partition_by=(), options=None) -> TargetTable:
    """A new table with these columns."""
    table = TargetTable(str(uri), options)
    table.create(schema, partition_by)
    return table


def batch(*rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=schema)


def numbered(first: int, count: int) -> pa.RecordBatch:
    return batch(*({"id": n, "name": f"row {n}"} for n in range(first, first + count)))


def staged(table: TargetTable, *batches: pa.RecordBatch, merge=False, **settings):
    """Files of the batches, and the schema that they were staged for."""
    schema = table.check_schema(batches[0].schema, merge=merge)
    target = StagingTarget(
        table.folder.uri, schema, table.partition_columns, table.folder.storage_options, **settings
    )
    return stage(batches, target, attempt_id="run-1", spark_partition=7), schema


def commit(
    table: TargetTable, files, version: int, schema=None, app_id="eos/orders", merge=False
) -> None:
    table.commit(
        files,
        app_id,
        version,
        table_id=table.table_id,
        schema=schema or table.schema,
        merge=merge,
    )


def appended(table: TargetTable, *batches: pa.RecordBatch, version=1) -> tuple[StagedFile, ...]:
    """Stage and commit in one step."""
    files, schema = staged(table, *batches)
    commit(table, files, version, schema)
    return files


def rows(table: TargetTable, order: str = "id") -> list[dict[str, Any]]:
    """All rows, as ``deltalake`` reads them."""
    handle = DeltaTable(table.folder.uri, storage_options=table.folder.storage_options or None)
    query = QueryBuilder().register("t", handle).execute(f"SELECT * FROM t ORDER BY {order}")
    return pa.table(query.read_all()).to_pylist()


def ids(table: TargetTable) -> list[int]:
    return [row["id"] for row in rows(table)]
