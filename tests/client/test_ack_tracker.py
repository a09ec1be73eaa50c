"""Tracking of unacknowledged messages, for entries with any number of messages."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.client._acks import AckTracker
from eos.errors import Retriable
from eos.ids import MessageId
from eos.wire.batch import Entry
from tests.wire.entries import metadata

MESSAGES = 6
MANY = 100_000
IDS = st.builds(MessageId, st.just(1), st.integers(0, 2), st.just(-1), st.integers(-1, MESSAGES))
ACKS = st.lists(st.tuples(st.booleans(), st.lists(IDS, min_size=1, max_size=4)))


def kept_open(entries: int, messages: int) -> AckTracker:
    kept = AckTracker()
    for entry in range(entries):
        kept.add((1, entry), range(messages), messages)
    return kept


def after(left: dict[int, set[int]], ids: list[MessageId]) -> dict[int, set[int]] | None:
    """Return the rest after acknowledging ``ids`` one by one; None if one is not pending."""
    left = dict(left)
    for one in ids:
        some = left[one.entry]
        named = some if one.batch_index < 0 else {one.batch_index}
        if not some or not named <= some:
            return None
        left[one.entry] = some - named
    return left


def after_all_up_to(left: dict[int, set[int]], one: MessageId) -> dict[int, set[int]] | None:
    if after(left, [one]) is None:
        return None
    behind = {n for n in left[one.entry] if 0 <= one.batch_index < n}
    return {
        n: some if n > one.entry else behind if n == one.entry else set()
        for n, some in left.items()
    }


@given(ACKS)
def test_each_message_is_acknowledged_once_and_nothing_is_left_of_a_whole_entry(acks):
    kept = kept_open(3, MESSAGES)
    left = {entry: set(range(MESSAGES)) for entry in range(3)}
    for is_cumulative, ids in acks:
        expected = after_all_up_to(left, ids[0]) if is_cumulative else after(left, ids)
        try:
            steps = kept.steps_up_to(ids[0], None) if is_cumulative else kept.steps(ids, None)
        except Retriable:
            assert expected is None
            continue
        assert expected is not None
        ended = {step.entry.place[1] for step in steps if step.is_last}
        assert ended == {n for n in expected if left[n] and not expected[n]}
        kept.apply(steps, None)
        left = expected
        assert {place[1] for place in kept.places} == {n for n, some in left.items() if some}


@pytest.mark.parametrize("is_cumulative", [False, True])
def test_a_large_entry_is_acknowledged_message_by_message_in_a_moment(is_cumulative):
    """This took minutes when each acknowledgement copied the remaining messages."""
    kept, began = kept_open(1, MANY), time.monotonic()
    for index in range(MANY):
        one = MessageId(1, 0, -1, index)
        kept.apply(kept.steps_up_to(one, None) if is_cumulative else kept.steps([one], None), None)
    assert kept.places == []
    assert time.monotonic() - began < 30


def test_many_messages_in_chunks_that_never_end_take_no_time():
    kept, started = AckTracker(), time.monotonic()
    for number in range(20_000):
        meta = metadata(publish_time=1000, uuid=str(number), num_chunks_from_msg=2, chunk_id=0)
        part = Entry(MessageId(1, number), meta, b"x")
        kept.add(part.id.place, (-1,))
        assert kept.expired_parts(part) == []
        kept.hold(part)
    assert time.monotonic() - started < 5  # it was 20 s
