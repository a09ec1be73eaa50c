"""Checks that rows can be written, before anything is sent."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import InputError, MessageTooLarge
from eos.wire.batch._batch_rows import Rows, map_offsets
from eos.wire.batch._metadata import message_sizes
from eos.wire.binary_columns import STRING_TYPES, TRUE, ZERO, Int64s

_CLEAN: Final = "Casting binary to string produces such text. Clean it, or use binary."


def check_rows(rows: Rows, max_message_bytes: int) -> None:
    """Raise if a row can't be written. Errors have its number in ``rows``, from 0.

    ``max_message_bytes`` limits a message's part of a batch payload: its value, key, properties and
    metadata. It must leave room for the rest of a frame (the broker allows 10 KiB).

    Raises:
        InputError: a value is null and tombstones are not enabled; a tombstone has no key; a
            property's value is null; an event time is negative; text is not UTF-8.
        MessageTooLarge: a message is larger than ``max_message_bytes``.
    """
    check_values(rows)
    key = rows.key
    if key is not None and key.type in STRING_TYPES and (row := first_not_utf8(key)) >= 0:
        raise not_utf8("key", row)
    times = rows.event_time_ms
    if times is not None and (row := first_true(pc.less(times, ZERO))) >= 0:
        raise InputError(
            f"Column 'event_time' is negative in row {row}.",
            hint="Pulsar has no times before 1970: leave the event time of such rows null, and put "
            "it into the value or a property.",
        )
    if rows.properties is not None:
        _check_properties(rows.properties)
    _check_sizes(rows, max_message_bytes)


def check_values(rows: Rows) -> None:
    """Raise ``InputError`` if a value is null and is not a valid tombstone."""
    if not rows.value.null_count:
        return
    if not rows.tombstones:
        raise InputError(
            f"Column 'value' is null in row {first_true(rows.value.is_null())}.",
            hint="Filter such rows out, use an empty value, or write them as tombstones: "
            'null_values="tombstone".',
        )
    if rows.keyless_tombstones:
        return
    keyless = rows.value.is_null()
    if rows.key is not None:
        keyless = pc.and_(keyless, rows.key.is_null())
    if (row := first_true(keyless)) >= 0:
        raise InputError(
            f"Column 'value' is null in row {row}, which has no key.",
            hint="A tombstone deletes a key: set the key, or filter such rows out.",
        )


def _check_properties(maps: pa.MapArray) -> None:
    offsets = map_offsets(maps)
    first, last = int(offsets[0]), int(offsets[-1])
    keys = maps.keys.slice(first, last - first)
    items = maps.items.slice(first, last - first)
    if items.null_count:
        # The entries of a null map are not written, so they may be null. Keys can't be null: Arrow
        # rejects such a map.
        written = np.repeat(maps.is_valid().to_numpy(zero_copy_only=False), np.diff(offsets))
        entry = first_true(pc.and_(items.is_null(), pa.array(written)))
        if entry >= 0:
            row = _row_of(entry, offsets)
            raise InputError(
                f"Column 'properties' has a null value in row {row}.",
                hint="Omit the key (map_filter), or use an empty string.",
            )
    for column in (keys, items):
        if (entry := first_not_utf8(column)) >= 0:
            raise not_utf8("properties", _row_of(entry, offsets))


def check_texts(column: pa.Array, path: str = "") -> None:
    """Raise ``InputError`` if a text in ``column``, at any depth, is not UTF-8: no reader accepts
    such a value. The error names the field."""
    kind = column.type
    if kind in STRING_TYPES and not _is_utf8(column):
        where = f"Field {path.lstrip('.')!r}" if path else "The value"
        raise InputError(f"{where} has text that is not UTF-8.", hint=_CLEAN)
    if pa.types.is_struct(kind):
        for field, child in zip(kind, column.flatten(), strict=True):
            check_texts(child, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        offsets = map_offsets(column)
        first, last = int(offsets[0]), int(offsets[-1])
        for child in (column.keys, column.items):
            check_texts(child.slice(first, last - first), f"{path}{{}}")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        check_texts(column.flatten(), f"{path}[]")


def _row_of(entry: int, offsets: Int64s) -> int:
    """Return the row whose map contains an entry, numbered from the first map's first entry."""
    return int(np.searchsorted(offsets, offsets[0] + entry, side="right")) - 1


def first_not_utf8(text: pa.Array) -> int:
    """Return the position of the first row that is not UTF-8, or -1."""
    if _is_utf8(text):
        return -1
    start, stop = 0, len(text)  # it is between them
    while stop - start > 1:
        middle = (start + stop) // 2
        if _is_utf8(text.slice(start, middle - start)):
            start = middle
        else:
            stop = middle
    return start


def _is_utf8(text: pa.Array) -> bool:
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:  # its message would show the data
        return False
    return True


def not_utf8(name: str, row: int) -> InputError:
    """Return the error for a column whose ``row`` is not UTF-8."""
    return InputError(
        f"Column {name!r} has text that is not UTF-8 in row {row}.",
        hint=_CLEAN,
    )


def _check_sizes(rows: Rows, max_message_bytes: int) -> None:
    # Upper bounds are cheap, and usually suffice; only rows above the limit are measured exactly.
    suspects = np.flatnonzero(np.diff(rows.size_bounds()) > max_message_bytes)
    if not len(suspects):
        return
    sizes = message_sizes(rows.take(suspects))
    if (worst := int(np.argmax(sizes > max_message_bytes))) or sizes[0] > max_message_bytes:
        raise MessageTooLarge(
            f"Row {suspects[worst]} takes {sizes[worst]} bytes; the limit is {max_message_bytes}.",
            hint="Raise maxMessageSize on brokers and bookies, or write smaller messages: "
            "transactions do not support chunks. The limit applies before compression.",
        )


def first_true(flags: pa.BooleanArray) -> int:
    """Return the position of the first true flag, or -1; nulls are not true."""
    position: int = pc.index(flags, TRUE).as_py()
    return position
