"""Extends a registered Avro definition for columns that do not quite fit it.

Compatibility is checked by the broker, which knows the topic's strategy. Only changes that no
strategy detects are refused here. The registered names, documentation and defaults are kept:
consumers may depend on them.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.schemas._derive import at
from eos.wire.avro import (
    AvroType,
    Decimal,
    ListOf,
    MapOf,
    Primitive,
    RecordOf,
    Union,
    check_fits,
    describe_type,
    parse_definition,
)


def evolve_definition(registered: bytes, made: Any, column: pa.DataType) -> Any:
    """Return the registered definition unchanged, as bytes, if ``column`` can be written with it;
    else an extended one, as JSON objects.

    Fields that ``column`` lacks are kept if they have a default. New ones are nullable, so that
    readers of either definition understand all messages.

    Args:
        made: the definition that was derived from ``column``.

    Raises:
        IncompatibleSchema: a number would change its meaning.
    """
    try:
        kind = parse_definition(registered.decode())
    except (ConfigurationError, UnicodeDecodeError):
        return made
    try:
        check_fits(kind, column)
    except InputError:
        pass
    else:
        return registered
    merged = _merged(json.loads(registered), kind, made, column, "")
    try:
        check_fits(parse_definition(json.dumps(merged)), column)
    except (ConfigurationError, InputError):
        return made  # a type that was changed or dropped is used by name elsewhere
    return merged


def _merged(declared: Any, kind: AvroType, made: Any, column: pa.DataType, path: str) -> Any:
    """Return ``declared`` (parsed: ``kind``) with the changes that ``column`` needs; ``made`` is
    the definition that was derived from it."""
    if _fits(kind, column):
        return declared
    inner = _inner(made)
    match kind, declared:
        case Union(branches), list():
            for index, branch in enumerate(branches):
                if _is_same_container(branch, column):
                    changed = _merged(declared[index], branch, inner, column, path)
                    return [*declared[:index], changed, *declared[index + 1 :]]
                _check_meaning(branch, inner, path)
            return made
        case RecordOf(), {"type": "record"} if pa.types.is_struct(column):
            return _merged_record(declared, kind, inner, column, path)
        case ListOf(items), {"type": "array"} if pa.types.is_list(column):
            of = (declared["items"], items, inner["items"], column.value_type)
            return {**declared, "items": _merged(*of, f"{path}[]")}
        case MapOf(values), {"type": "map"} if pa.types.is_map(column):
            of = (declared["values"], values, inner["values"], column.item_type)
            return {**declared, "values": _merged(*of, f"{path}{{}}")}
    _check_meaning(kind, inner, path)
    return inner


def _merged_record(
    declared: Any, kind: RecordOf, made: Any, column: pa.StructType, path: str
) -> Any:
    new = {field["name"]: field for field in made["fields"]}
    fields: list[Any] = []
    for field, parsed in zip(declared["fields"], kind.fields, strict=True):
        name = field["name"]
        wanted = new.pop(name, None)
        if wanted is None:
            if "default" in field:
                fields.append(field)
            continue
        of = (field["type"], parsed.type, wanted["type"], column.field(name).type)
        changed = _merged(*of, at(path, name))
        if changed is not field["type"] and "default" in field and field["default"] is not None:
            field = {key: one for key, one in field.items() if key != "default"}
        fields.append({**field, "type": changed})
    return {**declared, "fields": [*fields, *new.values()]}


def _check_meaning(kind: AvroType, made: Any, path: str) -> None:
    """Raise ``IncompatibleSchema`` if readers would misinterpret a number.

    Avro's compatibility rules ignore logical types: a broker accepts another decimal scale, or
    microseconds instead of milliseconds, and readers read the numbers in the old meaning.
    """
    new = parse_definition(json.dumps(made))
    (base, old), (new_base, meaning) = _meaning(kind), _meaning(new)
    if base and base == new_base and old != meaning:
        raise IncompatibleSchema(
            f"Column {path!r}: the topic has {describe_type(kind)}, the rows have "
            f"{describe_type(new)}. Brokers may let this pass, and readers would misread the "
            "numbers.",
            hint="Cast the column to what the topic has, or give it another name.",
        )


def _meaning(kind: AvroType) -> tuple[str, object]:
    """Return how a number is stored, and its meaning."""
    match kind:
        case Decimal(scale=scale):
            return "bytes", scale
        case Primitive("bytes" | "string"):
            return "bytes", None
        case Primitive("int" | "long", logical):
            return "whole", logical
    return "", None


def _fits(kind: AvroType, column: pa.DataType) -> bool:
    try:
        check_fits(kind, column)
    except InputError:
        return False
    return True


def _is_same_container(kind: AvroType, column: pa.DataType) -> bool:
    types = pa.types
    return (
        (isinstance(kind, RecordOf) and types.is_struct(column))
        or (isinstance(kind, ListOf) and types.is_list(column))
        or (isinstance(kind, MapOf) and types.is_map(column))
    )


def _inner(made: Any) -> Any:
    return made[1] if isinstance(made, list) else made
