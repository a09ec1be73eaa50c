"""Ways of doing the same, measured in turns: what else the machine does hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from bench.environment import Setting
from bench.statistics import Spread

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
    rates = {name: partial(_rate_of, way) for name, way in ways.items()}
    found = _by_turns(stage, rates, rounds, tell, warm_up=WARM_UP)
    return {name: vars(Spread.of(rates, 0)) for name, rates in found.items()}


def seconds_by_turns(
    stage: Setting,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, dict[str, float]]:
    """Way -> seconds, as a spread. Each returns how long it took; all rounds count, in each of
    which all take turns, in an order drawn anew."""
    found = _by_turns(stage, ways, rounds, tell, warm_up=0)
    return {name: vars(Spread.of(seconds, 2)) for name, seconds in found.items()}


def _rate_of(way: Callable[[], float]) -> float:
    began = time.perf_counter()
    rows = way()
    return rows / (time.perf_counter() - began)


def _by_turns(
    stage: Setting,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    tell: Callable[[str], None],
    *,
    warm_up: int,
) -> dict[str, list[float]]:
    order = np.random.default_rng(0)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-warm_up, rounds):
        tell("warm-up" if number < 0 else f"round {number + 1}")
        for name in order.permutation(list(ways)):
            stage.settle()
            measured = ways[name]()
            if number >= 0:
                found[name].append(measured)
    return found
