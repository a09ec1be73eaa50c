"""A stream's reader under Spark 4.0 and 4.1, which call it without the place of an epoch.

The sequences of calls are those that Spark 4.0.5 and 4.1.4 make (measured).
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from eos.errors import ConfigurationError
from eos.sinks.datasource_compat import OffsetJson, StartlessStreamReader


def at(place: int) -> OffsetJson:
    return {"at": place}


class Topic:
    """A reader for Spark 4.2: an epoch is from the start that it is given to the newest message."""

    def __init__(self, newest: int, begins_at: int = 0) -> None:
        self.newest = newest
        self.begins_at = begins_at

    def initialOffset(self) -> OffsetJson:  # noqa: N802
        return at(self.begins_at)

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:  # noqa: N802
        assert limit is None
        return at(max(start["at"], self.newest))

    def partitions(self, start: OffsetJson, end: OffsetJson) -> list[Any]:
        return [range(start["at"], end["at"])]


def test_a_new_query_begins_at_one_place_and_continues():
    topic = Topic(newest=3)
    reader = StartlessStreamReader(topic)
    assert reader.latestOffset() == at(3)
    topic.begins_at = 2  # "latest" is another place by now
    assert reader.initialOffset() == at(0)
    assert reader.partitions(at(0), at(3)) == [range(3)]
    assert reader.latestOffset() == at(3)  # nothing new
    topic.newest = 5
    assert reader.latestOffset() == at(5)
    assert reader.partitions(at(3), at(5)) == [range(3, 5)]


def test_an_epoch_that_nothing_computed_is_not_read_again():
    topic = Topic(newest=3)
    reader = StartlessStreamReader(topic)
    reader.latestOffset()
    topic.newest = 5
    assert reader.latestOffset() == at(5)
    assert reader.partitions(at(3), at(5)) == [range(3, 5)]


def test_a_restarted_query_continues_after_its_last_epoch():
    reader = StartlessStreamReader(Topic(newest=7))
    assert reader.partitions(at(5), at(5)) == []
    assert reader.latestOffset() == at(7)
    assert reader.partitions(at(5), at(7)) == [range(5, 7)]


def test_the_last_epoch_runs_again_and_the_next_one_follows():
    reader = StartlessStreamReader(Topic(newest=7))
    assert reader.partitions(at(5), at(5)) == []
    assert reader.partitions(at(3), at(5)) == [range(3, 5)]
    assert reader.partitions(at(3), at(5)) == [range(3, 5)]  # two actions in foreachBatch
    assert reader.latestOffset() == at(7)
    assert reader.partitions(at(5), at(7)) == [range(5, 7)]


def test_a_first_epoch_that_runs_again_keeps_its_place():
    reader = StartlessStreamReader(Topic(newest=7, begins_at=6))
    assert reader.partitions(at(3), at(3)) == []
    assert reader.initialOffset() == at(6)
    assert reader.partitions(at(6), at(3)) == [range(6, 3)]  # the offset has its own beginning
    assert reader.latestOffset() == at(7)
    assert reader.partitions(at(3), at(7)) == [range(3, 7)]


def test_a_reader_that_was_not_told_its_place_reads_nothing_twice():
    reader = StartlessStreamReader(Topic(newest=7))
    assert reader.latestOffset() == at(7)  # as if the query were new
    with pytest.raises(ConfigurationError, match="does not follow"):
        reader.partitions(at(5), at(7))


def test_an_epoch_of_another_reader_is_refused():
    reader = StartlessStreamReader(Topic(newest=7))
    reader.partitions(at(5), at(5))
    reader.latestOffset()
    with pytest.raises(ConfigurationError, match="does not follow"):
        reader.partitions(at(5), at(9))


def test_tasks_get_the_reader_without_the_drivers_state():
    reader = StartlessStreamReader(Topic(newest=7))
    reader.latestOffset()
    assert vars(pickle.loads(pickle.dumps(reader))).keys() == {"_reader"}
