"""Reading single values: numbers, text, bytes, of many rows at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.wire.avro._cursor import Cursor
from eos.wire.columns import Int64s, Mask
from eos.wire.decoding import Spans, gather
from eos.wire.utf8 import as_texts

_INT32: Final = np.iinfo(np.int32)
_MAX_MILLIS: Final = np.iinfo(np.int64).max // 1000


class Node(Protocol):
    """How one type is read as another one."""

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """The next datum of the rows ``where`` (None: of all) as a column, null in others."""


def column_of(values: npt.NDArray[Any], where: Mask | None) -> pa.Array:
    """``values``, null where ``where`` is false."""
    return pa.array(values, mask=None if where is None else ~where)


@dataclass(frozen=True)
class NullNode:
    """Nothing is read."""

    path: str

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:  # noqa: ARG002
        """See ``Node``."""
        return pa.nulls(len(cursor))


@dataclass(frozen=True)
class WholeNode:
    """``int`` and ``long``.

    Attributes:
        is_int: numbers have 32 bits.
        type: a number's, or that of a day or moment.
        factor: microseconds in each unit of the number.
    """

    path: str
    is_int: bool
    type: pa.DataType
    factor: int = 1

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        values = cursor.long(self.path, where)
        if self.is_int:
            inside = np.ones(len(values), np.bool_) if where is None else where
            wrong = (values < _INT32.min) | (values > _INT32.max)
            cursor.fail(inside & wrong, self.path, "has more than 32 bits")
        if self.factor > 1:
            inside = np.ones(len(values), np.bool_) if where is None else where
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
    """``float`` and ``double``; ``dtype``: how it is stored."""

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
        spans = cursor.take(1, self.path, where)
        values = cursor.buffer[spans.at]
        cursor.fail((values > 1) & (spans.size > 0), self.path, "is neither true nor false")
        return column_of(values == 1, where)


@dataclass(frozen=True)
class BlobNode:
    """``string``, ``bytes``, and ``fixed`` where there is a size in bytes."""

    path: str
    type: pa.DataType
    size: int | None = None

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        found = gather(cursor.buffer, take_blob(cursor, self.size, self.path, where))
        if pa.types.is_binary(self.type):
            return found
        texts, bad = as_texts(found)
        if bad is not None:
            cursor.fail(bad, self.path, "is no UTF-8 text")
        return texts


@dataclass(frozen=True)
class EnumNode:
    """``enum``; ``symbols``: the reader's, in the writer's order; None for one it does not have."""

    path: str
    symbols: tuple[str | None, ...]

    def read(self, cursor: Cursor, where: Mask | None) -> pa.Array:
        """See ``Node``."""
        index = cursor.long(self.path, where)
        inside = np.ones(len(index), np.bool_) if where is None else where
        wrong = inside & ((index < 0) | (index >= len(self.symbols)))
        cursor.fail(wrong, self.path, "is none of its enum's symbols")
        index = np.where(inside & ~wrong, index, 0)
        unknown = np.array([symbol is None for symbol in self.symbols])
        cursor.fail(inside & unknown[index], self.path, "is a symbol that the reader does not have")
        symbols = pa.array(self.symbols, pa.string())
        return symbols.take(column_of(index, where))


def take_blob(cursor: Cursor, size: int | None, path: str, where: Mask | None) -> Spans:
    """``size`` bytes of each row, or as many as stand before them."""
    sizes: Int64s | int = cursor.long(path, where) if size is None else size
    return cursor.take(sizes, path, where)
