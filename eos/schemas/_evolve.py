"""A registered Avro definition and columns that are not quite it: what is registered next.

Only the broker knows the topic's compatibility strategy, so nothing is refused here. Names,
documentation and defaults of the registered one stay, because consumers may go by them.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from eos.errors import ConfigurationError, InputError
from eos.wire.avro import AvroType, ListOf, MapOf, RecordOf, Union, check_fits, parse_definition


def evolved(registered: bytes, made: Any, column: pa.DataType) -> Any:
    """The registered definition itself, as bytes, when ``column`` can be written by it; else one
    that takes ``column``, as objects of JSON.

    Fields that ``column`` lacks stay if they have a default. New ones can be null, so that readers
    of both definitions understand all messages.

    Args:
        made: the definition that is made of ``column``.
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
    merged = _merged(json.loads(registered), kind, made, column)
    try:
        check_fits(parse_definition(json.dumps(merged)), column)
    except (ConfigurationError, InputError):
        return made  # what was left out, or changed, was named elsewhere
    return merged


def _merged(declared: Any, kind: AvroType, made: Any, column: pa.DataType) -> Any:
    """``declared`` (parsed: ``kind``), changed as little as ``column`` (as ``made`` says) needs."""
    match kind, declared:
        case _ if _fits(kind, column):
            return declared
        case Union(branches), list():
            inner = made[1] if isinstance(made, list) else made
            pairs = zip(declared, branches, strict=True)
            return (
                [
                    _merged(one, branch, inner, column) if _alike(branch, column) else one
                    for one, branch in pairs
                ]
                if any(_alike(branch, column) for branch in branches)
                else _nullable(inner)
            )
        case RecordOf(), {"type": "record"} if pa.types.is_struct(column):
            return _merged_record(declared, kind, made, column)
        case ListOf(items), {"type": "array"} if pa.types.is_list(column):
            inner = _merged(declared["items"], items, _inner(made)["items"], column.value_type)
            return {**declared, "items": inner}
        case MapOf(values), {"type": "map"} if pa.types.is_map(column):
            inner = _merged(declared["values"], values, _inner(made)["values"], column.item_type)
            return {**declared, "values": inner}
    return made


def _merged_record(declared: Any, kind: RecordOf, made: Any, column: pa.StructType) -> Any:
    ours = {field["name"]: field for field in _inner(made)["fields"]}
    fields: list[Any] = []
    for field, parsed in zip(declared["fields"], kind.fields, strict=True):
        mine = ours.pop(field["name"], None)
        if mine is None:
            if "default" in field:
                fields.append(field)
            continue
        changed = _merged(
            field["type"], parsed.type, mine["type"], column.field(field["name"]).type
        )
        if changed is not field["type"] and "default" in field and field["default"] is not None:
            field = {key: one for key, one in field.items() if key != "default"}
        fields.append({**field, "type": changed})
    fields += [
        {**field, "type": _nullable(field["type"]), "default": None} for field in ours.values()
    ]
    return {**declared, "fields": fields}


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


def _nullable(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else ["null", kind]
