"""Reads JSON row by row, in Python, and checks that one definition's JSON fits another's.

It also accepts Jackson's forms of dates and timestamps: numbers in the unit of their logical type,
seconds with a fraction (``Instant``), and lists of their parts (``LocalDate``, ``LocalTime``,
``LocalDateTime``); and of classes for which Avro's reflection declares something else: numbers
(``BigDecimal`` and ``BigInteger``, declared as text; ``Date``, as a record without fields), letters
(``char``, as int), objects (``Map<Integer, V>`` and the like, as a list of pairs).
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import json
import math
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from eos.errors import IncompatibleSchema
from eos.schemas.reading._column_reader import (
    MAX_OBJECT_BYTES,
    TOO_LONG,
    FieldBudget,
    ValueTooLarge,
    as_column,
)
from eos.wire.avro import (
    JAVA_CHAR,
    JAVA_NUMBERS,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    arrow_type,
    describe_type,
    field_text,
    fits_decimal128,
    unreadable,
)
from eos.wire.binary_columns import RowFailures, cells_of

# How JSON was written -> as what it can be read.
_READABLE: Final = {
    "int": {"int", "long", "float", "double", "decimal", "timestamp", "char"},
    "long": {"long", "float", "double", "decimal", "timestamp"},
    "float": {"float", "double"},
    "double": {"float", "double"},
    "decimal": {"decimal", "float", "double"},
    "timestamp": {"timestamp", "text", "int", "long"},  # and dates
    "text": {"text", "timestamp", "number"},
    "number": {"number", "text", "int", "long", "float", "double", "decimal"},
    "char": {"char", "text", "int", "long"},
    "boolean": {"boolean"},
    "null": {"null"},
}
_NUMBERS: Final = [Primitive(name) for name in ("int", "long", "float", "double")]
_LIMITS: Final = {"int": 1 << 31, "long": 1 << 63}
# As Jackson writes them: JSON has no such numbers.
_NOT_FINITE: Final = {"NaN", "Infinity", "-Infinity"}
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
# Python's own context rejects a result of more than 28 digits.
_ALL_DIGITS: Final = decimal.Context(prec=100)


class _InvalidValue(Exception):
    """Raised when a value, or one of its fields, is not of its type."""


class JsonRows:
    """Parses texts as values of ``kind``, to a column of type ``column``."""

    def __init__(self, kind: AvroType, column: pa.DataType) -> None:
        self._kind = kind
        self._column = column

    def read(self, texts: pa.StringArray) -> tuple[pa.Array, RowFailures]:
        """Return the column and the malformed rows, which are null in it.

        Raises:
            TooMuchAtOnce: as ``FieldBudget``.
        """
        rows: list[Any] = []
        reasons: dict[int, str] = {}
        budget = FieldBudget()
        for number, text in enumerate(texts.to_pylist()):
            budget.renew()
            try:
                rows.append(_value(self._kind, _parsed(text), "", budget))
            except (_InvalidValue, ValueTooLarge) as error:
                rows.append(None)
                reasons[number] = str(error)
        return as_column(rows, self._column, reasons, "The value does not fit its schema.")


def _integer(digits: str) -> Any:
    return decimal.Decimal(digits) if digits == "-0" else int(digits)  # as Arrow: with its sign


def _parsed(text: str) -> Any:
    if len(text) > MAX_OBJECT_BYTES:
        raise _InvalidValue(TOO_LONG)
    try:
        # A float would lose digits of a decimal.
        parse_int = _integer if "-0" in text else None
        return json.loads(
            text.removeprefix("\ufeff"), parse_float=decimal.Decimal, parse_int=parse_int
        )
    except (ValueError, RecursionError, decimal.InvalidOperation):
        raise _InvalidValue("The value is not JSON.") from None


def _value(kind: AvroType, found: Any, path: str, budget: FieldBudget) -> Any:
    if found is None:
        budget.spend(1)  # missing fields take no bytes of the value
        budget.spend_cells(_cells(kind))
        return None
    kind = non_null_type(kind, path)
    match kind, found:
        case RecordOf(fields=fields), dict():
            some = {}  # Arrow makes a null of a key that is missing
            for one in fields:
                if (inner := found.get(one.name)) is None:
                    budget.spend_cells(_cells(one.type))
                else:
                    some[one.name] = _value(one.type, inner, f"{path}.{one.name}", budget)
            return some
        case RecordOf(fields=()), int() if path:
            return {}
        case ListOf(RecordOf(fields=(Field("key", key), Field("value", items)))), dict():
            return [
                {
                    "key": _key(key, name, path),
                    "value": _value(items, one, f"{path}[].value", budget),
                }
                for name, one in found.items()
            ]
        case ListOf(items), list():
            return [_value(items, one, f"{path}[]", budget) for one in found]
        case MapOf(values), dict():
            return [(key, _value(values, one, f"{path}{{}}", budget)) for key, one in found.items()]
    try:
        return _scalar(kind, found)
    except (ValueError, TypeError, OverflowError, decimal.InvalidOperation):
        raise _InvalidValue(f"{field_text(path)} is not of its type.") from None


@lru_cache(1024)
def _cells(kind: AvroType) -> int:
    return cells_of(arrow_type(kind))


def _key(kind: AvroType, text: str, path: str) -> Any:
    found: Any = text
    if kind in _NUMBERS:
        with contextlib.suppress(_InvalidValue):
            found = _parsed(text)
    return _value(kind, found, f"{path}[].key", FieldBudget())


def _scalar(kind: AvroType, found: Any) -> Any:
    match kind:
        case Primitive("boolean") if isinstance(found, bool):
            return found
        case Primitive("int", logical) if logical == JAVA_CHAR and isinstance(found, str):
            return ord(found)  # fails unless it is one letter
        case Primitive("string", logical) if logical in JAVA_NUMBERS and _is_number(found):
            return str(found)
        case Primitive("int" | "long", logical) if isinstance(found, list):
            return _of_parts(logical or "", found)
        case Primitive("long", str() as logical) if isinstance(
            found, decimal.Decimal
        ) and logical.startswith("timestamp-"):
            return _seconds(found)
        case Primitive("int" | "long" as name, logical):
            if logical == "date" and name == "int" and isinstance(found, str):
                return datetime.date.fromisoformat(found)
            if name == "long" and "timestamp-" in (logical or "") and isinstance(found, str):
                return _timestamp(found, is_local=str(logical).startswith("local"))
            return _whole(name, logical or "", found)
        case Primitive("float" | "double"):
            return _float(found)
        case Primitive("bytes") | Fixed() if isinstance(found, str):
            return base64.b64decode(found.encode("ascii"), validate=True)
        case Decimal(precision, scale):
            value = _decimal(precision, scale, found)
            return value if fits_decimal128(kind) else _as_in_avro(value, scale)
        case Primitive("string") if isinstance(found, str):
            found.encode()  # fails on an unpaired surrogate
            return found
        case Primitive():
            raise ValueError
        case Enum() if type(found) is int:
            return str(found)  # pulsar-client writes the value of the symbol in a Python enum
    return _scalar(Primitive("string"), found)  # a symbol


def _is_number(found: Any) -> bool:
    return type(found) is int or isinstance(found, decimal.Decimal)


def _whole(name: str, logical: str, found: Any) -> Any:
    limit = _LIMITS[name]
    is_whole = isinstance(found, decimal.Decimal) and found.is_finite() and found.adjusted() < 19
    if is_whole and "timestamp-" not in logical:
        found = int(found) if found == int(found) else found  # 5.0 and 1e3 are whole numbers
    # ``isinstance`` would accept true. Local times are numbers of milliseconds or microseconds.
    if type(found) is not int or not -limit <= found < limit:
        raise ValueError
    if name == "long" and logical.endswith("timestamp-millis"):
        return found * 1000
    return found


def _seconds(found: decimal.Decimal) -> int:
    # A huge exponent would become an integer of as many digits.
    if not found.is_finite() or found.adjusted() > 15:
        raise ValueError
    # As Jackson reads its own text: behind negative seconds, the fraction counts upwards.
    whole = int(found)
    fraction = (found - whole) * 10**6
    return whole * 10**6 + math.floor(abs(fraction) if whole < 0 else fraction)


def _of_parts(logical: str, found: list[Any]) -> Any:
    # ``[year, month, day]``, ``[hour, minute, second, nanosecond]``, or both in one list. Jackson
    # omits trailing parts that are 0.
    if any(type(one) is not int for one in found):
        raise ValueError
    is_day, is_time = logical == "date", logical.startswith("time-")
    if is_time:
        found = [1970, 1, 1, *found]
    elif not is_day and not logical.startswith("local-timestamp-"):
        raise ValueError
    if len(found) != 3 if is_day else not 5 <= len(found) <= 7:
        raise ValueError
    year, month, day, hour, minute, second, nanos = [*found, 0, 0, 0, 0][:7]
    timestamp = datetime.datetime(year, month, day, hour, minute, second, nanos // 1000)
    if is_time:
        unit = datetime.timedelta(milliseconds=1) if logical == "time-millis" else _MICROSECOND
        return (timestamp - datetime.datetime(1970, 1, 1)) // unit
    return timestamp.date() if is_day else timestamp


def _timestamp(found: str, *, is_local: bool) -> datetime.datetime:
    timestamp = datetime.datetime.fromisoformat(found)
    if (timestamp.tzinfo is None) != is_local:
        raise ValueError
    return timestamp


def _float(found: Any) -> float:
    if isinstance(found, bool) or (isinstance(found, str) and found not in _NOT_FINITE):
        raise ValueError
    value = float(found)
    if math.isinf(value) and isinstance(found, int | decimal.Decimal):
        raise ValueError  # the number is too large for a float
    return value


def _decimal(precision: int, scale: int, found: Any) -> decimal.Decimal:
    if isinstance(found, bool | float):  # only NaN and Infinity are parsed as floats
        raise ValueError
    value = decimal.Decimal(found)
    if not value.is_finite() or (value.adjusted() >= precision - scale and value):
        raise ValueError
    exact = value.quantize(decimal.Decimal(1).scaleb(-scale), context=_ALL_DIGITS)
    if exact != value:
        raise ValueError
    return exact


def _as_in_avro(value: decimal.Decimal, scale: int) -> bytes:
    unscaled = int(value.scaleb(scale, _ALL_DIGITS))
    return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def has_wide_decimals(kind: AvroType) -> bool:
    """Whether a decimal in ``kind``, which is not recursive, has too many digits for Arrow."""
    match kind:
        case Decimal():
            return not fits_decimal128(kind)
        case Union(branches):
            return any(map(has_wide_decimals, branches))
        case ListOf(inner) | MapOf(inner):
            return has_wide_decimals(inner)
        case RecordOf(fields=fields):
            return any(has_wide_decimals(field.type) for field in fields)
    return False


def check_same_text(writer: AvroType, reader: AvroType, path: str = "") -> None:
    """Check that JSON written with ``writer`` can be read with ``reader``. Fields that only one of
    them has are ignored.

    Raises:
        IncompatibleSchema: it can't be read; the error names the field.
    """
    writer, reader = non_null_type(writer, path), non_null_type(reader, path)
    match writer, reader:
        case RecordOf(), RecordOf():
            known = {field.name: field.type for field in writer.fields}
            for field in reader.fields:
                if field.name in known:
                    check_same_text(known[field.name], field.type, f"{path}.{field.name}")
        case ListOf(items), ListOf(wanted):
            check_same_text(items, wanted, f"{path}[]")
        case ListOf(RecordOf(fields=(Field("key"), Field("value", values)))), MapOf(wanted):
            check_same_text(values, wanted, f"{path}{{}}")
        case RecordOf(name, fields), Primitive() if not fields or name.startswith("java."):
            pass  # the values decide, as of java.time.Duration, which Jackson writes as a number
        case ListOf(Primitive(logical=logical)), Primitive("string") if logical == JAVA_CHAR:
            pass  # char[]
        case MapOf(values), MapOf(wanted):
            check_same_text(values, wanted, f"{path}{{}}")
        case _ if _kind(reader) not in _READABLE.get(_kind(writer), set()):
            raise unreadable(writer, reader, path)


def non_null_type(kind: AvroType, path: str) -> AvroType:
    """Return ``kind`` without null.

    Raises:
        IncompatibleSchema: ``kind`` is a union of several types.
    """
    if not isinstance(kind, Union):
        return kind
    null = Primitive("null")
    found = [one for one in kind.branches if one != null]
    if len(found) > 1:
        raise IncompatibleSchema(
            f"The field {path.lstrip('.')!r} is {describe_type(kind)}, and JSON does not say which "
            "of these types a value has.",
            hint="Give your own schema, with a single type for this field.",
        )
    return found[0] if found else null


def _kind(kind: AvroType) -> str:
    match kind:
        case Primitive(_, logical) if logical in JAVA_NUMBERS:
            return "number"
        case Primitive(_, logical) if logical == JAVA_CHAR:
            return "char"
        case Primitive("int" | "long" as name, logical):
            return "timestamp" if logical == "date" or "timestamp-" in (logical or "") else name
        case Primitive("string" | "bytes"):
            return "text"
        case Primitive(name):
            return name
        case Decimal():
            return "decimal"
        case RecordOf() | ListOf() | MapOf():
            return type(kind).__name__
    return "text"
