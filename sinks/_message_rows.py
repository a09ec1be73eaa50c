"""Columns of messages as rows that can be encoded; and what is said to be a tombstone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError
from eos.wire.batch import Rows, text_keys
from eos.wire.columns import FALSE, TRUE


def message_rows(batch: pa.RecordBatch, *, tombstones: bool, is_pair: bool) -> Rows:
    """The rows of ``batch``, whose values are bytes by now.

    Args:
        tombstones: a null value is one. A column ``is_tombstone`` goes before it.
        is_pair: there is a ``key`` only where it is the pair's: the message's own is
            ``message_key``.

    Raises:
        InputError: of a key nobody says of which kind it is, or a text is not UTF-8; a value is
            null, and said to be no tombstone.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    has_key_of_pair = is_pair and "key" in columns
    key = columns.get("key") if has_key_of_pair or not is_pair else columns.get("message_key")
    is_binary = None if has_key_of_pair else columns.get("key_is_binary")
    is_base64 = None
    if key is not None and is_binary is not None:
        key, is_base64 = text_keys(key, is_binary)
    said = columns.get("is_tombstone")
    if said is not None:
        _check_nulls_are_said(columns["value"], said)
    return Rows(
        value=columns["value"],
        key=key,
        key_is_base64=is_base64,
        event_time_ms=columns.get("event_time"),
        properties=columns.get("properties"),
        ordering_key=columns.get("ordering_key"),
        tombstones=tombstones or said is not None,
        keyless_tombstones=said is not None,
    )


def without_tombstones(values: pa.Array, said: pa.BooleanArray, *, is_json: bool) -> pa.Array:
    """``values``, null where a row is said to be a tombstone.

    Args:
        values: before they are encoded. Of a record whose fields are all null nothing is lost.
        is_json: a struct has become JSON text.

    Raises:
        InputError: such a row has a value.
    """
    are_so = pc.fill_null(said, FALSE)
    if not pc.any(are_so).as_py():
        return values
    row = pc.index(pc.and_(are_so, _has_content(values, is_json=is_json)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is not null in row {row}, which __isTombstone says is a tombstone.",
            hint="Make the value null there, or __isTombstone false.",
        )
    mask = are_so.to_numpy(zero_copy_only=False)
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


def _check_nulls_are_said(values: pa.Array, said: pa.BooleanArray) -> None:
    is_one = pc.fill_null(said, FALSE)
    row = pc.index(pc.and_(values.is_null(), pc.invert(is_one)), TRUE).as_py()
    if row >= 0:
        raise InputError(
            f"Column 'value' is null in row {row}, and __isTombstone is not true there.",
            hint="Make it true where a null is a tombstone, or filter such rows out.",
        )
