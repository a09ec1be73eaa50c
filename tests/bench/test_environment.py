"""The page cache is filled; percentiles and spreads."""

from __future__ import annotations

import os
from types import SimpleNamespace

import psutil

from bench.environment import Spread, full_page_cache, percentile


def test_free_memory_is_filled_with_a_file_that_is_deleted_afterwards(tmp_path, monkeypatch):
    read: list[tuple[int, int]] = []
    whole = os.preadv

    def preadv(file: int, buffers: list[bytearray], offset: int) -> int:
        read.append((offset, whole(file, buffers, offset)))
        return read[-1][1]

    monkeypatch.setattr(os, "preadv", preadv)
    free = 40 << 20
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(free=free))
    with full_page_cache(tmp_path):
        assert sum(length for _, length in read) >= free
        assert len({offset for offset, _ in read}) == len(read)
    assert not any(tmp_path.iterdir())


def test_percentiles_are_interpolated():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2
    assert percentile([0.0, 10.0], 0.9) == 9
    assert Spread.of([1.0] * 4) == Spread(1, 1, 1, 1, 1, 4)
