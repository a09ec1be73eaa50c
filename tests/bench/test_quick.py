"""The table of the main figures: ratios in the right direction, and no line without a figure."""

from __future__ import annotations

import pytest

from bench.quick import LINES, figures, ratios


@pytest.fixture
def found() -> dict:
    def spread(median: float) -> dict:
        return {"median": median, "lowest": 0.9 * median, "highest": 1.1 * median}

    return {
        name: {"eos": spread(line.wanted)} | ({"peer": spread(1.0)} if line.peer else {})
        for name, line in LINES.items()
    }


def test_a_line_is_reached_at_its_target_and_missed_beyond(found):
    assert all(line.is_reached(found[name]) for name, line in LINES.items())
    for name, line in LINES.items():
        found[name]["eos"]["median"] *= 0.9 if line.more_is_better else 1.1
        assert not line.is_reached(found[name])


def test_the_tables_have_each_line(found):
    found["read_value"]["eos"]["median"] = 2.0
    text = ratios(found)
    assert "| rows of 100 bytes, one partition | pulsar-spark | 1.5 | at least 1.5 |" in text
    assert "| reading in Spark, value | pulsar-spark | 2 | at least 3, missed |" in text
    assert "| `eos --help` |  | 0.5 s | at most 0.5 |" in text
    results = {"machine": {"cores": 2}, "took_s": 540, "lines": found}
    text = figures(results)
    assert "2 cores; one run of 9 minutes; eos's claim is not timed." in text
    assert text.count("\n") == len(LINES) + 4
    assert "| an epoch of ten rows, ms | 1, 1 to 1 | pulsar-spark: 1, 1 to 1 |" in text
