"""Partitioned tables: splits batches by partition, and formats partition values as Delta does.

Source of the formats: Delta's protocol, "Partition Value Serialization". Of the two formats of a
timestamp only the one with ``Z`` means the same time to every reader: the other is read in the
session's time zone by Spark, and as UTC by ``deltalake`` (see docs/facts.md).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""Name of a partition's folder for a null value, by convention."""
_MAX_NAME_CHARS: Final = 120
"""Limit of a quoted name or value in a folder's name; both fit into a file system's 255 bytes."""

_EPOCH: Final = datetime(1970, 1, 1)

Values = Mapping[str, str | None]


def can_partition(kind: pa.DataType) -> bool:
    """Whether all readers read values of this type alike in a partition column.

    Not binary: ``deltalake`` 1.6 reads other bytes than Spark. Not decimals: with a value between
    -1 and 0 in a partition it can't read the table any more.
    """
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def split(batch: pa.RecordBatch, columns: tuple[str, ...]) -> Iterator[tuple[Values, Any]]:
    """Split the rows of ``batch`` by partition; yield each one's values, and the other columns.

    A partition may come more than once: ``""`` and null are one value to Delta.

    Raises:
        InputError: a value that no partition can have.
    """
    rest = batch.select([name for name in batch.schema.names if name not in columns])
    if not columns:
        yield {}, rest
        return
    codes = _codes([batch.column(name) for name in columns])
    order = pc.sort_indices(codes)
    ends = pc.run_end_encode(codes.take(order)).run_ends.to_pylist()
    starts = [0, *ends][:-1]
    rest = rest.take(order)
    firsts = batch.select(list(columns)).take(order.take(pa.array(starts, pa.int64())))
    values = {
        field.name: [_checked(value, field) for value in firsts.column(field.name)]
        for field in firsts.schema
    }
    for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
        yield {name: found[group] for name, found in values.items()}, rest.slice(start, end - start)


def _codes(columns: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row: equal if all values are equal."""
    codes: pa.Array | None = None
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        more = encoded.indices.cast(pa.int64())
        if codes is not None:
            # Numbered again each time: a product of all the counts might exceed 2^63.
            dense = codes.dictionary_encode().indices.cast(pa.int64())
            more = pc.add(pc.multiply(dense, len(encoded.dictionary)), more)
        codes = more
    return codes


def _checked(scalar: pa.Scalar, field: pa.Field) -> str | None:
    value = serialized(scalar, field.name)
    if value is None and not field.nullable:
        raise InputError(
            f"Column {field.name!r} takes no nulls, and as a partition column no empty text, "
            "which is null to Delta."
        )
    return value


def serialized(scalar: pa.Scalar, name: str) -> str | None:
    """Return a partition column's value as Delta writes it; None for null and for ``""``.

    Args:
        scalar: timestamps in microseconds.

    Raises:
        InputError: text that is not UTF-8, or a time before year 1 or after 9999.
    """
    if not scalar.is_valid:
        return None
    kind = scalar.type
    try:
        if pa.types.is_timestamp(kind):
            moment = _EPOCH + timedelta(microseconds=scalar.value)
            if kind.tz is None:
                return moment.isoformat(" ", "microseconds")
            return f"{moment.isoformat('T', 'microseconds')}Z"
        value = scalar.as_py()
    except (OverflowError, ValueError):
        raise InputError(
            f"Partition column {name!r}: text that is not UTF-8, or a year outside 1 to 9999."
        ) from None
    if pa.types.is_boolean(kind):
        return "true" if value else "false"
    if pa.types.is_floating(kind) and math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if pa.types.is_floating(kind) and math.isnan(value):
        return "NaN"
    return f"{value:f}" if pa.types.is_decimal(kind) else str(value) or None


def folder_of(values: Values) -> str:
    """Return the folder of a partition, ``a=1/b=x/`` relative to the table; "" without partitions.

    Only a convention: values are never read from it. Text that is too long for a file system is
    replaced by its hash.
    """
    return "".join(
        f"{_quoted(name)}={NULL_FOLDER if value is None else _quoted(value)}/"
        for name, value in values.items()
    )


def _quoted(text: str) -> str:
    quoted = quote(text, safe="")
    if len(quoted) <= _MAX_NAME_CHARS:
        return quoted
    return f"~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
