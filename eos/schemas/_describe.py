"""Schemas as text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eos.errors import ConfigurationError
from eos.wire.avro import AvroType, RecordOf, Union, describe_type, parse_definition
from eos.wire.commands import SchemaInfo, SchemaType

_MAX_LINES: Final = 40
_MAX_DEPTH: Final = 5


def side_by_side(registered: SchemaInfo | None, wanted: SchemaInfo) -> str:
    """What the topic has and what the rows need: a line for each field, differences marked."""
    has, needs = _fields(registered), _fields(wanted)
    names = list(dict.fromkeys([*has, *needs]))
    rows = [(name, has.get(name, ""), needs.get(name, "")) for name in names]
    if len(rows) > _MAX_LINES:
        rows = [row for row in rows if row[1] != row[2]][:_MAX_LINES]
    head = ("", f"the topic has {_kind(registered)}", f"the rows need {_kind(wanted)}")
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(2)]
    return "\n" + "\n".join(
        f"  {name:<{widths[0]}}  {left:<{widths[1]}}  {right}{_mark(left, right)}".rstrip()
        for name, left, right in [head, *rows]
    )


def _mark(left: str, right: str) -> str:
    return "  <-" if left != right and not left.startswith("the topic") else ""


def _kind(info: SchemaInfo | None) -> str:
    if info is None:
        return "no schema"
    known = {int(one): one.name.lower() for one in SchemaType}
    return known.get(info.type, f"a schema of type {info.type}")


def _fields(info: SchemaInfo | None) -> dict[str, str]:
    """Field -> its type in words; empty for what is no record in Avro's language."""
    if info is None or info.type not in (SchemaType.AVRO, SchemaType.JSON):
        return {}
    try:
        kind = parse_definition(info.data.decode())
    except (ConfigurationError, UnicodeDecodeError):
        return {}
    return dict(_described(kind, ()))


def _described(kind: AvroType, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each field, those of records in it behind it; a type of its own fields ends at a depth."""
    branches = kind.branches if isinstance(kind, Union) else (kind,)
    for record in branches:
        if isinstance(record, RecordOf) and len(path) < _MAX_DEPTH:
            for field in record.fields:
                inner = (*path, field.name)
                yield ".".join(inner), describe_type(field.type)
                yield from _described(field.type, inner)
