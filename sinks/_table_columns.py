"""The columns of a DataFrame as a table has them: those of ``DeltaSink`` and ``IcebergSink``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from eos.delta.column_rules import DELTA, relaxed
from eos.errors import InputError
from eos.sinks import spark_compat

# Options of ``to_json``: Spark's defaults leave out null fields and microseconds, and depend on the
# session's time zone.
EXACT_JSON: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_IN_TABLES: Final = (
    t.BinaryType, t.BooleanType, t.ByteType, t.CharType, t.DateType, t.DecimalType, t.DoubleType,
    t.FloatType, t.IntegerType, t.LongType, t.ShortType, t.TimestampNTZType, t.TimestampType,
    t.VarcharType,
)  # fmt: skip
# First word of a type's name -> the hint for it.
_HINTS: Final = {
    "variant": "Write its text: CAST({path} AS STRING), or to_json({path}).",
    "geometry": "Write its bytes: ST_AsBinary({path}), and what its SRID is.",
    "geography": "Write its bytes: ST_AsBinary({path}).",
    "time": "Write its text: CAST({path} AS STRING).",
    "interval": "Write its text: CAST({path} AS STRING); or its length as a number.",
}


def arrow_schema(df: DataFrame, table_format: str = DELTA) -> pa.Schema:
    """Return the columns of ``df`` as Spark's own writers have them, nullable at every level.

    Raises:
        InputError: there are no columns, or one has a type that no table can have.
    """
    # The check uses Spark's types: in Arrow, a GEOMETRY or a vector of pyspark.ml looks like a
    # plain struct.
    if not df.columns:
        raise InputError("The DataFrame has no columns.", hint="Select at least one.")
    for field in df.schema.fields:
        _check_type(field.name, field.dataType, table_format)
    try:
        schema = spark_compat.arrow_schema(df.schema)
    except Exception as error:
        raise InputError(f"The DataFrame has a column that can't be written: {error}.") from None
    # Not pa.schema(schema), which cuts a name off at a zero character (pyarrow 26).
    return relaxed(pa.schema(list(schema)))


def _check_type(path: str, kind: t.DataType, table_format: str) -> None:
    match kind:
        case t.StructType() if not kind.fields:
            raise InputError(
                f"Column {path!r} is a struct without fields, which Parquet can't hold.",
                hint="Drop it, or give it a field.",
            )
        case t.StructType():
            for field in kind.fields:
                _check_type(f"{path}.{field.name}", field.dataType, table_format)
        case t.ArrayType():
            _check_type(f"{path}.element", kind.elementType, table_format)
        case t.MapType():
            _check_type(f"{path}.key", kind.keyType, table_format)
            _check_type(f"{path}.value", kind.valueType, table_format)
        case t.NullType():
            raise InputError(
                f"Column {path!r} has no type (void).",
                hint="Cast it, for example CAST(... AS STRING).",
            )
        case t.StringType() if kind.simpleString() == "string":
            pass
        case t.StringType():
            raise InputError(
                f"Column {path!r} is {kind.simpleString()}: {table_format} tables have no "
                "collations.",
                hint=f"Cast it: CAST({path} AS STRING).",
            )
        case t.UserDefinedType():
            raise InputError(
                f"Column {path!r} has a user-defined type ({type(kind).__name__}), which "
                f"{table_format} tables don't have.",
                hint=_instead_of(path, kind),
            )
        case _ if not isinstance(kind, _IN_TABLES):
            name = kind.simpleString()
            raise InputError(
                f"Column {path!r} is {'a ' if name == 'variant' else ''}{name.upper()}, which "
                f"{table_format}Sink does not write.",
                hint=next(
                    (hint.format(path=path) for word, hint in _HINTS.items() if word in name),
                    "Cast it, to string for example, or drop it.",
                ),
            )


def _instead_of(path: str, kind: t.UserDefinedType) -> str:
    if type(kind).__name__ == "VectorUDT":
        numbers = f"pyspark.ml.functions.vector_to_array({path})"
        return f"Write its numbers: {numbers}; in when(...isNotNull(), ...), where it may be null."
    return f"Convert it to {kind.sqlType().simpleString()} with your own function."
