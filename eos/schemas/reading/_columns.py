"""From rows of Python to columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

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
