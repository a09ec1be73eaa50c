"""Checks that JSON of one definition can be read with another; once, before reading rows."""

from __future__ import annotations

from typing import Final

from eos.errors import IncompatibleSchema
from eos.wire.avro import (
    AvroType,
    Decimal,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    describe_type,
)

_NUMBERS: Final = {
    "int": {"int", "long", "float", "double", "decimal", "timestamp"},
    "long": {"long", "float", "double", "decimal", "timestamp"},
    "float": {"float", "double"},
    "double": {"float", "double"},
    "decimal": {"decimal", "float", "double"},
    "timestamp": {"timestamp", "text", "int", "long"},  # and dates
    "text": {"text", "timestamp"},
    "boolean": {"boolean"},
    "null": {"null"},
}


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
        case MapOf(values), MapOf(wanted):
            check_same_text(values, wanted, f"{path}{{}}")
        case _ if _kind(reader) not in _NUMBERS.get(_kind(writer), set()):
            named = f"The field {path.lstrip('.')!r}" if path else "The value"
            raise IncompatibleSchema(
                f"{named} was written as {describe_type(writer)}, which can't be read as "
                f"{describe_type(reader)}."
            )


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
