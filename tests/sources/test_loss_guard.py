"""What counts as lost, and what does not."""

from __future__ import annotations

import logging

import pytest

from eos.client import Bounds
from eos.errors import DataLost
from eos.ids import EntryPlace, MessageId
from eos.sources._data_loss import LossGuard


class Seen:
    """A topic ``t`` as a planner sees it."""

    def __init__(self, *, fresh: EntryPlace = (0, 0), longest: EntryPlace = (99, 99)) -> None:
        self.fresh, self.longest = fresh, longest

    def reopen(self, names: list[str]) -> dict[str, Bounds]:
        return {name: Bounds(self.fresh, None) for name in names}

    def reaches(self, entries: dict[str, EntryPlace]) -> dict[str, bool]:
        return {name: entry <= self.longest for name, entry in entries.items()}


def start_of(
    place: EntryPlace | None,
    first: EntryPlace,
    last: MessageId | None = None,
    seen: Seen | None = None,
    *,
    fail: bool = True,
) -> EntryPlace:
    guard = LossGuard(fail=fail)
    return guard.starts({"t": place}, {"t": Bounds(first, last)}, seen or Seen())["t"]


def test_what_begins_before_the_querys_place_is_all_there():
    assert start_of((7, 5), (7, 0)) == (7, 5)
    assert start_of((7, 5), (3, 0), MessageId(7, 4)) == (7, 5)


def test_a_query_at_its_beginning_starts_where_the_topic_begins():
    assert start_of(None, (7, 0)) == (7, 0)
    assert start_of((5, 0), (7, 0)) == (7, 0)


def test_what_begins_behind_the_querys_place_has_lost_something():
    with pytest.raises(DataLost, match="from 7:5 up to 9:0"):
        start_of((7, 5), (9, 0))
    assert start_of((7, 5), (9, 0), fail=False) == (9, 0)


def test_a_deletion_of_what_was_read_is_none():
    assert start_of((7, 5), (7, 5), seen=Seen(fresh=(9, 0))) == (9, 0)
    with pytest.raises(DataLost):
        start_of((7, 3), (7, 5), seen=Seen(fresh=(9, 0)))


def test_a_new_partition_starts_where_it_begins_also_when_others_saw_a_deletion():
    guard = LossGuard(fail=True)
    seen = guard.starts({}, {"t": Bounds((7, 5), None)}, Seen(fresh=(9, 0)))
    assert seen == {"t": (9, 0)}


def test_a_topic_that_ends_before_the_querys_place_is_another_one():
    with pytest.raises(
        DataLost, match="ends before 7:5, up to where the query has read: it was recreated"
    ):
        start_of((7, 5), (3, 0), MessageId(3, 8), Seen(longest=(3, 8)))
    assert start_of((7, 5), (3, 0), MessageId(3, 8), Seen(longest=(3, 8)), fail=False) == (3, 0)


def test_a_topic_whose_end_is_not_readable_yet_is_the_same_one():
    assert start_of((7, 5), (7, 0), None, Seen(longest=(7, 4))) == (7, 5)


def test_a_topic_that_is_gone_is_named_and_forgotten(caplog):
    with pytest.raises(DataLost, match=r"t was deleted, or .* up to 7:5"):
        LossGuard(fail=True).starts({"t": (7, 5)}, {}, Seen())
    guard = LossGuard(fail=False)
    with caplog.at_level(logging.WARNING, "eos.sources"):
        assert guard.starts({"t": (7, 5)}, {}, Seen()) == {}
    assert guard.losses == 1
    (record,) = caplog.records
    assert (record.topic, record.losses) == ("t", 1)
