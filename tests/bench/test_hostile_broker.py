"""Hostile entries in a real broker are read in bounded memory, in each way."""

from __future__ import annotations

import pytest

from bench.hostile_broker import WAYS, bound_mib, measure

LARGE = "one large message each, 9 times"


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_memory_is_bounded_in_each_way_to_read() -> None:
    topics = ("zeros, malformed, zstd", LARGE, "16 million booleans each, 5 times")
    peaks = {(way, topic): peak for way, topic, peak in measure(topics, WAYS)}
    assert {case: one.mib for case, one in peaks.items() if one.mib > bound_mib(case[0])} == {}
    for way in ("consumer", "consumer, in batches", "asyncio, in batches", "reader", "Spark task"):
        assert peaks[way, LARGE].rows == 10
