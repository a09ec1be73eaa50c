"""Converts Python objects to Arrow columns, for single messages and the reports of tasks."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

# Columns are built from buffers: ``pa.array`` would import pandas, which costs a new worker 140 ms
# for its first message (measured); values also take half the time so.
_MAX_BYTES: Final = 2**31 - 1  # of a column with 32 bit offsets
PROPERTIES: Final = pa.map_(pa.string(), pa.string())


def bytes_column(items: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return bytes, or text as UTF-8, in a column of ``kind``, binary or string; None is a null.

    Raises:
        TypeError, ValueError: an item is of another type, or all together are too large.
    """
    validity, nulls = _validity(items)
    pieces = [b"" if item is None else _bytes(item) for item in items]
    data = pa.py_buffer(b"".join(pieces))
    offsets = _offsets([len(piece) for piece in pieces])
    return pa.Array.from_buffers(kind, len(items), [validity, offsets, data], nulls)


def numbers_column(items: Sequence[Any]) -> pa.Array:
    """Return numbers, truncated to integers, in a column of int64; None is a null.

    Raises:
        TypeError, ValueError, OverflowError: an item is of another type, or too large.
    """
    validity, nulls = _validity(items)
    numbers = array("q", [0 if item is None else _integer(item) for item in items])
    return pa.Array.from_buffers(pa.int64(), len(items), [validity, pa.py_buffer(numbers)], nulls)


def maps_column(items: Sequence[Mapping[str, str] | None]) -> pa.MapArray:
    """Return a column of properties; None is a null.

    Raises:
        TypeError, ValueError: a key or a value is not text.
    """
    keys = [key for one in items if one is not None for key in one]
    if None in keys:
        raise TypeError("a key must not be None")
    values = [value for one in items if one is not None for value in one.values()]
    entries = pa.StructArray.from_arrays(
        [bytes_column(keys, pa.string()), bytes_column(values, pa.string())],
        fields=[PROPERTIES.key_field, PROPERTIES.item_field],
    )
    validity, nulls = _validity(items)
    offsets = _offsets([0 if one is None else len(one) for one in items])
    return pa.Array.from_buffers(PROPERTIES, len(items), [validity, offsets], nulls, 0, [entries])


def text_row(**texts: str | None) -> pa.RecordBatch:
    """Make a batch of one row, with a column for each text."""
    columns = [bytes_column([text], pa.string()) for text in texts.values()]
    return pa.RecordBatch.from_arrays(columns, list(texts))


def _validity(items: Sequence[Any]) -> tuple[pa.Buffer | None, int]:
    """Return Arrow's validity bitmap (None if no item is None), and the number of nulls."""
    nulls = sum(item is None for item in items)
    if not nulls:
        return None, 0
    bits = np.packbits([item is not None for item in items], bitorder="little")
    return pa.py_buffer(bits), nulls


def _bytes(item: Any) -> bytes:
    if type(item) is bytes:
        return item
    return item.encode() if isinstance(item, str) else bytes(memoryview(item))


def _integer(item: Any) -> int:
    if isinstance(item, str | bytes | bool):  # int() would accept them
        raise TypeError(f"{type(item).__name__} is not a number")
    return int(item)


def _offsets(lengths: list[int]) -> pa.Buffer:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _MAX_BYTES:
        raise ValueError("too many bytes for one column")
    return pa.py_buffer(offsets.astype(np.int32))
