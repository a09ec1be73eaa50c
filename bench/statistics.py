"""What many measurements of one thing come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Median, 10th and 90th percentile, lowest and highest of ``count`` measurements."""

    median: float
    p10: float
    p90: float
    lowest: float
    highest: float
    count: int

    @classmethod
    def of(cls, measured: Sequence[float], digits: int = 1) -> Spread:
        """The spread of ``measured``, rounded."""
        median, p10, p90, lowest, highest = (
            round(percentile(measured, at), digits) for at in (0.5, 0.1, 0.9, 0.0, 1.0)
        )
        return cls(median, p10, p90, lowest, highest, len(measured))


def percentile(measured: Sequence[float], share: float) -> float:
    """The value below which that share of the measurements lies; between two, in proportion."""
    return float(np.quantile(measured, share))
