"""Rows of a column that can't be read: numbers and reasons, apart from the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eos.wire.columns import Int64s, Mask


@dataclass(frozen=True)
class RowFailures:
    """Rows that can't be read: their numbers, in order, and why, in a sentence without data."""

    rows: Int64s
    reasons: list[str]

    @classmethod
    def none(cls) -> RowFailures:
        """No row."""
        return cls(np.zeros(0, np.int64), [])

    @classmethod
    def of(cls, bad: Mask | None, reason: str) -> RowFailures:
        """Those of ``bad`` (None: no row), all for one reason."""
        if bad is None:
            return cls.none()
        rows = np.flatnonzero(bad)
        return cls(rows, [reason] * len(rows))

    @classmethod
    def merged(cls, parts: Sequence[RowFailures]) -> RowFailures:
        """All of them; where several have a row, the first one's reason."""
        reasons: dict[int, str] = {}
        for part in parts:
            for row, reason in zip(part.rows.tolist(), part.reasons, strict=True):
                reasons.setdefault(row, reason)
        rows = np.array(sorted(reasons), np.int64)
        return cls(rows, [reasons[row] for row in rows.tolist()])

    def __len__(self) -> int:
        return len(self.rows)

    def moved(self, rows: Int64s) -> RowFailures:
        """The same ones, of rows that have other numbers: row i is ``rows[i]``; in order."""
        return RowFailures.merged([RowFailures(rows[self.rows], self.reasons)])
