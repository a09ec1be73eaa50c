"""Arrow's binary and string columns as bytes and offsets, independent of type, nulls and slicing.

Bulk encoding uses two forms: offsets (int64, n + 1 of them) into contiguous bytes, to measure and
to split; and a ``pa.BinaryArray``, to join row by row.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping, Sequence
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

# Built from buffers: to convert a Python object pyarrow imports pandas, if that is installed, which
# would cost a new worker 140 ms (measured).
_ZEROS: Final = pa.py_buffer(bytes(8))
EMPTY: Final = pa.Array.from_buffers(pa.binary(), 1, [None, _ZEROS, pa.py_buffer(b"")])[0]
ZERO: Final = pa.Array.from_buffers(pa.int64(), 1, [None, _ZEROS])[0]
TRUE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(b"\1")])[0]
FALSE: Final = pa.Array.from_buffers(pa.bool_(), 1, [None, _ZEROS])[0]


def numbers_of(array: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the numbers of an array without nulls, uncopied. (``to_numpy`` imports pandas.)"""
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array))[array.offset :]


def array_of(numbers: Int64s) -> pa.Array:
    """Return the numbers as an Arrow array, for ``take``, uncopied and without pandas."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])


def cells_of(kind: pa.DataType) -> int:
    """Return the number of cells of a null in a column of ``kind``: a struct's null has one in each
    of its fields' columns, at every level; a null list or map has no items."""
    return 1 + sum(cells_of(one.type) for one in kind) if pa.types.is_struct(kind) else 1


def item_cells(kind: pa.DataType) -> int:
    """Return the number of cells of a null item of the list ``kind``, or of an entry of the map."""
    if pa.types.is_map(kind):
        return cells_of(kind.key_type) + cells_of(kind.item_type)
    return cells_of(kind.value_type)


def widest_item(kind: pa.DataType) -> int:
    """Return the greatest ``item_cells`` of the lists and maps in ``kind``; 0 without any."""
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    own = item_cells(kind) if pa.types.is_list(kind) or pa.types.is_map(kind) else 0
    return max([own, *map(widest_item, inner)])


def offsets_of(array: pa.Array) -> Int64s:
    """Return the n + 1 byte positions at which the rows of ``array`` begin and end in its data
    buffer, including null rows."""
    dtype = _OFFSET_TYPES[array.type]
    buffer = array.buffers()[1]
    if len(array) == 0 or buffer is None:
        return np.zeros(1, np.int64)  # an empty array may have no offsets at all
    offsets = np.frombuffer(buffer, dtype, count=array.offset + len(array) + 1)
    return offsets[array.offset :].astype(np.int64, copy=False)


@dataclass(frozen=True)
class BinaryColumn:
    """n rows of bytes without nulls: row i is ``data[offsets[i]:offsets[i + 1]]``."""

    offsets: Int64s
    data: pa.Buffer

    @classmethod
    def of(cls, array: pa.Array) -> BinaryColumn:
        """Convert a column of any binary or string type; a null becomes an empty row."""
        if array.null_count:  # Arrow allows null rows to have bytes
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
        """Whether all rows are empty."""
        return not self.offsets[-1]

    @property
    def lengths(self) -> Int64s:
        """The rows' lengths in bytes."""
        return np.diff(self.offsets)

    def array(self) -> pa.BinaryArray:
        """Return the rows as an Arrow array, without copying the bytes.

        Raises:
            OverflowError: the column has 2 GiB or more; Arrow's offsets are int32.
        """
        if self.offsets[-1] > np.iinfo(np.int32).max:
            raise OverflowError("A binary column of 2 GiB or more can't be joined at once.")
        offsets = pa.py_buffer(self.offsets.astype(np.int32))
        return pa.Array.from_buffers(pa.binary(), len(self), [None, offsets, self.data])

    def between(self, start: int, stop: int) -> pa.Buffer:
        """Return the concatenated bytes of the rows ``start`` to ``stop`` (not included)."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        return self.data.slice(first, last - first)


def valid_rows(column: pa.Array) -> Mask | None:
    """Return which rows are not null; None if no row is null."""
    if not column.null_count:
        return None
    valid: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def with_nulls_of(column: pa.Array, data: pa.BinaryArray) -> pa.BinaryArray:
    """Return ``data`` with the nulls of ``column``."""
    if not column.null_count:
        return data
    return pc.if_else(column.is_valid(), data, pa.scalar(None, pa.binary()))


def joined(pieces: list[pa.BinaryArray]) -> pa.BinaryArray:
    """Concatenate the pieces, which must not have nulls, row by row."""
    return pc.binary_join_element_wise(*pieces, EMPTY)


def as_base64(column: BinaryColumn) -> BinaryColumn:
    """Encode every row in base64 with padding, like Java's ``Base64.getEncoder()``."""
    # All rows are encoded in one call: each is copied to a multiple of three bytes and padded with
    # zeros, and the characters for the padding are replaced by ``=`` afterwards.
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
    """Return keys in their form on the wire: text as UTF-8, binary in base64; null becomes
    empty."""
    column = BinaryColumn.of(keys)
    return as_base64(column) if keys.type in BINARY_TYPES else column


