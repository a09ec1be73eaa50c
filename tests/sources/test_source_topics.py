"""Which ledgers are looked up, and which are cached."""

from __future__ import annotations

import pytest

from eos.admin import Ledger
from eos.errors import ProtocolError
from eos.sources._entry_ranges import Contents
from eos.sources._offsets import Span
from eos.sources._source_options import SourceOptions
from eos.sources._source_topics import SourceTopics

TOPIC = "persistent://public/default/t"
OPTIONS = {"serviceUrl": "pulsar://localhost:1", "adminUrl": "http://localhost:1", "topic": TOPIC}


class Asked(list):
    """Topics whose ``ledgers`` were looked up by the admin API."""

    def __init__(self):
        super().__init__()
        self.ledgers: list[Ledger] = []


@pytest.fixture
def asked(monkeypatch):
    asked = Asked()

    class Admin:
        def ledgers(self, topic):
            asked.append(str(topic))
            return list(asked.ledgers)

    monkeypatch.setattr(SourceOptions, "admin", lambda _: Admin())
    return asked


def test_ledgers_are_looked_up_if_one_is_new_or_has_doubled(asked):
    planner = SourceTopics(SourceOptions.parse(OPTIONS))
    old = Ledger(3, 50, 5_000)

    def of(end, *, is_new):
        before = len(asked)
        found = planner.ledgers({TOPIC: end})[TOPIC]
        assert asked[before:] == [TOPIC] * is_new
        return Contents.of(Span((3, 40), end), found)

    asked.ledgers = [old, Ledger(5, 10, 1_000)]
    assert of((5, 10), is_new=True).entries == 20
    grown = of((5, 20), is_new=False)
    assert (grown.entries, grown.bytes) == (30, 3_000)
    asked.ledgers = [old, Ledger(5, 21, 4_200)]
    assert of((5, 21), is_new=True).bytes == 1_000 + 4_200
    asked.ledgers += [Ledger(6, 1, 7)]
    assert of((6, 1), is_new=True).entries == 10 + 21 + 1
    planner.close()


def test_ledgers_that_do_not_reach_the_end_are_looked_up_each_time(asked):
    planner = SourceTopics(SourceOptions.parse(OPTIONS))
    for ledgers in ([], [Ledger(5, 0, 0)], [Ledger(4, 10, 10)]):
        asked.ledgers = ledgers
        asked.clear()
        for _ in range(2):
            assert planner.ledgers({TOPIC: (5, 3)}) == {TOPIC: ledgers}
        assert asked == [TOPIC] * 2
    planner.close()


def test_an_entry_that_cannot_be_read_is_an_estimate_of_one(monkeypatch):
    """With a limit of rows, planning samples entries; the task reports them, or leaves them out."""

    def damaged(*_: object) -> None:
        raise ProtocolError("A text field is not UTF-8.")

    monkeypatch.setattr(SourceTopics, "_next_entry", damaged)
    assert object.__new__(SourceTopics)._rows_of("t", (1, 0)) == 1
