"""The malformed rows of a column: their numbers and reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eos.wire.binary_columns import Int64s, Mask


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
