"""Finds the beginning of a message in chunks, for a reader that began in the middle of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from eos.client._entry_reader import PERMITS, EntryReader
from eos.client._lookup import Lookup
from eos.client._subscriptions import new_subscription
from eos.client._topic_bounds import TopicBounds
from eos.errors import RequestTimeout
from eos.ids import MessageId
from eos.wire.batch import Entry

# All chunks have the publish time of their message. But other producers' clocks differ, and the
# broker's search by time assumes that times never decrease.
_SLACKS_MS: Final = (1_000, 60_000)


def entries_before(lookup: Lookup, topic: str, chunk: Entry) -> Iterator[Iterator[Entry]]:
    """Yield the entries of an exact topic before ``chunk``: those of the last second of publish
    times, then those of the last minute.

    Raises:
        EosError: they can't be read.
    """
    with closing(TopicBounds(lookup, topic)) as bounds:
        first = bounds.bounds().first
        for slack_ms in _SLACKS_MS:
            start = bounds.place_at(max(0, chunk.metadata.publish_time - slack_ms))
            start = max(first, min(start, chunk.id.place))
            yield _between(lookup, topic, MessageId(*start), chunk.id)
            if start == first:
                return


def _between(lookup: Lookup, topic: str, start: MessageId, end: MessageId) -> Iterator[Entry]:
    reader = EntryReader(
        lookup,
        lookup.broker_of(topic),
        topic,
        start,
        permits=PERMITS,
        subscription=new_subscription(lookup.rules),
    )
    with reader:
        reader.open()
        before = None
        # Without a limit of time in all: a busy topic has much in a minute.
        while reader.next_id != before or before is None:
            before = reader.next_id
            for entry in reader.read(time.monotonic() + lookup.timeout_s):
                if entry.id.place >= end.place:
                    return
                yield entry
        # `end` is readable: it was just read.
        raise RequestTimeout(f"Reading {topic}: nothing came for {lookup.timeout_s:g} s.")
