"""Rows as a table wants them: its columns and types, split by partition, values in Delta's format.

Source of the formats: Delta's protocol, "Partition Value Serialization".
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

from eos.delta.column_rules import DELTA, check, children, declared_text, nullable, plain
from eos.errors import InputError

NULL_FOLDER: Final = "__HIVE_DEFAULT_PARTITION__"
"""Name of a partition's folder for a null value, by convention."""
# ``deltalake`` names folders after values of any length, when it merges: limits of one name by file
# systems, and of all of them by S3, whose keys have 1,024 bytes.
_MAX_FOLDER_BYTES: Final = 255
_MAX_FOLDERS_BYTES: Final = 600
# Limit of a quoted name or value in a folder's name; both fit into a file system's 255 bytes.
_MAX_NAME_CHARS: Final = 120

_EPOCH: Final = datetime(1970, 1, 1)

Values = Mapping[str, str | None]


def conform(batch: pa.RecordBatch, schema: pa.Schema, table_format: str = DELTA) -> pa.RecordBatch:
    """Return the rows of ``batch`` with the columns of ``schema``, in their order and types.

    Raises:
        InputError: they don't fit, or a required column has a null.
    """
    check(batch.schema, schema, may_add=False, table_format=table_format)
    given = {name.lower(): at for at, name in enumerate(batch.schema.names)}
    arrays = [
        _column(pa.nulls(batch.num_rows) if at is None else batch.column(at), field)
        for field in schema
        for at in [given.get(field.name.lower())]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
    # A null struct with required fields is a valid value. Spark sets its fields to null as well,
    # which Parquet refuses ("declared non-nullable but contains nulls", pyarrow 26). So each level
    # is checked here, by its path, and validity bitmaps are dropped where the table has none.
    fitted = declared_text(_fitted(array, nullable(field.type)), field)
    _check_nulls(fitted, field, field.name)
    return _drop_validity(fitted, field) if _has_required_fields(field.type) else fitted


def _fitted(array: pa.Array, want: pa.DataType) -> pa.Array:
    """Cast ``array`` to a type with nulls at every level; fields of structs are matched by name."""
    if array.type == want:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), want)
    if pa.types.is_large_list(array.type):
        array = array.cast(plain(array.type))
    if pa.types.is_struct(want):
        return _fitted_struct(array, want)
    if pa.types.is_list(want):
        return _with_children(array, want, _fitted(array.values, want.value_type))
    if pa.types.is_map(want):
        keys, items = _fitted(array.keys, want.key_type), _fitted(array.items, want.item_type)
        return _with_children(array, want, _entries(keys, items, want))
    return array.cast(want)


def _fitted_struct(array: pa.StructArray, want: pa.StructType) -> pa.StructArray:
    given = {field.name.lower(): at for at, field in enumerate(array.type)}
    fields = array.flatten()
    return pa.StructArray.from_arrays(
        [
            _fitted(fields[at], field.type)
            if (at := given.get(field.name.lower())) is not None
            else pa.nulls(len(array), field.type)
            for field in want
        ],
        fields=list(want),
        mask=array.is_null(),
    )


def _with_children(array: pa.Array, kind: pa.DataType, items: pa.Array) -> pa.Array:
    """A list or a map with other items at the same offsets."""
    return pa.Array.from_buffers(
        kind,
        len(array),
        array.buffers()[:2],
        null_count=array.null_count,
        offset=array.offset,
        children=[items],
    )


def _entries(keys: pa.Array, items: pa.Array, kind: pa.MapType) -> pa.StructArray:
    return pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])


