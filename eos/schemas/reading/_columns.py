"""From rows of Python to columns."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

MAX_OBJECT_BYTES: Final = 8 << 20
"""Of a value that is read in Python, whose objects take thirty times as much."""

TOO_LONG: Final = f"The value is longer than {MAX_OBJECT_BYTES >> 20} MiB, and is read in Python."

_WRONG = (pa.ArrowException, ValueError, TypeError, OverflowError)


def as_column(rows: list[Any], kind: pa.DataType) -> tuple[pa.Array, list[int]]:
    """A column of ``rows``, and which rows it does not take: these are null."""
    try:
        return pa.array(rows, kind), []
    except _WRONG:
        bad = [number for number, row in enumerate(rows) if not _fits(row, kind)]
    wrong = set(bad)
    return pa.array([None if n in wrong else row for n, row in enumerate(rows)], kind), bad


def _fits(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except _WRONG:
        return False
    return True
