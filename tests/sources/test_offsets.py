"""Offsets: an epoch's own start stands with its end, and equal ones are equal texts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.errors import ConfigurationError
from eos.ids import EntryPlace, MessageId
from sources._offsets import Offset, Span, behind, json_object, places_of

places = st.one_of(st.none(), st.tuples(st.integers(0, 20), st.integers(0, 5)))
by_name = st.dictionaries(st.sampled_from("abcdef"), places, max_size=6)


def text(offset: Offset) -> str:
    return json.dumps(offset.to_json())


@given(by_name, st.lists(by_name, max_size=6))
def test_epochs_cover_each_partition_without_a_gap_and_never_go_back(
    starts: dict[str, EntryPlace | None], ends: list[dict[str, EntryPlace | None]]
) -> None:
    offset = Offset.starting(starts)
    before = offset
    for end in ends:
        following = offset.followed_by(end)
        for name, span in following.spans.items():
            begins = offset.spans[name].end if name in offset.spans else None
            if following is not offset:
                assert span.start == begins
            assert span.end is None or begins is None or span.end >= begins
            assert span.end in (begins, end.get(name))
        is_same = all(span.is_empty for span in following.spans.values())
        if following is not offset:
            assert not is_same
        before, offset = offset, following
    assert before.spans.keys() <= offset.spans.keys()


@given(by_name, by_name)
def test_an_offset_survives_the_checkpoint(
    starts: dict[str, EntryPlace | None], ends: dict[str, EntryPlace | None]
) -> None:
    offset = Offset.starting(starts).followed_by(ends)
    again = Offset.from_json(json.loads(text(offset)))
    assert again.spans == offset.spans
    assert text(again) == text(offset)


def test_what_gives_nothing_new_is_the_same_text_whatever_the_order_of_names() -> None:
    offset = Offset.starting({"b": (1, 1), "a": None}).followed_by({"b": (1, 3), "a": (0, 1)})
    ends = {"a": (0, 1), "b": (1, 3)}
    assert text(offset.followed_by(ends)) == text(offset)
    assert text(offset.followed_by({})) == text(offset)
    assert text(offset.followed_by({"a": None, "b": (0, 9)})) == text(offset)
    mixed = Offset(dict(reversed(list(offset.spans.items()))))
    assert text(mixed) == text(offset)


def test_a_partition_that_comes_later_is_read_from_its_beginning() -> None:
    offset = Offset.starting({"a": (1, 1)}).followed_by({"a": (1, 1), "b": (2, 5)})
    assert offset.spans == {"a": Span((1, 1), (1, 1)), "b": Span(None, (2, 5))}
    assert offset.spans["a"].is_empty
    assert offset.spans["b"].last == MessageId(2, 4)


def test_a_partition_that_goes_away_stays_where_it_was() -> None:
    offset = Offset.starting({"a": (1, 1), "b": (2, 2)}).followed_by({"a": (1, 5)})
    assert offset.spans["b"] == Span((2, 2), (2, 2))


def test_behind_an_entry_is_the_next_place() -> None:
    assert behind(MessageId(3, 4, 1)) == (3, 5)
    assert behind(None) is None


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
        {"orders": "CAEQAQ=="},
    ],
)
def test_a_checkpoint_of_something_else_is_refused(value: object) -> None:
    with pytest.raises(ConfigurationError, match="none of this source"):
        Offset.from_json(value)


def test_places_that_a_user_gives_are_checked() -> None:
    given_places = {"a": "17:0", "b": "earliest"}
    assert places_of(given_places, ["a", "b", "c"], "starting_offsets") == {"a": (17, 0), "b": None}
    for value, complaint in (
        ([], "a JSON object"),
        ({"x": "1:2"}, "'x', which is not read here"),
        ({"a": "latest"}, "ledger:entry"),
        ({"a": None}, "ledger:entry"),
        ({"a": "1:-1"}, "ledger:entry"),
    ):
        with pytest.raises(ConfigurationError, match=complaint):
            places_of(value, ["a", "b", "c"], "starting_offsets")
    with pytest.raises(ConfigurationError, match="nor JSON: 'soon'"):
        json_object("soon", "starting_offsets")
