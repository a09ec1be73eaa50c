"""Arrow's binary columns as plain bytes and offsets, whatever their type, nulls and slicing.

Everything that is encoded here in bulk goes through two forms: offsets (int64, n + 1 of them) into
one run of bytes, to measure and to cut; and a ``pa.BinaryArray``, to join row by row.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_OFFSET_TYPES: Final[dict[Any, type[np.signedinteger[Any]]]] = {
    pa.binary(): np.int32,
    pa.string(): np.int32,
    pa.large_binary(): np.int64,
    pa.large_string(): np.int64,
}
BINARY_TYPES: Final = frozenset({pa.binary(), pa.large_binary()})
STRING_TYPES: Final = frozenset({pa.string(), pa.large_string()})

# Made of bytes. What pyarrow makes of a Python object it asks pandas about, if that is installed: a
# new worker would import it for that alone (140 ms, measured).
_ZEROS: Final = pa.py_buffer(bytes(8))
EMPTY: Final = pa.Array.from_buffers(pa.binary(), 1, [None, _ZEROS, pa.py_buffer(b"")])[0]
ZERO: Final = pa.Array.from_buffers(pa.int64(), 1, [None, _ZEROS])[0]
TRUE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\1")])[0]
FALSE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, _ZEROS])[0]


def numbers_of(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers of an array without nulls, as they lie there; ``to_numpy`` asks pandas."""
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array))[array.offset :]


def array_of(numbers: Int64s) -> pa.Array:
    """The numbers as Arrow has them, for ``take``; nothing is copied, and nobody asks pandas."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def offsets_of(array: pa.Array) -> Int64s:
    """Where the rows of ``array`` begin and end in its data buffer: n + 1 positions in bytes.

    The extent of a null row counts too: Arrow lets it be non-empty.
    """
    dtype = _OFFSET_TYPES[array.type]
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(1, np.int64)  # an empty array may have no offsets at all
    offsets = np.frombuffer(buffer, dtype, count=array.offset + len(array) + 1)
    return offsets[array.offset :].astype(np.int64, copy=False)


@dataclass(frozen=True)
class BinaryColumn:
    """n rows of bytes without nulls: row i is ``data[offsets[i]:offsets[i + 1]]``, from 0 on."""

    offsets: Int64s
    data: pa.Buffer

    @classmethod
    def of(cls, array: pa.Array) -> BinaryColumn:
        """A column of any of the four binary and string types; a null becomes an empty row."""
        if array.null_count:
            array = pc.fill_null(array, EMPTY.cast(array.type))
        offsets = offsets_of(array)
        first, last = int(offsets[0]), int(offsets[-1])
        data = array.buffers()[2]
        if data is None:
            data = pa.py_buffer(b"")
        return cls(offsets - first, data.slice(first, last - first))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def is_blank(self) -> bool:
        """Whether no row has a byte."""
        return not self.offsets[-1]

    @property
    def lengths(self) -> Int64s:
        """The rows' lengths in bytes."""
        return np.diff(self.offsets)

    def array(self) -> pa.BinaryArray:
        """The same rows for Arrow's functions, without a copy of the bytes.

        Raises:
            OverflowError: 2 GiB or more in all; Arrow counts these in int32.
        """
        if self.offsets[-1] > np.iinfo(np.int32).max:
            raise OverflowError("a binary column of 2 GiB or more can't be joined in one go.")
        offsets = pa.py_buffer(self.offsets.astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self), [None, offsets, self.data])

    def between(self, start: int, stop: int) -> pa.Buffer:
        """The bytes of the rows ``start`` to ``stop`` (not included), one after the other."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        return self.data.slice(first, last - first)


def valid_rows(column: pa.Array) -> Mask | None:
    """Which rows are not null; None when all are."""
    if not column.null_count:
        return None
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def with_nulls_of(column: pa.Array, data: pa.BinaryArray) -> pa.BinaryArray:
    """``data``, null where ``column`` is."""
    if not column.null_count:
        return data
    return pc.if_else(column.is_valid(), data, pa.scalar(None, pa.binary()))


def joined(pieces: list[pa.BinaryArray]) -> pa.BinaryArray:
    """Row by row, the pieces one after the other. None has nulls: a null would swallow its row."""
    return pc.binary_join_element_wise(*pieces, EMPTY)


def as_base64(column: BinaryColumn) -> BinaryColumn:
    """Every row in base64 with padding, as Java's ``Base64.getEncoder()`` writes it.

    All rows are encoded in one call: each is laid out from a multiple of three bytes on, filled up
    with zeros, and the letters that stand for filling become ``=`` afterwards.
    """
    lengths = column.lengths
    groups = np.zeros(len(column) + 1, np.int64)
    np.cumsum((lengths + 2) // 3, out=groups[1:])
    padded = np.zeros(int(groups[-1]) * 3, np.uint8)
    shifts = np.repeat(groups[:-1] * 3 - column.offsets[:-1], lengths)
    padded[np.arange(len(shifts)) + shifts] = np.frombuffer(column.data, np.uint8)
    text = np.array(np.frombuffer(binascii.b2a_base64(padded.data, newline=False), np.uint8))
    ends = groups[1:] * 4
    text[ends[lengths % 3 != 0] - 1] = ord("=")
    text[ends[lengths % 3 == 1] - 2] = ord("=")
    return BinaryColumn(groups * 4, pa.py_buffer(text))


def key_text(keys: pa.Array) -> BinaryColumn:
    """Keys as they stand on the wire: UTF-8 text as it is, binary in base64; null becomes empty."""
    column = BinaryColumn.of(keys)
    return as_base64(column) if keys.type in BINARY_TYPES else column
