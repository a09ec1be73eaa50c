"""Helpers for tests of reading."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from eos.schemas import Schema
from eos.schemas.reading import (
    DecodedValues,
    SchemaVersion,
    TooMuchAtOnce,
    ValueReader,
    value_reader,
)
from eos.wire.binary_columns import RowFailures
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
    found = in_parts(reader, pa.array(values, pa.binary()))
    found.columns.validate(full=True)
    assert found.columns.schema == reader.schema
    assert found.columns.num_rows == len(values)
    return found


def in_parts(
    reader: ValueReader, values: pa.Array, writer: SchemaVersion | None = None
) -> DecodedValues:
    """As the source decodes them."""
    try:
        return reader.decode(values, writer=writer)
    except TooMuchAtOnce:
        half = len(values) // 2
        one, other = (in_parts(reader, some, writer) for some in (values[:half], values[half:]))
        rows = pa.Table.from_batches([one.columns, other.columns]).combine_chunks()
        moved = other.failures.moved(np.arange(half, len(values)))
        return DecodedValues(rows.to_batches()[0], RowFailures.merged([one.failures, moved]))


def reasons(found: DecodedValues) -> dict[int, str]:
    return dict(zip(found.failures.rows.tolist(), found.failures.reasons, strict=True))
