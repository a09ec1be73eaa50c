"""Samples of entries: retried while topics move, and not of all partitions each time."""

from __future__ import annotations

from contextlib import contextmanager

from eos.errors import BrokerNotReady
from eos.sources._entry_ranges import MAX_RESAMPLED, RowsPerEntry, next_entry


def test_reading_an_entry_is_retried_while_the_topic_moves():
    """A real broker can't be made to refuse at this moment, so a client is refused twice."""

    class Client:
        def __init__(self):
            self.refusals = 2

        @contextmanager
        def entry_reader(self, topic, start, *, permits):
            if self.refusals:
                self.refusals -= 1
                raise BrokerNotReady("Topic is temporarily unavailable")
            yield self

        def read(self, deadline):
            return iter(["the entry"])

    assert next_entry(Client(), "t", None, 20) == "the entry"


def test_known_partitions_are_sampled_in_turn():
    looked, rows = [], {f"t{n}": n for n in range(150)}

    def look(name, start):
        assert start == (1, int(name[1:]))
        looked.append(name)
        return rows[name]

    per_entry = RowsPerEntry(look)
    starts = {name: (1, n) for n, name in enumerate(rows)}
    assert per_entry.of(starts) == rows
    assert sorted(looked) == sorted(rows)
    told = dict(rows)
    rows |= {name: count + 1000 for name, count in rows.items()}
    seen = set()
    for _ in range(3):
        looked.clear()
        found = per_entry.of(starts)
        assert len(looked) == len(set(looked)) == MAX_RESAMPLED
        seen.update(looked)
        told |= {name: rows[name] for name in looked}
        assert found == told
    assert seen == set(rows)


def test_new_partitions_are_sampled_at_once():
    looked = []

    def look(name, _):
        looked.append(name)
        return 7

    per_entry = RowsPerEntry(look)
    few = {f"t{n}": (1, 0) for n in range(MAX_RESAMPLED)}
    for _ in range(2):
        looked.clear()
        assert per_entry.of(few) == dict.fromkeys(few, 7)
        assert sorted(looked) == sorted(few)
    looked.clear()
    assert per_entry.of({"new": (1, 0), "t1": (1, 0)}) == {"new": 7, "t1": 7}
    assert sorted(looked) == ["new", "t1"]
    assert per_entry.of({}) == {}
