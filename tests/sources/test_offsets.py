"""Offsets have the start and the end of an epoch, and equal ones have equal texts."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.delta.folder import Folder
from eos.errors import ConfigurationError
from eos.ids import EntryPlace, MessageId
from eos.sources._data_loss import check_named
from eos.sources._offsets import HistorySpan, Offset, Span, parse_place, place_after, place_text
from eos.sources._source_options import SourceOptions

places = st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 5)))
by_name = st.dictionaries(st.sampled_from("abcdef"), places, max_size=6)
histories = st.builds(
    lambda ends, partial: HistorySpan("/t", "id", 3, *sorted(ends), partial=partial),
    st.tuples(*[st.integers(0, 9)] * 3),
    st.dictionaries(
        st.sampled_from("ab"),
        st.tuples(st.tuples(st.integers(0, 20), st.integers(0, 5)), st.integers(1, 9)),
    ),
)


def text(offset: Offset) -> str:
    return json.dumps(offset.to_json())


@given(by_name, st.lists(by_name, max_size=6))
def test_epochs_cover_each_partition_without_a_gap_and_never_go_back(
    places: dict[str, EntryPlace | None], ends: list[dict[str, EntryPlace | None]]
) -> None:
    offset = Offset.starting(places, "s")
    for end in ends:
        starts = offset.ends
        following = offset.followed_by(starts, end)
        if following is offset:
            assert not any(_is_ahead(starts[name], end.get(name)) for name in starts)
            continue
        assert following.subscription == "s"
        for name, span in following.spans.items():
            assert span.start == starts[name]
            assert span.end == (end[name] if _is_ahead(span.start, end.get(name)) else span.start)
        assert not all(span.is_empty for span in following.spans.values())
        offset = following


def _is_ahead(start: EntryPlace | None, end: EntryPlace | None) -> bool:
    return end is not None and (start is None or end > start)


@given(by_name, by_name, st.none() | st.text(max_size=3), st.none() | histories, by_name)
def test_an_offset_survives_the_checkpoint(
    starts: dict[str, EntryPlace | None],
    ends: dict[str, EntryPlace | None],
    subscription: str | None,
    history: HistorySpan | None,
    left: dict[str, EntryPlace | None],
) -> None:
    offset = Offset.starting(starts, subscription, history).followed_by(starts, ends, left)
    again = Offset.from_json(json.loads(text(offset)))
    assert again == offset
    assert text(again) == text(offset)


def test_an_epoch_without_new_entries_has_the_same_text() -> None:
    begun = Offset.starting({"b": (1, 1), "a": None})
    offset = begun.followed_by(begun.ends, {"b": (1, 3), "a": (0, 1)})
    starts = offset.ends
    assert text(offset.followed_by(starts, {"a": (0, 1), "b": (1, 3)})) == text(offset)
    assert text(offset.followed_by(starts, {})) == text(offset)
    assert text(offset.followed_by(starts, {"a": None, "b": (0, 9)})) == text(offset)
    mixed = Offset(dict(reversed(list(offset.spans.items()))))
    assert text(mixed) == text(offset)


def test_an_epoch_has_the_given_partitions_and_starts() -> None:
    offset = Offset.starting({"a": (1, 1), "gone": (9, 9)})
    following = offset.followed_by({"a": (4, 0), "new": (2, 0)}, {"a": (4, 3), "new": (2, 5)})
    assert following.spans == {"a": Span((4, 0), (4, 3)), "new": Span((2, 0), (2, 5))}
    assert following.spans["new"].last == MessageId(2, 4)


def test_places_are_formatted_and_parsed() -> None:
    for place, expected in (((17, 0), "17:0"), (None, "earliest")):
        assert place_text(place) == expected
        assert parse_place(expected) == place
    for wrong in ("latest", "1:-1", "1", "01:2", "1:9223372036854775808", "1:2:3", "x"):
        with pytest.raises(ValueError, match=re.escape(wrong)):
            parse_place(wrong)


def test_the_place_after_an_entry_is_the_next_one() -> None:
    assert place_after(MessageId(3, 4, 1)) == (3, 5)
    assert place_after(None) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        [],
        {"version": 2, "partitions": {}},
        {"version": 1, "partitions": []},
        {"version": 1, "partitions": {"a": 5}},
        {"version": 1, "partitions": {"a": {"from": "1:2"}}},
        {"version": 1, "partitions": {"a": {"from": "1:2", "to": "-1:3"}}},
        {"version": 1, "partitions": {"a": {"from": "1:2", "to": 3}}},
        {"version": 1, "partitions": {}, "subscription": 5},
        {"version": 3, "partitions": {}},
        {"version": 3, "partitions": {}, "left": {"a": "x"}},
        {"orders": "CAEQAQ=="},
        {"version": 1, "partitions": {"a": {"from": "1:5", "to": "1:2"}}},
        {"version": 1, "partitions": {"a": {"from": "2:0", "to": "1:9"}}},
        {"version": 1, "partitions": {"a": {"from": "1:0", "to": "earliest"}}},
        {"version": 1, "partitions": {"a": {"from": "1:0", "to": "9223372036854775808:0"}}},
        {"version": 1, "partitions": {"a": {"from": "1:0", "to": "\u0661:0"}}},
    ],
)
def test_invalid_offsets_are_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="invalid offset"):
        Offset.from_json(value)


def test_an_offset_with_a_history_has_a_newer_version() -> None:
    history = HistorySpan("/t", "id", 3, 0, 1, 2)
    assert Offset.starting({}, None, history).to_json()["version"] == 2
    assert Offset.starting({}).to_json()["version"] == 1
    assert Offset({}, left={"a": None}).to_json()["version"] == 3


def test_an_offset_says_whether_it_keeps_former_topics() -> None:
    old = Offset.starting({"a": (1, 1)})
    for offset in (old, replace(old, keeps_left=True)):
        following = offset.followed_by(offset.ends, {"a": (1, 5)}, {"b": (2, 2)})
        again = Offset.from_json(json.loads(text(following)))
        assert again.keeps_left == offset.keeps_left
        assert again == following


@pytest.mark.parametrize("numbers", [(2, 1, 3), (0, 4, 3), (-1, 0, 3)])
def test_a_history_with_wrong_file_counts_is_refused(numbers: tuple[int, int, int]) -> None:
    broken = Offset.starting({}, None, HistorySpan("/t", "id", 3, *numbers)).to_json()
    with pytest.raises(ConfigurationError, match="invalid offset"):
        Offset.from_json(broken)


@pytest.mark.parametrize("odd", ["1e400", "-1", "1.5", "true", "null", '"7"', "1e2", "9" * 30])
@pytest.mark.parametrize("field", ["from", "to", "files", "version", "messages"])
def test_invalid_numbers_of_a_history_are_refused(field: str, odd: str) -> None:
    span = HistorySpan("/t", "id", 3, 0, 1, 2, partial={"a": ((1, 2), 3)})
    value = Offset.starting({}, None, span).to_json()
    past = value["history"]
    (past["partial"]["a"] if field == "messages" else past)[field] = json.loads(odd)
    with pytest.raises(ConfigurationError, match="invalid offset"):
        Offset.from_json(value)


OWN = "persistent://public/default/own"
OTHER = "persistent://public/default/other"


@pytest.mark.parametrize(
    ("options", "name", "is_read"),
    [
        ({"topic": "own"}, OWN, True),
        ({"topic": "own"}, f"{OWN}-partition-3", True),
        ({"topic": "own-partition-3"}, f"{OWN}-partition-3", True),
        ({"topic": "own-partition-3"}, f"{OWN}-partition-4", False),
        ({"topic": "own"}, OTHER, False),
        ({"topic": "own"}, "persistent://other/default/own", False),
        ({"topic": "own"}, "no name\ud800", False),
        ({"topic": "own", "dropped_topics": "other"}, f"{OTHER}-partition-0", True),
        ({"topics_pattern": "public/default/o.n"}, f"{OWN}-partition-0", True),
        ({"topics_pattern": "public/default/o.n"}, OTHER, False),
    ],
)
def test_an_epoch_reads_only_topics_that_the_options_name(
    options: dict[str, str], name: str, is_read: bool
) -> None:
    given = SourceOptions.parse({"service_url": "pulsar://localhost", **options})
    offset = Offset({name: Span((1, 0), (1, 5)), f"{OTHER}s": Span((1, 0), (1, 0))})
    if is_read:
        check_named(offset, given)
        return
    with pytest.raises(ConfigurationError, match="the query's options do not name") as caught:
        check_named(offset, given)
    assert "droppedTopics" in caught.value.hint


@pytest.mark.parametrize("table", [None, "/other"])
def test_an_epoch_reads_only_the_table_that_the_options_name(table: str | None) -> None:
    options = {"service_url": "pulsar://localhost", "topic": "own"}
    given = SourceOptions.parse(options | ({} if table is None else {"history": table}))
    uri = Folder("/secret").uri
    done = Offset({}, history=HistorySpan(uri, "id", 3, 2, 2, 2))
    check_named(done, given)
    with pytest.raises(ConfigurationError, match=r"/secret.*do not name"):
        check_named(Offset({}, history=HistorySpan(uri, "id", 3, 0, 1, 2)), given)
    check_named(
        Offset({}, history=HistorySpan(uri, "id", 3, 0, 1, 2)),
        SourceOptions.parse({**options, "history": "/secret"}),
    )
