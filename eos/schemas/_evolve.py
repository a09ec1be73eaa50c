"""A registered Avro definition and columns that are not quite it: what is registered next.

Only the broker knows the topic's compatibility strategy; what is refused here is what none of them
sees. Names, documentation and defaults of the registered one stay: consumers may go by them.
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


def evolved(registered: bytes, made: Any, column: pa.DataType) -> Any:
    """The registered definition itself, as bytes, when ``column`` can be written by it; else one
    that takes ``column``, as objects of JSON.

    Fields that ``column`` lacks stay if they have a default. New ones can be null, so that readers
    of both definitions understand all messages.

    Args:
        made: the definition that is made of ``column``.

    Raises:
        IncompatibleSchema: a number would mean something else.
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
        return made  # what was left out, or changed, was named elsewhere
    return merged


def _merged(declared: Any, kind: AvroType, made: Any, column: pa.DataType, path: str) -> Any:
    """``declared`` (parsed: ``kind``), changed as little as ``column`` (as ``made`` says) needs."""
    if _fits(kind, column):
        return declared
    inner = _inner(made)
    match kind, declared:
        case Union(branches), list():
            for index, branch in enumerate(branches):
                if _alike(branch, column):
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
    ours = {field["name"]: field for field in made["fields"]}
    fields: list[Any] = []
    for field, parsed in zip(declared["fields"], kind.fields, strict=True):
        name = field["name"]
        mine = ours.pop(name, None)
        if mine is None:
            if "default" in field:
                fields.append(field)
            continue
        of = (field["type"], parsed.type, mine["type"], column.field(name).type)
        changed = _merged(*of, at(path, name))
        if changed is not field["type"] and "default" in field and field["default"] is not None:
            field = {key: one for key, one in field.items() if key != "default"}
        fields.append({**field, "type": changed})
    return {**declared, "fields": [*fields, *ours.values()]}


def _check_meaning(kind: AvroType, made: Any, path: str) -> None:
    """Avro's rules do not look at logical types: what a broker lets pass for a decimal of another
    scale, or for seconds and microseconds, readers take for numbers of the old kind."""
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
    """What a number is stored as, and what it stands for."""
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


def _alike(kind: AvroType, column: pa.DataType) -> bool:
    types = pa.types
    return (
        (isinstance(kind, RecordOf) and types.is_struct(column))
        or (isinstance(kind, ListOf) and types.is_list(column))
        or (isinstance(kind, MapOf) and types.is_map(column))
    )


def _inner(made: Any) -> Any:
    return made[1] if isinstance(made, list) else made
