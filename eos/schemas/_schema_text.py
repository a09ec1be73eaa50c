"""Describes schemas as text: their fields, and the differences of two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from eos.errors import ConfigurationError
from eos.schemas._protobuf_schema import message_class, parsed_data
from eos.schemas._schema_properties import parts
from eos.wire.avro import AvroType, RecordOf, Union, describe_type, parse_definition
from eos.wire.commands import SchemaInfo, SchemaType

_MAX_LINES: Final = 40
_MAX_DEPTH: Final = 5
_MAX_FIELDS: Final = 2000  # that are listed; types that use each other can have any number


def side_by_side(
    registered: SchemaInfo | None,
    wanted: SchemaInfo,
    titles: tuple[str, str] = ("the topic has", "the rows need"),
) -> str:
    """Return both schemas as a table, with a line for each field and differences marked.

    ``titles``: of the two columns.
    """
    has, needs = _fields(registered), _fields(wanted)
    names = list(dict.fromkeys([*has, *needs]))
    rows = [(name, has.get(name, ""), needs.get(name, "")) for name in names]
    if len(rows) > _MAX_LINES:
        rows = [row for row in rows if row[1] != row[2]][:_MAX_LINES]
    head = ("", f"{titles[0]} {_kind(registered)}", f"{titles[1]} {_kind(wanted)}")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(2)]
    return "\n" + "\n".join(
        f"  {name:<{widths[0]}}  {left:<{widths[1]}}  {right}{_mark(name, left, right)}".rstrip()
        for name, left, right in [head, *rows]
    )


def changed_fields(registered: SchemaInfo, wanted: SchemaInfo) -> tuple[list[str], list[str]]:
    """Return the fields that only ``wanted`` has, and those that only ``registered`` has; none if
    one of them has no fields, or can't be parsed."""
    has, needs = _fields(registered), _fields(wanted)
    if not has or not needs:
        return [], []
    return [name for name in needs if name not in has], [name for name in has if name not in needs]


def retyped_fields(registered: SchemaInfo | None, wanted: SchemaInfo) -> list[str]:
    """Return a sentence for each field that has different types in both."""
    has, needs = _fields(registered), _fields(wanted)
    return [
        f"{name} is {has[name]} in the topic, and {needs[name]} here"
        for name in needs
        if name in has and has[name] != needs[name]
    ]


def coarser_fields(registered: SchemaInfo, wanted: SchemaInfo) -> list[str]:
    """Return the fields with microseconds in ``wanted``, and milliseconds in ``registered``."""
    has = _fields(registered)
    return [
        name
        for name, kind in _fields(wanted).items()
        if "timestamp-micros" in kind and "timestamp-millis" in has.get(name, "")
    ]


def field_names(info: SchemaInfo) -> frozenset[str]:
    """Return the fields of a record or Protobuf message; none for other schemas, and for a
    definition that can't be parsed."""
    try:
        if info.type == SchemaType.PROTOBUF_NATIVE and (known := parsed_data(info.data)):
            return frozenset(message_class(*known).DESCRIPTOR.fields_by_name)
    except ConfigurationError:
        pass
    kind = _declared(info)
    return frozenset(one.name for one in kind.fields) if isinstance(kind, RecordOf) else frozenset()


def single_type(info: SchemaInfo | None) -> str:
    """Return the type of Avro's language that ``info`` declares instead of a record; "" if none."""
    kind = _declared(info)
    branches = kind.branches if isinstance(kind, Union) else (kind,)
    has_record = any(isinstance(one, RecordOf) for one in branches)
    return "" if kind is None or has_record else describe_type(kind)


def _declared(info: SchemaInfo | None) -> AvroType | None:
    if info is None or info.type not in (SchemaType.AVRO, SchemaType.JSON):
        return None
    try:
        return parse_definition(info.data.decode())
    except (ConfigurationError, UnicodeDecodeError):
        return None


def definition_text(info: SchemaInfo) -> str:
    """Return a registered definition as lines: JSON, the fields of a Protobuf message, or both
    parts of a pair; "" for a schema without a definition."""
    match info.type:
        case SchemaType.PROTOBUF_NATIVE:
            return "\n".join(f"{name}: {kind}" for name, kind in _fields(info).items())
        case SchemaType.KEY_VALUE:
            named = zip(("key", "value"), parts(info), strict=True)
            return "\n".join(
                f"{name}: {_kind(part)}\n{definition_text(part)}".rstrip()
                for name, part in named
                if part is not None
            )
    text = info.data.decode("utf-8", "replace")
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return text


def _mark(name: str, left: str, right: str) -> str:
    return "  <-" if name and left != right else ""


def _kind(info: SchemaInfo | None) -> str:
    if info is None:
        return "no schema"
    known = {int(one): one.name.lower() for one in SchemaType}
    name = known.get(info.type, f"a schema of type {info.type}")
    return f"{name}: {single}" if (single := single_type(info)) else name


def _fields(info: SchemaInfo | None) -> dict[str, str]:
    # None for single values, and for a definition that can't be parsed.
    match info:
        case SchemaInfo(type=SchemaType.AVRO | SchemaType.JSON):
            kind = _declared(info)
            return {} if kind is None else dict(islice(_avro_fields(kind, ()), _MAX_FIELDS))
        case SchemaInfo(type=SchemaType.PROTOBUF_NATIVE, data=data):
            known = parsed_data(data)
            if known is None:
                return {}
            return dict(islice(_message_fields(message_class(*known).DESCRIPTOR), _MAX_FIELDS))
        case SchemaInfo(type=SchemaType.KEY_VALUE):
            found: dict[str, str] = {}
            for name, part in zip(("key", "value"), parts(info), strict=True):
                found[name] = _kind(part)
                inner = _fields(part).items()
                found |= {f"{name}.{field}": kind for field, kind in inner}
            return found
    return {}


def _avro_fields(kind: AvroType, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    # Each field is followed by the fields of records in it, to some levels: types may be recursive.
    branches = kind.branches if isinstance(kind, Union) else (kind,)
    for record in branches:
        if isinstance(record, RecordOf) and len(path) < _MAX_DEPTH:
            for field in record.fields:
                inner = (*path, field.name)
                yield ".".join(inner), describe_type(field.type)
                yield from _avro_fields(field.type, inner)


def _message_fields(message: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    if len(path) == _MAX_DEPTH:
        return
    for field in message.fields:
        inner, of = (*path, field.name), field.message_type
        if of is not None and of.GetOptions().map_entry:
            pair = of.fields_by_name
            kind, of = f"map<{_type_name(pair['key'])},{_type_name(pair['value'])}>", None
        else:
            kind = ("repeated " if field.is_repeated else "") + _type_name(field)
        # As in Protobuf's syntax, with the number: readers match fields by it.
        yield ".".join(inner), f"{kind} = {field.number}"
        if of is not None and of.file.package != "google.protobuf":
            yield from _message_fields(of, inner)


def _type_name(field: Any) -> str:
    named = field.message_type or field.enum_type
    scalar = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    return scalar if named is None else str(named.name)
