"""Rows in the columns of a table: in its order, with its types, and without a null where it takes
none.

A null struct whose fields take no nulls is a value like others. Spark marks its fields null as
well, for which Parquet refuses it ("declared non-nullable but contains nulls", ``pyarrow`` 26); so
each level is checked here, by its whole path, and its marks are left out where the table has none.
"""

from __future__ import annotations

import pyarrow as pa

from eos.delta._char_columns import declared_text
from eos.delta.columns import check, children, nullable, plain
from eos.errors import InputError


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of ``batch`` in the columns of ``schema``, in their order and with their types.

    Raises:
        InputError: they don't fit, or there is a null where the table takes none.
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
    return _unmarked(fitted, field) if _demands(field.type) else fitted


def _fitted(array: pa.Array, want: pa.DataType) -> pa.Array:
    """``array`` as a type that has nulls at every level; structs are put in order by name."""
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
    """``array``, a list or a map, with other items in the same places."""
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


def _unmarked(array: pa.Array, field: pa.Field) -> pa.Array:
    """``array``, that was checked, with the field's own type and no marks where it takes no nulls.

    What is left unmarked that way is below a null, where nobody looks at it.
    """
    kind, parts = field.type, None
    if pa.types.is_struct(kind):
        inner = [_unmarked(array.field(at), child) for at, child in enumerate(kind)]
        mask = array.is_null() if field.nullable else None
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        parts = [_unmarked(array.values, kind.value_field)]
    elif pa.types.is_map(kind):
        keys = _unmarked(array.keys, kind.key_field)
        items = _unmarked(array.items, kind.item_field)
        parts = [_entries(keys, items, kind)]
    buffers = array.buffers()[: kind.num_buffers]
    marks = buffers[0] if field.nullable else None
    return pa.Array.from_buffers(
        kind, len(array), [marks, *buffers[1:]], -1, array.offset, children=parts
    )


def _check_nulls(array: pa.Array, field: pa.Field, path: str, null_parents: int = 0) -> None:
    """Parquet and Delta would not say which column it was, or nothing at all.

    Args:
        null_parents: so many rows are null because the struct around them is.
    """
    if not field.nullable and array.null_count > null_parents:
        raise InputError(
            f"column {path!r} takes no nulls, and has {array.null_count - null_parents} here.",
            hint=f"Fill them in, coalesce for one; or let the table take them: ALTER TABLE ... "
            f"ALTER COLUMN {path} DROP NOT NULL.",
        )
    if not _demands(field.type):
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


def _demands(kind: pa.DataType) -> bool:
    """Whether somewhere inside the table takes no nulls; a map's keys never are."""
    return any(
        (not child.nullable and not (pa.types.is_map(kind) and name == "key"))
        or _demands(child.type)
        for name, child in children(kind)
    )
