"""Reads single values (numbers, strings, bytes, decimals) for many rows at once (Avro 1.12, "Binary
encoding")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.wire.avro._avro_cursor import Cursor
from eos.wire.binary_columns import Int64s, Mask, as_texts
from eos.wire.byte_rows import Bytes
from eos.wire.decoding import Spans, gather

_INT32: Final = np.iinfo(np.int32)
_DECIMAL_BYTES: Final = 16  # of a decimal in Arrow
_MAX_MILLIS: Final = np.iinfo(np.int64).max // 1000


class Node(Protocol):
    """Reads data of one type as another one."""

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """Read a datum of the rows ``where`` (None: of all); the column is null in other rows."""


def column_of(values: npt.NDArray[Any], where: Mask | None) -> pa.Array:
    """Return a column of ``values``, null where ``where`` is false."""
    return pa.array(values, mask=None if where is None else ~where)


@dataclass(frozen=True)
class NullNode:
    """``null``: nothing is read."""

    path: str

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:  # noqa: ARG002
        """See ``Node``."""
        return pa.nulls(len(cursor))


@dataclass(frozen=True)
class IntegerNode:
    """``int`` and ``long``.

    Attributes:
        is_int: numbers have 32 bits.
        type: of a number, date or timestamp.
        factor: microseconds per unit of the number.
    """

    path: str
    is_int: bool
    type: pa.DataType
    factor: int = 1

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "int and long values are written using variable-length zig-zag coding."
        values = cursor.long(self.path, where)
        inside = True if where is None else where
        if self.is_int:  # fastavro accepts an int of 40 bits
            wrong = (values < _INT32.min) | (values > _INT32.max)
            cursor.fail(inside & wrong, self.path, "has more than 32 bits")
        if self.factor > 1:
            wrong = (values < -_MAX_MILLIS) | (values > _MAX_MILLIS)
            cursor.fail(inside & wrong, self.path, "is out of the range of timestamps")
            values = values * self.factor
        if pa.types.is_timestamp(self.type):
            return column_of(values, where).view(self.type)
        if pa.types.is_date32(self.type):
            return column_of(values.astype(np.int32), where).view(self.type)
        return column_of(values.astype(self.type.to_pandas_dtype(), copy=False), where)


@dataclass(frozen=True)
class FloatNode:
    """``float`` and ``double``; ``dtype``: the stored type."""

    path: str
    dtype: str
    type: pa.DataType

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        size = np.dtype(self.dtype).itemsize
        spans = cursor.take(size, self.path, where)
        block = np.lib.stride_tricks.sliding_window_view(cursor.buffer, size)[spans.at]
        values = block.view(self.dtype)[:, 0]
        return column_of(values.astype(self.type.to_pandas_dtype(), copy=False), where)


@dataclass(frozen=True)
class BooleanNode:
    """``boolean``."""

    path: str

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "A single byte whose value is either 0 (false) or 1 (true)." fastavro accepts a 7.
        spans = cursor.take(1, self.path, where)
        values = cursor.buffer[spans.at]
        cursor.fail((values > 1) & (spans.size > 0), self.path, "is neither true nor false")
        return column_of(values == 1, where)


@dataclass(frozen=True)
class BytesNode:
    """``string``, ``bytes``, and ``fixed`` if there is a ``size`` in bytes."""

    path: str
    type: pa.DataType
    size: int | None = None

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "A string is encoded as a long followed by that many bytes of UTF-8 encoded character
        # data."
        found = gather(cursor.buffer, take_bytes(cursor, self.size, self.path, where))
        if pa.types.is_binary(self.type):
            return found
        texts, bad = as_texts(found)
        if bad is not None:
            cursor.fail(bad, self.path, "is not UTF-8 text")
        return texts


@dataclass(frozen=True)
class EnumNode:
    """``enum``; ``symbols``: the reader's, in the writer's order; None for an unknown one."""

    path: str
    symbols: tuple[str | None, ...]

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "The zero-based position of the symbol in the schema."
        index = cursor.long(self.path, where)
        inside = np.ones(len(index), np.bool_) if where is None else where
        wrong = inside & ((index < 0) | (index >= len(self.symbols)))
        cursor.fail(wrong, self.path, "is not one of its enum's symbols")
        index = np.where(inside & ~wrong, index, 0)
        unknown = np.array([symbol is None for symbol in self.symbols])
        # "If the writer's symbol is not present in the reader's enum and the reader has a default
        # value, then that value is used, otherwise an error is signalled."
        cursor.fail(inside & unknown[index], self.path, "is a symbol that the reader does not know")
        symbols = pa.array(self.symbols, pa.string())
        return symbols.take(column_of(index, where))


def take_bytes(cursor: Cursor, size: int | None, path: str, where: Mask | None) -> Spans:
    """Read ``size`` bytes of each row; None: as many as the length before them says."""
    sizes: Int64s | int = cursor.long(path, where) if size is None else size
    return cursor.take(sizes, path, where)


@dataclass(frozen=True)
class DecimalNode:
    """A decimal in ``bytes``, or in ``fixed`` if there is a ``size`` in bytes."""

    path: str
    type: pa.Decimal128Type
    size: int | None

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        # "The byte array must contain the two's-complement representation of the unscaled integer
        # value in big-endian byte order", which may be of any length.
        spans = take_bytes(cursor, self.size, self.path, where)
        numbers, bad = _numbers(cursor.buffer, spans)
        bad |= ~_is_below(numbers, 10**self.type.precision)
        cursor.fail(bad & (spans.size >= 0), self.path, f"does not fit in {self.type}")
        valid = None if where is None else pa.array(where).buffers()[1]
        return pa.Array.from_buffers(self.type, len(cursor), [valid, pa.py_buffer(numbers)])


def _numbers(buffer: Bytes, spans: Spans) -> tuple[npt.NDArray[np.uint64], Mask]:
    """Return each number as 16 bytes, little endian, and which ones take more."""
    sizes = np.maximum(spans.size, 0)
    first = buffer[spans.at]
    sign = np.where((sizes > 0) & (first >= 0x80), np.uint8(0xFF), np.uint8(0))
    block = np.repeat(sign[:, None], _DECIMAL_BYTES, axis=1)
    last = spans.at + sizes - 1
    for nth in range(min(_DECIMAL_BYTES, int(sizes.max(initial=0)))):
        has = sizes > nth
        block[:, nth] = np.where(has, buffer[np.where(has, last - nth, 0)], sign)
    too_large = (block[:, -1] ^ sign) >= 0x80
    # The bytes before the last 16 must be just a sign extension.
    rest = np.maximum(sizes - _DECIMAL_BYTES, 0)
    for nth in range(min(_DECIMAL_BYTES, int(rest.max(initial=0)))):
        at = np.where(rest > nth, spans.at + nth, spans.at)
        too_large |= (buffer[at] != sign) & (rest > nth)
    for row in np.flatnonzero(rest > _DECIMAL_BYTES).tolist():  # few, and of any length
        more = buffer[spans.at[row] + _DECIMAL_BYTES : spans.at[row] + rest[row]]
        too_large[row] |= bool((more != sign[row]).any())
    return block.view("<u8"), too_large


def _is_below(numbers: npt.NDArray[np.uint64], limit: int) -> Mask:
    """Whether -limit < number < limit."""
    low, high = numbers[:, 0], numbers[:, 1].view(np.int64)

    def is_below(bound: int) -> Mask:
        top, bottom = bound >> 64, np.uint64(bound & (2**64 - 1))
        below: Mask = (high < top) | ((high == top) & (low < bottom))
        return below

    inside: Mask = is_below(limit) & ~is_below(1 - limit)
    return inside
