"""Hostile entries that a real broker has stored: each way to read them stays below the bound."""

from __future__ import annotations

import pytest

from bench.hostile_broker import WAYS, bound_mib, measure

LARGE = "one large message each, 9 times"


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_memory_is_bounded_by_whatever_way_it_is_read() -> None:
    topics = ("zeros, malformed, zstd", LARGE, "16 million booleans each, 5 times")
    peaks = {(way, topic): peak for way, topic, peak in measure(topics, WAYS)}
    assert {case: one.mib for case, one in peaks.items() if one.mib > bound_mib(case[0])} == {}
    for way in ("consumer", "consumer, in batches", "asyncio, in batches", "reader", "Spark task"):
        assert peaks[way, LARGE].rows == 10
