"""Reads single values: strings, numbers, dates and timestamps.

| schema | bytes | column |
|---|---|---|
| none, ``bytes`` | any | binary |
| ``string`` | UTF-8, or the encoding in the schema's property ``__charset`` | string |
| ``boolean`` | 1: 0 or 1 | bool |
| ``int8`` to ``int64``, ``float``, ``double`` | big endian | the same |
| ``date`` | 8: milliseconds since 1970 | date32: the day in UTC |
| ``timestamp`` | 8: milliseconds since 1970 | timestamp in UTC |
| ``instant`` | 12: seconds since 1970, nanoseconds | timestamp in UTC |
| ``local_date`` | 8: days since 1970 | date32 |
| ``local_date_time`` | 16: days since 1970, nanoseconds of the day | timestamp without zone |
| ``time`` | 8: milliseconds | int64 |
| ``local_time`` | 8: nanoseconds of the day | int64 |

Source: ``org.apache.pulsar.client.impl.schema``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eos.schemas._schema_properties import UTF8, charset_of
from eos.wire.binary_columns import BinaryColumn, Int64s, Mask, RowFailures, as_texts, as_texts_of
from eos.wire.commands import SchemaInfo, SchemaType

NOT_UTF8: Final = "The value is not UTF-8 text."
_MILLIS_A_DAY: Final = 86_400_000
_NANOS_A_DAY: Final = 86_400 * 10**9
_MICROS_A_DAY: Final = 86_400 * 10**6
_NANOS_A_SECOND: Final = 10**9
_UTC: Final = pa.timestamp("us", "UTC")

Numbers = npt.NDArray[Any]
# The stored numbers of each value, as fields "a" and "b" -> the column's numbers, and invalid rows.
_Conversion = Callable[[Numbers], tuple[Numbers, Mask]]


def _unchanged(found: Numbers) -> tuple[Numbers, Mask]:
    return found["a"], np.zeros(len(found), np.bool_)


def _booleans(found: Numbers) -> tuple[Numbers, Mask]:
    return found["a"] == 1, found["a"] > 1


def _days(days: Int64s) -> tuple[Numbers, Mask]:
    narrow = days.astype(np.int32)
    return narrow, narrow != days


def _timestamps(coarse: Int64s, factor: int, fine: Int64s | int) -> tuple[Numbers, Mask]:
    # ``coarse`` is in units of ``factor`` microseconds; any producer may write one that overflows.
    limit = (1 << 63) // factor - 1
    wrong: Mask = (coarse > limit - 1) | (coarse < 1 - limit)
    return np.where(wrong, 0, coarse) * factor + fine, wrong


def _instant(found: Numbers) -> tuple[Numbers, Mask]:
    nanos = found["b"].astype(np.int64)
    micros, wrong = _timestamps(found["a"], 10**6, nanos // 1000)  # rounded down to microseconds
    return micros, wrong | (nanos < 0) | (nanos >= _NANOS_A_SECOND)


def _local_date_time(found: Numbers) -> tuple[Numbers, Mask]:
    nanos = found["b"]
    micros, wrong = _timestamps(found["a"], _MICROS_A_DAY, nanos // 1000)
    return micros, wrong | (nanos < 0) | (nanos >= _NANOS_A_DAY)


def _long(found: Numbers) -> Int64s:
    return found["a"].astype(np.int64)


@dataclass(frozen=True)
class _Layout:
    type: pa.DataType
    dtype: tuple[str, ...]  # numpy's types of a value's parts, in order
    convert: _Conversion = _unchanged


_LAYOUTS: Final = {
    SchemaType.BOOLEAN: _Layout(pa.bool_(), ("u1",), _booleans),
    SchemaType.INT8: _Layout(pa.int8(), ("i1",)),
    SchemaType.INT16: _Layout(pa.int16(), (">i2",)),
    SchemaType.INT32: _Layout(pa.int32(), (">i4",)),
    SchemaType.INT64: _Layout(pa.int64(), (">i8",)),
    SchemaType.FLOAT: _Layout(pa.float32(), (">f4",)),
    SchemaType.DOUBLE: _Layout(pa.float64(), (">f8",)),
    SchemaType.DATE: _Layout(
        pa.date32(), (">i8",), lambda found: _days(_long(found) // _MILLIS_A_DAY)
    ),
    SchemaType.TIME: _Layout(pa.int64(), (">i8",)),
    SchemaType.TIMESTAMP: _Layout(
        _UTC, (">i8",), lambda found: _timestamps(_long(found), 1000, 0)
    ),
    SchemaType.INSTANT: _Layout(_UTC, (">i8", ">i4"), _instant),
    SchemaType.LOCAL_DATE: _Layout(pa.date32(), (">i8",), lambda found: _days(_long(found))),
    SchemaType.LOCAL_TIME: _Layout(pa.int64(), (">i8",)),
    SchemaType.LOCAL_DATE_TIME: _Layout(
        pa.timestamp("us"), (">i8", ">i8"), _local_date_time
    ),
}  # fmt: skip
_BLOBS: Final = {SchemaType.NONE: pa.binary(), SchemaType.STRING: pa.string()}


class PrimitiveReader:
    """Reads single values. See ``ColumnReader``."""

    def __init__(self, info: SchemaInfo) -> None:
        self.info = info
        self._kind = kind = SchemaType(info.type)
        self.is_record = False
        self.type: pa.DataType = _BLOBS[kind] if kind in _BLOBS else _LAYOUTS[kind].type

    @staticmethod
    def knows(kind: int) -> bool:
        """Whether ``kind`` is a schema type of single values."""
        return kind in _BLOBS or kind in _LAYOUTS

    def read(self, values: pa.Array, writer: SchemaInfo) -> tuple[pa.Array, RowFailures]:
        """See ``ColumnReader``; ``writer`` has the same type."""
        match self._kind:
            case SchemaType.NONE:
                return values, RowFailures.none()
            case SchemaType.STRING:
                charset = charset_of(writer)
                if charset == UTF8:
                    texts, bad = as_texts(values)
                    return texts, RowFailures.of(bad, NOT_UTF8)
                texts, bad = as_texts_of(values, charset)
                return texts, RowFailures.of(bad, f"The value is not {charset} text.")
        return _numbers(values, _LAYOUTS[self._kind])


def _numbers(values: pa.Array, layout: _Layout) -> tuple[pa.Array, RowFailures]:
    dtype = np.dtype(list(zip("ab", layout.dtype, strict=False)))
    column = BinaryColumn.of(values)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    whole = column.lengths == dtype.itemsize
    found = np.zeros((len(values), dtype.itemsize), np.uint8)
    places = column.offsets[:-1][whole][:, None] + np.arange(dtype.itemsize)
    found[whole] = np.frombuffer(column.data, np.uint8)[places]
    numbers, wrong = layout.convert(found.view(dtype)[:, 0])
    failures = RowFailures.merged(
        [
            RowFailures.of(valid & ~whole, f"The value is not {dtype.itemsize} bytes long."),
            RowFailures.of(valid & wrong, f"The value is not a valid {layout.type}."),
        ]
    )
    good = valid & whole & ~wrong
    # Arrow takes numbers only in the machine's own byte order.
    native = np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("="))
    return _column(native, layout.type, None if good.all() else ~good), failures


def _column(numbers: Numbers, kind: pa.DataType, null: Mask | None) -> pa.Array:
    array = pa.array(numbers, mask=null)
    return array if array.type == kind else array.view(kind)
