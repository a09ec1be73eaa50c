"""Which Spark types fit which PostgreSQL types, and how their values are sent.

Types as in Spark's JDBC source. What has no Arrow text of PostgreSQL's notation (arrays, structs,
maps, bytes) becomes text in Spark's JVM: no Python code touches a row.
"""

from __future__ import annotations

import re
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t

from eos.errors import InputError
from eos.sinks._table_columns import EXACT_JSON

_EPOCH: Final = "TIMESTAMP_NTZ '1970-01-01 00:00:00'"
_WHOLE: Final = ("smallint", "integer", "bigint", "numeric")
_JSON: Final = ("json", "jsonb")
# Spark's type -> PostgreSQL's types that take each of its values unchanged, or refuse it; the first
# one is that of a new table.
_FITS: Final[dict[type[t.DataType], tuple[str, ...]]] = {
    t.BooleanType: ("boolean",),
    t.ByteType: _WHOLE,
    t.ShortType: _WHOLE,
    t.IntegerType: ("integer", *_WHOLE),
    t.LongType: ("bigint", *_WHOLE),
    t.FloatType: ("real", "double precision"),
    t.DoubleType: ("double precision",),
    t.DateType: ("date",),
    t.TimestampType: ("timestamp with time zone",),
    t.TimestampNTZType: ("timestamp without time zone",),
    t.BinaryType: ("bytea",),
}
# Text is sent as it is, and the server parses it; but not where Spark has a type for it, or where
# the server cuts it.
_NOT_TEXT: Final = {name for names in _FITS.values() for name in names} | {
    "money",
    "name",
    '"char"',
}
# Other keys become numbers of Spark's own, or texts that are not unique.
_JSON_KEYS: Final = (
    t.StringType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.BooleanType,
)
_MAX_SECONDS: Final = 10**12 - 1  # of an interval; the server refuses the year 33658
_LENGTH: Final = re.compile(r"\(([^)]*)\)")


def created_type(path: str, kind: t.DataType) -> str:
    """Return the type of a new table's column.

    Raises:
        InputError: PostgreSQL has none for it; names ``path``.
    """
    match kind:
        case t.StringType():
            return "text"
        case t.DecimalType():
            return f"numeric({kind.precision},{kind.scale})"
        case t.ArrayType() if not isinstance(
            kind.elementType, t.ArrayType | t.StructType | t.MapType
        ):
            return f"{created_type(path, kind.elementType)}[]"
        # JSON has names for fields; a composite type would have to be created.
        case t.ArrayType() | t.StructType() | t.MapType():
            return "jsonb"
    names = _FITS.get(type(kind))
    if names is None:
        raise _unfit(path, kind, "PostgreSQL")
    return names[0]


def check_fits(path: str, kind: t.DataType, target: str) -> None:
    """Check that values of ``kind`` can be written to a column of PostgreSQL's type ``target``.

    Raises:
        InputError: they can't, or only with changes; names ``path``.
    """
    if not _is_fit(kind, target):
        raise _unfit(path, kind, f"a column of type {target}")


def _is_fit(kind: t.DataType, target: str) -> bool:
    # Without its length: values that are longer are refused by the server, by row.
    base = _LENGTH.sub("", target)
    match kind:
        case t.NullType():
            return True
        case t.StringType():
            return base not in _NOT_TEXT and not base.endswith("[]")
        case t.DecimalType():
            digits = _LENGTH.search(target)
            scale = int(digits[1].rpartition(",")[2]) if digits and "," in digits[1] else None
            return base == "numeric" and (digits is None or (scale or 0) >= kind.scale)
        case t.ArrayType() if base.endswith("[]"):
            inner = kind.elementType
            # Arrays of arrays have their elements' type.
            is_nested = isinstance(inner, t.ArrayType)
            return _is_fit(inner, target if is_nested else target.removesuffix("[]"))
        case t.ArrayType() | t.StructType() | t.MapType():
            return base in _JSON and _has_json_keys(kind)
    if _is_variant(kind):
        return base in _JSON
    # A negative scale rounds whole numbers.
    return base in _FITS.get(type(kind), ()) and ",-" not in target


def _is_variant(kind: t.DataType) -> bool:
    return type(kind).__name__ == "VariantType"  # PySpark 3 has none


def _has_json_keys(kind: t.DataType) -> bool:
    match kind:
        case t.ArrayType():
            return _has_json_keys(kind.elementType)
        case t.StructType():
            return all(_has_json_keys(one.dataType) for one in kind.fields)
        case t.MapType():
            return isinstance(kind.keyType, _JSON_KEYS) and _has_json_keys(kind.valueType)
    return True


def _unfit(path: str, kind: t.DataType, where: str) -> InputError:
    return InputError(
        f"Column {path!r} is {kind.simpleString().upper()}, which does not fit {where}.",
        hint="Cast it, for example CAST(... AS STRING) or to_json(...), or drop it.",
    )


def as_sent(column: Column, kind: t.DataType, target: str) -> Column:
    """Return the column as tasks send it: a number, a boolean, a time, or PostgreSQL's text."""
    if _LENGTH.sub("", target) in _JSON and not isinstance(kind, t.StringType):
        return f.to_json(column, EXACT_JSON)
    match kind:
        case t.FloatType() if target == "double precision":
            return column.cast("double")
        case t.ArrayType() if target == "double precision[]":
            return _text(column.cast(kind.simpleString().replace("float", "double")), kind)
        case t.ArrayType() | t.BinaryType():
            return _text(column, kind)
        case t.NullType():
            return column.cast("string")
    return column


def _text(column: Column, kind: t.DataType) -> Column:
    match kind:
        case t.ArrayType():
            inner = kind.elementType
            elements = f.transform(
                column, lambda item: f.coalesce(_element(item, inner), f.lit("NULL"))
            )
            return f.concat(f.lit("{"), f.array_join(elements, ","), f.lit("}"))
        case _ if isinstance(kind, t.StructType | t.MapType) or _is_variant(kind):
            return f.to_json(column, EXACT_JSON)
        case t.BinaryType():
            return f.concat(f.lit("\\x"), f.hex(column))
        case t.TimestampType():
            # In UTC, as the server reads it: in the session's time zone two moments of autumn have
            # one text, and offsets before 1900 have seconds, which no format shows.
            second = f.lit(1_000_000).cast("decimal(20,0)")
            seconds = f.unix_micros(column).cast("decimal(20,0)") / second
            # Not null for times beyond it, without ANSI.
            seconds = f.least(f.greatest(seconds, f.lit(-_MAX_SECONDS)), f.lit(_MAX_SECONDS))
            seconds = seconds.cast("decimal(18,6)")
            none = f.lit(0)
            return (f.expr(_EPOCH) + f.make_dt_interval(none, none, none, seconds)).cast("string")
    return column.cast("string")


def _element(item: Column, kind: t.DataType) -> Column:
    text = _text(item, kind)
    if isinstance(kind, t.ArrayType):
        return text
    for char in ("\\", '"'):
        text = f.replace(text, f.lit(char), f.lit(f"\\{char}"))
    return f.concat(f.lit('"'), text, f.lit('"'))
