"""What a soak proves. Without measurements it proves nothing: that is no green light."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from eos.chaos.observers import resources
from eos.chaos.observers.resources import Sample
from eos.chaos.soak import _gauges as gauges
from eos.chaos.soak._gauges import Reading
from eos.chaos.soak._run import SoakResult

_LONGEST_GAP_S: Final = 300.0
"""For so long a fault may keep a broker from saying how much there is."""


def grown(result: SoakResult) -> dict[str, float]:
    """What has grown by more than it may, with its growth."""
    return {**resources.grown(result.samples), **gauges.grown(result.readings)}


def doubts(result: SoakResult) -> list[str]:
    """Why nobody can tell whether something has grown; none: everybody can."""
    found = []
    if result.lives != 1:
        found.append(f"the driver had {result.lives} lives")
    if not any(one.hit for one in result.happened):
        found.append("no fault has hit")
    for what, taken in (("its processes", result.samples), ("disks and topics", result.readings)):
        gap_s = _longest_gap_s(taken, result.seconds)
        if gap_s > _LONGEST_GAP_S:
            found.append(f"for {gap_s:,.0f} s nobody has looked at {what}")
    if not found:
        grows = {name: resources.growth(result.samples, name) for name in resources.CHECKED}
        grows |= {name: gauges.growth(result.readings, name) for name in gauges.BOUNDED}
        found += [f"there was never any {name}" for name, one in grows.items() if one is None]
    return found


def _longest_gap_s(taken: Sequence[Sample] | Sequence[Reading], seconds: float) -> float:
    times = [0.0, *(one.at_s for one in taken), seconds]
    return max(after - before for before, after in pairwise(times))
