"""Ways of doing the same, measured in turns: what else the machine does hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from bench.setting import Setting
from bench.spread import Spread

WARM_UP: Final = 2
"""Rounds that do not count."""


def rates_by_turns(
    stage: Setting,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Way -> rows per second, as a spread. Each returns how many rows it dealt with; in each round
    all take turns, in an order drawn anew."""
    order = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-WARM_UP, rounds):
        tell("warm-up" if number < 0 else f"round {number + 1}")
        for name in order.permutation(list(ways)):
            stage.settle()
            began = time.perf_counter()
            rows = ways[name]()
            if number >= 0:
                found[name].append(rows / (time.perf_counter() - began))
    return {name: vars(Spread.of(rates, 0)) for name, rates in found.items()}
