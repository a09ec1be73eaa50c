"""Converts rows to the columns of a table: order, types, and no null in a required column.

A null struct with required fields is a valid value. Spark sets its fields to null as well, which
Parquet refuses ("declared non-nullable but contains nulls", ``pyarrow`` 26). So each level is
checked here, by its whole path, and validity bitmaps are dropped where the table has none.
"""

from __future__ import annotations

import pyarrow as pa

from eos.delta.column_rules import check, children, declared_text, nullable, plain
from eos.errors import InputError


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of ``batch`` with the columns of ``schema``, in their order and types.

    Raises:
        InputError: they don't fit, or a required column has a null.
    """
    check(batch.schema, schema, may_add=False)
    given = {name.lower(): at for at, name in enumerate(batch.schema.names)}
    arrays = [
        _column(pa.nulls(batch.num_rows) if at is None else batch.column(at), field)
        for field in schema
        for at in [given.get(field.name.lower())]
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(array: pa.Array, field: pa.Field) -> pa.Array:
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
    """Return ``array``, a list or a map, with other items at the same offsets."""
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
    """Return the checked ``array`` with the field's own type, without validity if it is required.

    Values that become valid that way are below a null, and so never read.
    """
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
    """Check required fields here: Parquet and Delta would not name the column, or not fail at all.

    Args:
        null_parents: number of rows that are null because the struct around them is.
    """
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
    """Whether the type has a required field at some level; keys of maps, always required, are
    ignored."""
    return any(
        (not child.nullable and not (pa.types.is_map(kind) and name == "key"))
        or _has_required_fields(child.type)
        for name, child in children(kind)
    )