def as_texts(column: pa.BinaryArray) -> tuple[pa.StringArray, Mask | None]:
    """Return the column as UTF-8 text, and the rows that are not UTF-8, which are null in it; None
    if there are none."""
    try:
        return column.cast(pa.string()), None
    except pa.ArrowInvalid:
        pass
    # Row by row: Arrow does not say which rows are invalid.
    bad = np.fromiter((not _is_text(one) for one in column.to_pylist()), np.bool_, len(column))
    good = column.take(pa.array(np.arange(len(column)), mask=bad))
    return good.cast(pa.string()), bad


def as_texts_of(column: pa.BinaryArray, charset: str) -> tuple[pa.StringArray, Mask]:
    """Return the column as text decoded from ``charset``, row by row; invalid rows are null."""
    texts = [None if data is None else _decoded(data, charset) for data in column.to_pylist()]
    found = pa.array(texts, pa.string())
    return found, found.is_null().to_numpy(False) & column.is_valid().to_numpy(False)


def _decoded(data: bytes, charset: str) -> str | None:
    marks = {"utf-16": (b"\xfe\xff", b"\xff\xfe"), "utf-32": (b"\0\0\xfe\xff", b"\xff\xfe\0\0")}
    if charset in marks and not data.startswith(marks[charset]):
        charset += "-be"  # Java's default without a byte order mark
    try:
        text = data.decode(charset)
        text.encode()  # fails on an unpaired surrogate
    except UnicodeError:
        return None
    return text


def _is_text(data: bytes | None) -> bool:
    try:
        return data is None or data.decode() is not None
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True)
class RowFailures:
    """Malformed rows: their numbers, in order, and a reason for each, without data."""

    rows: Int64s
    reasons: list[str]

    @classmethod
    def none(cls) -> RowFailures:
        """Return an object without rows."""
        return cls(np.zeros(0, np.int64), [])

    @classmethod
    def of(cls, bad: Mask | None, reason: str) -> RowFailures:
        """Return the rows of ``bad`` (None: no row), all with the same reason."""
        if bad is None:
            return cls.none()
        rows = np.flatnonzero(bad)
        return cls(rows, [reason] * len(rows))

    @classmethod
    def merged(cls, parts: Sequence[RowFailures]) -> RowFailures:
        """Return the rows of all parts; a row in several of them has the first one's reason."""
        reasons: dict[int, str] = {}
        for part in parts:
            for row, reason in zip(part.rows.tolist(), part.reasons, strict=True):
                reasons.setdefault(row, reason)
        return cls.by_row(reasons)

    @classmethod
    def by_row(cls, reasons: Mapping[int, str]) -> RowFailures:
        """Return the rows that have a reason, in order."""
        rows = sorted(reasons)
        return cls(np.array(rows, np.int64), [reasons[row] for row in rows])

    def __len__(self) -> int:
        return len(self.rows)

    def moved(self, rows: Int64s) -> RowFailures:
        """Return the failures with row i renumbered to ``rows[i]``, in order."""
        return RowFailures.merged([RowFailures(rows[self.rows], self.reasons)])
