"""Whether rows fit a table's columns, and making them fit: by name, with casts that lose nothing.

Names are compared as Spark does, without regard to case. Columns that rows lack are null. These
casts are made, also inside of structs; nothing else is:

==============================  ==========================================
from                            to
==============================  ==========================================
int8, int16, int32              a larger int
int8, int16, int32; float       double
int                             a decimal with room for all its digits
decimal                         a decimal with room before and behind the point
timestamp of any coarser unit   timestamp in microseconds
large or dictionary-encoded     the same as plain text or bytes
null                            anything
==============================  ==========================================
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from eos.errors import InputError

_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}


def check(have: pa.Schema, table: pa.Schema, *, may_add: bool) -> pa.Schema:
    """The table's columns after rows of the schema ``have`` were appended.

    Args:
        may_add: columns that the table lacks are added to it, behind the others (Delta's
            ``mergeSchema``); otherwise they are refused.

    Raises:
        InputError: they don't fit; the message names each column, with both types.
    """
    problems = _doubled(have)
    known = {field.name.lower(): field for field in table}
    given = {field.name.lower(): field for field in have}
    added = []
    for name, field in given.items():
        if name not in known:
            added.append(pa.field(field.name, _plain(field.type), nullable=True))
        elif not fits(field.type, known[name].type):
            problems.append(
                f"{known[name].name} is {known[name].type} in the table, and {field.type} here"
            )
    for name, field in known.items():
        if name not in given and not field.nullable:
            problems.append(f"{field.name} takes no nulls, and is missing here")
    if added and not may_add:
        names = ", ".join(f"{field.name} ({field.type})" for field in added)
        problems.append(f"the table lacks {names}")
    if problems:
        raise InputError(
            f"The rows don't fit the Delta table: {'; '.join(problems)}.",
            hint="Cast or drop the columns; merge_schema=True adds those that the table lacks."
            if added and not may_add
            else "Cast the columns to the table's types.",
        )
    return pa.schema([*table, *added])


def check_names(have: pa.Schema) -> None:
    """Check that no two columns have one name.

    Raises:
        InputError: two have, as Spark and Delta compare names.
    """
    doubled = _doubled(have)
    if doubled:
        raise InputError(
            f"The rows don't fit a Delta table: {'; '.join(doubled)}.", hint="Rename one of them."
        )


def fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether every value of the type ``have`` is one of ``want``, by the casts listed above."""
    have = _plain(have)
    if have == want or pa.types.is_null(have):
        return True
    if pa.types.is_signed_integer(have):
        if pa.types.is_signed_integer(want):
            return bool(have.bit_width <= want.bit_width)
        if pa.types.is_decimal(want):
            return bool(_DIGITS[have.bit_width] <= want.precision - want.scale)
        return bool(pa.types.is_float64(want) and have.bit_width <= 32)
    if pa.types.is_float32(have):
        return bool(pa.types.is_float64(want))
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        room = want.precision - want.scale >= have.precision - have.scale
        return bool(want.scale >= have.scale and room)
    if pa.types.is_struct(have) and pa.types.is_struct(want):
        return _struct_fits(have, want)
    if pa.types.is_list(have) and pa.types.is_list(want):
        return _inside_fits(have.value_type, want.value_type)
    if pa.types.is_map(have) and pa.types.is_map(want):
        return _inside_fits(have.key_type, want.key_type) and _inside_fits(
            have.item_type, want.item_type
        )
    return False


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of ``batch`` in the columns of ``schema``, in their order and with their types.

    Raises:
        InputError: they don't fit, or there is a null where the table takes none.
    """
    if batch.schema.equals(schema):
        arrays = batch.columns
    else:
        check(batch.schema, schema, may_add=False)
        given = {name.lower(): at for at, name in enumerate(batch.schema.names)}
        arrays = [
            _conformed(batch.column(at), field.type)
            if (at := given.get(field.name.lower())) is not None
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
    for array, field in zip(arrays, schema, strict=True):
        _check_nulls(array, field, field.name)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conformed(array: pa.Array, want: pa.DataType) -> pa.Array:
    if array.type == want:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), want)
    if not pa.types.is_struct(want) or not pa.types.is_struct(array.type):
        return array.cast(want)
    given = {field.name.lower(): at for at, field in enumerate(array.type)}
    children = array.flatten()
    return pa.StructArray.from_arrays(
        [
            _conformed(children[at], field.type)
            if (at := given.get(field.name.lower())) is not None
            else pa.nulls(len(array), field.type)
            for field in want
        ],
        fields=list(want),
        mask=array.is_null(),
    )


def _check_nulls(array: pa.Array, field: pa.Field, name: str) -> None:
    """Parquet and Delta would not say which column it was, or nothing at all."""
    if not field.nullable and array.null_count:
        raise InputError(f"column {name!r} takes no nulls, and has {array.null_count} here.")
    if not pa.types.is_struct(field.type):
        return
    inside = array.filter(array.is_valid()) if array.null_count else array
    for child, values in zip(field.type, inside.flatten(), strict=True):
        _check_nulls(values, child, f"{name}.{child.name}")


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type that Delta has for it."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in ("s", "ms", "us"):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_large_list(kind):
        return pa.list_(kind.value_field)
    return kind


def _doubled(have: pa.Schema) -> list[str]:
    names = [name.lower() for name in have.names]
    return [f"{name} is there twice" for name in sorted(set(names)) if names.count(name) > 1]


def _struct_fits(have: pa.DataType, want: pa.DataType) -> bool:
    given = {field.name.lower(): field for field in have}
    known = {field.name.lower(): field for field in want}
    return (
        len(given) == have.num_fields
        and given.keys() <= known.keys()
        and all(fits(field.type, known[name].type) for name, field in given.items())
        and all(field.nullable for name, field in known.items() if name not in given)
    )


def _inside_fits(have: pa.DataType, want: pa.DataType) -> bool:
    """Inside of lists and maps, where structs are not put in order."""
    if not pa.types.is_struct(have) or not pa.types.is_struct(want):
        return fits(have, want)
    return [field.name for field in have] == [field.name for field in want] and all(
        _inside_fits(one.type, other.type) for one, other in zip(have, want, strict=True)
    )