def _drop_validity(array: pa.Array, field: pa.Field) -> pa.Array:
    """The checked ``array`` with the field's own type, without validity if it is required."""
    # Values that become valid that way are below a null, and so never read.
    kind, parts = field.type, None
    if pa.types.is_struct(kind):
        inner = [_drop_validity(array.field(at), child) for at, child in enumerate(kind)]
        mask = array.is_null() if field.nullable else None
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        parts = [_drop_validity(array.values, kind.value_field)]
    elif pa.types.is_map(kind):
        keys = _drop_validity(array.keys, kind.key_field)
        items = _drop_validity(array.items, kind.item_field)
        parts = [_entries(keys, items, kind)]
    buffers = array.buffers()[: kind.num_buffers]
    marks = buffers[0] if field.nullable else None
    return pa.Array.from_buffers(
        kind, len(array), [marks, *buffers[1:]], -1, array.offset, children=parts
    )


def _check_nulls(array: pa.Array, field: pa.Field, path: str, null_parents: int = 0) -> None:
    """``null_parents``: number of rows that are null because the struct around them is."""
    # Parquet and Delta would not name the column, or not fail at all.
    if not field.nullable and array.null_count > null_parents:
        raise InputError(
            f"Column {path!r} takes no nulls, and has {array.null_count - null_parents} here.",
            hint=f"Replace them, for example with coalesce; or allow nulls: ALTER TABLE ... "
            f"ALTER COLUMN {path} DROP NOT NULL.",
        )
    if not _has_required_fields(field.type):
        return
    if pa.types.is_struct(field.type):
        for child, values in zip(field.type, array.flatten(), strict=True):
            _check_nulls(values, child, f"{path}.{child.name}", array.null_count)
        return
    if pa.types.is_map(field.type):
        entries = _entries(array.keys, array.items, array.type)
        items = _with_children(array, pa.list_(entries.type), entries).flatten().flatten()
    else:
        items = [array.flatten()]
    for (name, child), values in zip(children(field.type), items, strict=True):
        _check_nulls(values, child, f"{path}.{name}")


def _has_required_fields(kind: pa.DataType) -> bool:
    """Whether the type has a required field at some level, except for the keys of maps."""
    return any(
        (not child.nullable and not (pa.types.is_map(kind) and name == "key"))
        or _has_required_fields(child.type)
        for name, child in children(kind)
    )


def can_partition(kind: pa.DataType) -> bool:
    """Whether all readers read values of this type alike in a partition column."""
    # Not binary: deltalake 1.6 reads other bytes than Spark. Not decimals: with a value between -1
    # and 0 in a partition it can't read the table any more.
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def merges_alike(kind: pa.DataType) -> bool:
    """Whether a merge writes partition values of this type as ``serialized`` does."""
    # Not TIMESTAMP: deltalake 1.6 leaves out the Z. Not numbers with fractions: it writes "inf",
    # "-0", and 1e308 with all its digits, too many for a folder.
    return not pa.types.is_floating(kind) and getattr(kind, "tz", None) is None


def has_folders(values: Mapping[str, Any]) -> bool:
    """Whether a merge can write folders with the names of these partition values."""
    sizes = [
        len(f"{quote(name, safe='')}={quote(str(value), safe='')}")
        for name, value in values.items()
    ]
    return max(sizes, default=0) <= _MAX_FOLDER_BYTES and sum(sizes) <= _MAX_FOLDERS_BYTES


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
    firsts = batch.select(list(columns)).take(order.take(pa.array(starts, pa.int64())))
    values = {
        field.name: [_checked(value, field) for value in firsts.column(field.name)]
        for field in firsts.schema
    }
    for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
        # Copies: a slice would keep its whole batch in memory, for rare partitions to the end.
        rows = rest.take(order.slice(start, end - start))
        yield {name: found[group] for name, found in values.items()}, rows


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
            # Only this format means the same time to every reader: without the Z, Spark reads it in
            # the session's time zone, and deltalake as UTC (docs/facts.md).
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

    Only a convention: values are never read from it.
    """
    return "".join(
        f"{_quoted(name)}={NULL_FOLDER if value is None else _quoted(value)}/"
        for name, value in values.items()
    )


def _quoted(text: str) -> str:
    quoted = quote(text, safe="")
    if len(quoted) <= _MAX_NAME_CHARS:
        return quoted
    # Too long for a file system.
    return f"~{hashlib.sha256(text.encode()).hexdigest()[:32]}"
