"""What differs between the releases of PySpark, 3.5 to 4.3; the rest of eos does not know it.

A difference is found by looking for the function or the parameter, not by the release's number. The
interface of streaming sources, before 4.2, is in ``eos.sinks.datasource_compat``.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.pandas import types
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from eos.delta.column_rules import SPARK_METADATA

ClassicDataFrame: type[DataFrame] = DataFrame
"""A DataFrame of a session with its own JVM, not of Spark Connect."""
with contextlib.suppress(ImportError):  # before 4.0 both kinds had nothing in common
    from pyspark.sql.classic import dataframe

    ClassicDataFrame = dataframe.DataFrame

# Before 4.2 the time zone of timestamps was always UTC.
_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(types.to_arrow_type).parameters else {}
)


def arrow_type(kind: DataType) -> pa.DataType:
    """Return Spark's Arrow type, with timestamps in UTC."""
    return types.to_arrow_type(kind, **_IN_UTC)


def arrow_schema(columns: StructType) -> pa.Schema:
    """Return Spark's Arrow schema, with timestamps in UTC, and with the metadata of columns."""
    schema = types.to_arrow_schema(columns, **_IN_UTC)
    if hasattr(types, "to_arrow_metadata"):
        return schema
    # Before 4.2 comments and declared lengths were left out.
    return pa.schema(with_metadata(columns.fields, schema))


def with_metadata(columns: Iterable[StructField], fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Return Arrow's ``fields`` with the metadata of Spark's ``columns``, as Spark 4.2 has them."""
    return [
        pa.field(
            field.name,
            _described(column.dataType, field.type),
            field.nullable,
            {SPARK_METADATA: json.dumps(column.metadata)} if column.metadata else None,
        )
        for column, field in zip(columns, fields, strict=True)
    ]


def _described(kind: DataType, arrow: pa.DataType) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct(with_metadata(kind.fields, arrow))
        case ArrayType():
            items = arrow.value_field
            return pa.list_(items.with_type(_described(kind.elementType, items.type)))
        case MapType():
            keys, items = arrow.key_field, arrow.item_field
            return pa.map_(
                keys.with_type(_described(kind.keyType, keys.type)),
                items.with_type(_described(kind.valueType, items.type)),
            )
    return arrow


def spark_schema(columns: pa.Schema) -> StructType:
    """Return Spark's columns; timestamps without a time zone are ``TIMESTAMP_NTZ``."""
    return types.from_arrow_schema(columns, prefer_timestamp_ntz=True)


def local_checkpoint(df: DataFrame) -> DataFrame:
    """Compute ``df`` now, and keep its rows on the executors, in memory or on disk."""
    if "storageLevel" in inspect.signature(df.localCheckpoint).parameters:
        return df.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    return df.localCheckpoint(eager=True)  # before 4.0 at this level, always


def offset_metadata(plan: Any) -> Any:
    """Return the metadata of the JVM's ``OffsetSeq``."""
    # Each epoch asks for it: to list the methods first would be a call into the JVM for each one.
    try:
        found = plan.metadataOpt()
    except Py4JError:  # before 4.2
        found = plan.metadata()
    return found.get()
