"""Can JSON of one definition be read by another one? Asked once, before any row."""

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
    "int": {"int", "long", "float", "double", "decimal", "moment"},
    "long": {"long", "float", "double", "decimal", "moment"},
    "float": {"float", "double"},
    "double": {"float", "double"},
    "decimal": {"decimal", "float", "double"},
    "moment": {"moment", "text", "int", "long"},
    "text": {"text", "moment"},
    "boolean": {"boolean"},
    "null": {"null"},
}


def check_same_text(writer: AvroType, reader: AvroType, path: str = "") -> None:
    """Whether what is written by ``writer`` can be read by ``reader``; fields that one of them
    lacks do not matter.

    Raises:
        IncompatibleSchema: it can't be; the field is named.
    """
    writer, reader = sole(writer, path), sole(reader, path)
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


def sole(kind: AvroType, path: str) -> AvroType:
    """``kind`` without null.

    Raises:
        IncompatibleSchema: a union of several types.
    """
    if not isinstance(kind, Union):
        return kind
    null = Primitive("null")
    found = [one for one in kind.branches if one != null]
    if len(found) > 1:
        raise IncompatibleSchema(
            f"The field {path.lstrip('.')!r} is {describe_type(kind)}: in JSON nothing tells which "
            "of them a value is.",
            hint="Give a schema of your own, with one type there.",
        )
    return found[0] if found else null


def _kind(kind: AvroType) -> str:
    match kind:
        case Primitive("int" | "long" as name, logical):
            return "moment" if logical == "date" or "timestamp-" in (logical or "") else name
        case Primitive("string" | "bytes"):
            return "text"
        case Primitive(name):
            return name
        case Decimal():
            return "decimal"
        case RecordOf() | ListOf() | MapOf():
            return type(kind).__name__
    return "text"
