"""Converts columns of messages to rows that can be encoded; checks values against tombstones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError
from eos.wire.batch import Rows, text_keys
from eos.wire.binary_columns import FALSE, TRUE


def message_rows(batch: pa.RecordBatch, *, tombstones: bool, is_pair: bool) -> Rows:
    """Convert ``batch``, whose values are encoded already, to rows.

    Args:
        tombstones: whether null values are tombstones. A column ``is_tombstone`` overrides it.
        is_pair: a column ``key`` is the pair's; the message's own key is ``message_key``.

    Raises:
        InputError: a key's kind is unknown, a text is not UTF-8, or a value is null and is not
            marked as a tombstone.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    has_key_of_pair = is_pair and "key" in columns
    key = columns.get("key") if has_key_of_pair or not is_pair else columns.get("message_key")
    is_binary = None if has_key_of_pair else columns.get("key_is_binary")
    is_base64 = None
    if key is not None and is_binary is not None:
        key, is_base64 = text_keys(key, is_binary)
    marked = columns.get("is_tombstone")
    if marked is not None:
        _check_nulls_are_marked(columns["value"], marked)
    return Rows(
        value=columns["value"],
        key=key,
        key_is_base64=is_base64,
        event_time_ms=columns.get("event_time"),
        properties=columns.get("properties"),
        ordering_key=columns.get("ordering_key"),
        tombstones=tombstones or marked is not None,
        keyless_tombstones=marked is not None,
    )


def without_tombstones(values: pa.Array, marked: pa.BooleanArray, *, is_json: bool) -> pa.Array:
    """Return ``values`` with nulls in the rows that are marked as tombstones.

    Args:
        values: before they are encoded. A record whose fields are all null counts as no value.
        is_json: structs are JSON text already.

    Raises:
        InputError: such a row has a value.
    """
    tombstones = pc.fill_null(marked, FALSE)
    if not pc.any(tombstones).as_py():
        return values
    row = pc.index(pc.and_(tombstones, _has_content(values, is_json=is_json)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is not null in row {row}, where __isTombstone is true.",
            hint="Make the value null there, or __isTombstone false.",
        )
    mask = tombstones.to_numpy(zero_copy_only=False)
    return values.take(pa.array(np.arange(len(values)), mask=mask))


def _has_content(values: pa.Array, *, is_json: bool) -> pa.BooleanArray:
    found = values.is_valid()
    if is_json:
        return pc.and_(found, pc.fill_null(pc.not_equal(values, "{}"), FALSE))
    if pa.types.is_struct(values.type):
        some = [pc.and_(found, field.is_valid()) for field in values.flatten()]
        for field in some[1:]:
            some[0] = pc.or_(some[0], field)
        return some[0] if some else found
    return found


def _check_nulls_are_marked(values: pa.Array, marked: pa.BooleanArray) -> None:
    tombstones = pc.fill_null(marked, FALSE)
    row = pc.index(pc.and_(values.is_null(), pc.invert(tombstones)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is null in row {row}, where __isTombstone is not true.",
            hint="Make it true if the row is a tombstone, or filter such rows out.",
        )
