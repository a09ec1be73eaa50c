"""Helpers for tests of reading."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from eos.schemas import Schema
from eos.schemas.reading import DecodedValues, SchemaVersion, value_reader
from eos.wire.commands import SchemaInfo, SchemaType


def version(kind: SchemaType, definition: Any = None, number: int = 0) -> SchemaVersion:
    data = b"" if definition is None else json.dumps(definition).encode()
    return SchemaVersion(SchemaInfo(type=kind, data=data), number)


def record(*fields: Any, name: str = "r") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def has(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decode(
    registered: SchemaVersion | None,
    values: list[bytes | None],
    as_schema: Schema | None = None,
) -> DecodedValues:
    reader = value_reader(registered, as_schema=as_schema)
    found = reader.decode(pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert found.columns.schema == reader.schema
    assert found.columns.num_rows == len(values)
    return found


def reasons(found: DecodedValues) -> dict[int, str]:
    return dict(zip(found.failures.rows.tolist(), found.failures.reasons, strict=True))
