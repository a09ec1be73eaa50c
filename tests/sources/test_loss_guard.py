"""Which deletions are losses."""

from __future__ import annotations

import logging

import pytest

from eos.client import Bounds
from eos.errors import DataLost
from eos.ids import EntryPlace, MessageId
from eos.sources._data_loss import LossGuard
from eos.sources._offsets import Offset


class Seen:
    """A topic ``t``, as ``SourceTopics`` sees it."""

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


def test_a_topic_that_begins_before_the_querys_place_has_no_loss():
    assert start_of((7, 5), (7, 0)) == (7, 5)
    assert start_of((7, 5), (3, 0), MessageId(7, 4)) == (7, 5)


def test_a_new_query_starts_where_the_topic_begins():
    assert start_of(None, (7, 0)) == (7, 0)
    assert start_of((5, 0), (7, 0)) == (7, 0)


def test_a_topic_that_begins_after_the_querys_place_has_a_loss():
    with pytest.raises(DataLost, match="from 7:5 up to 9:0"):
        start_of((7, 5), (9, 0))
    assert start_of((7, 5), (9, 0), fail=False) == (9, 0)


def test_a_deletion_of_read_entries_is_no_loss():
    assert start_of((7, 5), (7, 5), seen=Seen(fresh=(9, 0))) == (9, 0)
    with pytest.raises(DataLost):
        start_of((7, 3), (7, 5), seen=Seen(fresh=(9, 0)))


def test_a_new_partition_starts_where_it_begins():
    guard = LossGuard(fail=True)
    seen = guard.starts({}, {"t": Bounds((7, 5), None)}, Seen(fresh=(9, 0)))
    assert seen == {"t": (9, 0)}


def test_a_topic_that_ends_before_the_querys_place_was_recreated():
    with pytest.raises(
        DataLost, match="ends before 7:5, up to where the query has read: it was recreated"
    ):
        start_of((7, 5), (3, 0), MessageId(3, 8), Seen(longest=(3, 8)))
    assert start_of((7, 5), (3, 0), MessageId(3, 8), Seen(longest=(3, 8)), fail=False) == (3, 0)


def test_a_topic_whose_end_is_not_readable_yet_was_not_recreated():
    assert start_of((7, 5), (7, 0), None, Seen(longest=(7, 4))) == (7, 5)


def test_a_deleted_topic_is_reported_once(caplog):
    with pytest.raises(DataLost, match=r"t was deleted, or .* up to 7:5"):
        LossGuard(fail=True).starts({"t": (7, 5)}, {}, Seen())
    guard = LossGuard(fail=False)
    with caplog.at_level(logging.WARNING, "eos.sources"):
        assert guard.starts({"t": (7, 5)}, {}, Seen()) == {}
    assert guard.losses == 1
    (record,) = caplog.records
    assert (record.topic, record.losses) == ("t", 1)


def test_an_idle_query_reports_a_loss_once():
    """Spark asks an idle query a hundred times a second."""
    guard, losses = LossGuard(fail=False), []
    for place in ((7, 5), (7, 5), (7, 6)):
        guard.begin(Offset.starting({"t": place}))
        guard.starts({"t": (7, 5)}, {}, Seen())
        losses.append(guard.losses)
    assert losses == [1, 1, 2]
