"""Statistics of one file according to Delta's protocol, "Per-file Statistics": to skip files.

A bound may be too wide, but never too narrow: a wrongly skipped file is lost data. So values that
readers compare differently get no bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

INDEXED_COLUMNS: Final = 32
"""Number of columns with statistics, counted as Delta does: each field of a struct counts."""
# Length of a bound of text, as in Delta.
_TEXT_CHARS: Final = 32
_LAST_CHAR: Final = "\U0010ffff"
_EXACT_DIGITS: Final = 15
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_DAY: Final = date(1970, 1, 1).toordinal()

_Bounds = tuple[Any, Any]


class FileStatistics:
    """Collects the statistics of one file, batch by batch, without work per row.

    Args:
        schema: the file's columns (without the partition columns).
    """

    def __init__(self, schema: pa.Schema) -> None:
        leaves = [leaf for field in schema for leaf in _leaves(field)]
        self._columns = [_Column(path, kind) for path, kind in leaves[:INDEXED_COLUMNS]]
        self.records = 0
        """Number of rows so far."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add one batch of the file's schema."""
        self.records += batch.num_rows
        for column in self._columns:
            array = batch.column(column.path[0])
            for name in column.path[1:]:
                # Unlike ``field``, ``flatten`` sets the fields of a null struct to null.
                array = array.flatten()[array.type.get_field_index(name)]
            column.add(array)

    def to_json(self) -> str:
        """Return the statistics for the commit."""
        found: dict[str, Any] = {"numRecords": self.records}
        found |= {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for column in self._columns:
            _put(found["nullCount"], column.path, column.nulls)
            bounds = column.bounds()
            if bounds is not None:
                _put(found["minValues"], column.path, bounds[0])
                _put(found["maxValues"], column.path, bounds[1])
        return json.dumps(found, allow_nan=False)


class _Column:
    """One column, or field of a struct: its nulls, smallest and largest value so far."""

    def __init__(self, path: tuple[str, ...], kind: pa.DataType) -> None:
        self.path = path
        self.nulls = 0
        self._comparable, self._shown = _handling(kind)
        self._range: _Bounds | None = None

    def add(self, array: pa.Array) -> None:
        self.nulls += array.null_count
        if self._shown is None or array.null_count == len(array):
            return
        # NaN and infinities are compared differently.
        if pa.types.is_floating(array.type) and not pc.all(pc.is_finite(array)).as_py():
            self._shown = None
            return
        found = pc.min_max(array.view(self._comparable) if self._comparable else array)
        low, high = found["min"].as_py(), found["max"].as_py()
        if self._range is not None:
            low, high = min(low, self._range[0]), max(high, self._range[1])
        self._range = low, high

    def bounds(self) -> _Bounds | None:
        """Smallest and largest value for JSON; None if readers do not agree on them."""
        if self._shown is None or self._range is None:
            return None
        try:
            return self._shown(*self._range)
        except (OverflowError, ValueError):  # text that is not UTF-8, years outside 1 to 9999
            return None


def _leaves(field: pa.Field) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    if not pa.types.is_struct(field.type):
        yield (field.name,), field.type
        return
    for child in field.type:
        for path, kind in _leaves(child):
            yield (field.name, *path), kind


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _handling(
    kind: pa.DataType,
) -> tuple[pa.DataType | None, Callable[[Any, Any], _Bounds] | None]:
    """The type in which values are compared, and the formatter of bounds; None: no bounds."""
    if pa.types.is_integer(kind):
        return None, lambda low, high: (low, high)
    if pa.types.is_floating(kind):
        return None, _floats
    # deltalake 1.6 reads decimals as doubles, which do not hold more digits than that.
    if pa.types.is_decimal(kind) and kind.precision <= _EXACT_DIGITS:
        number = int if kind.scale == 0 else float
        return None, lambda low, high: (number(low), number(high))
    if pa.types.is_string(kind):
        return pa.binary(), _texts
    if pa.types.is_date32(kind):
        return pa.int32(), _dates
    if pa.types.is_timestamp(kind):
        return pa.int64(), _timestamps if kind.tz is None else _utc_timestamps
    return None, None


def _floats(low: float, high: float) -> _Bounds:
    # To some readers -0.0 is less than 0.0, to others equal.
    return low or -0.0, high or 0.0


def _texts(low: bytes, high: bytes) -> _Bounds:
    # Cutting lowers the lower bound; the upper one must be raised.
    first, last = low.decode()[:_TEXT_CHARS], high.decode()
    if len(last) <= _TEXT_CHARS:
        return first, last
    if last[_TEXT_CHARS] == _LAST_CHAR:
        raise ValueError("there is no larger text of this length")
    return first, last[:_TEXT_CHARS] + _LAST_CHAR


def _dates(low: int, high: int) -> _Bounds:
    first, last = (date.fromordinal(_FIRST_DAY + days) for days in (low, high))
    return first.isoformat(), last.isoformat()


def _timestamps(low_us: int, high_us: int) -> _Bounds:
    # Whole milliseconds, as Delta writes them, rounded outwards.
    low_ms, high_ms = low_us // 1000, -(-high_us // 1000)
    first, last = (_EPOCH + timedelta(milliseconds=moment) for moment in (low_ms, high_ms))
    return first.isoformat(timespec="milliseconds"), last.isoformat(timespec="milliseconds")


def _utc_timestamps(low_us: int, high_us: int) -> _Bounds:
    low, high = _timestamps(low_us, high_us)
    return f"{low}Z", f"{high}Z"
