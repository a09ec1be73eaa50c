"""The first or the last committed messages of a topic, without a subscription that stays.

What a broker delivers is committed: nothing of an aborted transaction, nothing at or behind an open
one. So nothing here waits for what is not readable yet: it reads to where the topic ends now.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eos.admin import AdminClient, Ledger
from eos.client import Bounds, PulsarClient
from eos.errors import ProtocolError
from eos.ids import EntryPlace, MessageId, TopicName
from eos.wire.batch import object_bytes

MAX_BYTES: Final = 16 * 1024 * 1024
"""Of the messages that are held; twice as many while two partitions are merged. As JSON a byte may
take six, several times over."""

MAX_VALUE_BYTES: Final = 8 * 1024 * 1024
"""Of a value that is shown: brokers take messages of 5 MiB by default, compressed."""

_MOST_AT_FIRST: Final = 100
"""Entries to look at first: there may be thousands of messages in each."""

_COLUMNS: Final = (
    "value", "key", "publish_time", "properties", "producer_name", "schema_version",
    "ledger", "entry", "batch_index",
)  # fmt: skip


@dataclass(frozen=True)
class RawMessage:
    """A message as it is stored.

    ``problem``: why an entry can't be opened, which may have several messages, or a value is not
    shown. ``clock``: by which the partitions of a topic are merged: no message's is below an
    earlier one's of its partition.
    """

    id: MessageId
    publish_time_ms: int | None = None
    value: bytes | None = None
    key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    producer_name: str = ""
    schema_version: bytes | None = None
    problem: str | None = None
    clock: int = 0

    @property
    def size(self) -> int:
        """What it takes here, about."""
        return object_bytes(self.value, self.key, self.properties)


@dataclass
class Peeking:
    """Messages of one topic, partition by partition, the newest ``count`` or the oldest.

    Attributes:
        deadline: on the clock of ``time.monotonic``: what is found by then is all.
        found: in the order of their clocks.
        notes: why it may not be all that was asked for.
    """

    client: PulsarClient
    count: int
    deadline: float
    found: list[RawMessage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_oldest(self, topic: TopicName, start: MessageId | None) -> None:
        """Look at the exact ``topic`` from ``start`` on.

        Raises:
            TopicNotFound: there is no such topic.
            EosError: it can't be read.
        """
        last = self._bounds(topic).last_id
        held: list[RawMessage] = []
        size = 0
        for message in self._messages(topic, start, last):
            held.append(message)
            size += message.size
            if len(held) == self.count or self._is_too_much(size):
                break
        self.found = self._fitting(self._merged(held), newest=False)

    def add_newest(self, topic: TopicName, admin: AdminClient) -> None:
        """Look at the end of the exact ``topic``.

        Raises:
            TopicNotFound: there is no such topic.
            EosError: it can't be read.
        """
        bounds = self._bounds(topic)
        held: list[RawMessage] = []
        if bounds.last_id is None:
            return
        for start, end in _backwards(admin.ledgers(topic), bounds, min(self.count, _MOST_AT_FIRST)):
            if self.is_late() or not self._go_back(topic, start, end, held):
                break
        self.found = self._fitting(self._merged(held), newest=True)

    def _go_back(
        self, topic: TopicName, start: EntryPlace, end: EntryPlace, held: list[RawMessage]
    ) -> bool:
        """Put the messages between two places in front of ``held``, or as many of the last ones as
        are wanted; whether more are, that lie before."""
        newer: deque[RawMessage] = deque()
        size, is_full = sum(one.size for one in held), False
        wanted = self.count - len(held)
        first, last = MessageId(*start), MessageId(*end)
        for message in self._messages(topic, first, last, of_each_batch=wanted):
            newer.append(message)
            size += message.size
            while len(newer) > wanted or (len(newer) > 1 and self._is_too_much(size)):
                is_full = True
                size -= newer.popleft().size
        if self.is_late():
            return False  # what has come is not the last of it
        held[:0] = newer
        return not is_full and len(held) < self.count

    def _messages(
        self,
        topic: TopicName,
        start: MessageId | None,
        last: MessageId | None,
        of_each_batch: int | None = None,
    ) -> Iterator[RawMessage]:
        """What lies between, in order; of each entry that can't be opened its place and why.

        ``of_each_batch``: only so many of its last ones are wanted.
        """
        while last is not None and (start is None or start.place <= last.place):
            with self.client.reader(str(topic), start=start, columns=_COLUMNS) as reader:
                try:
                    for batch in reader.read_to(last):
                        wanted = min(batch.num_rows, of_each_batch or batch.num_rows)
                        yield from _rows(batch.slice(batch.num_rows - wanted), topic)
                        if self.is_late():
                            return
                    return
                except ProtocolError as error:
                    reason, start = error.message, reader.next_id
            odd = self._next_place(topic, start)
            if self.is_late() or odd is None or odd > last.place:
                return
            yield RawMessage(_id(odd, topic), problem=reason)
            start = MessageId(odd[0], odd[1] + 1)

    def _next_place(self, topic: TopicName, start: MessageId | None) -> EntryPlace | None:
        with self.client.entry_reader(str(topic), start) as reader:
            entry = next(reader.read(self.deadline), None)
        return None if entry is None else entry.id.place

    def _bounds(self, topic: TopicName) -> Bounds:
        tail = self.client.tail(str(topic))
        try:
            return tail.bounds()
        finally:
            tail.close()

    def _merged(self, more: Sequence[RawMessage]) -> list[RawMessage]:
        clock, timed = 0, []
        for one in more:
            clock = max(clock, one.publish_time_ms or 0)
            timed.append(replace(one, clock=clock))
        return list(heapq.merge(self.found, timed, key=lambda one: one.clock))

    def _fitting(self, messages: list[RawMessage], *, newest: bool) -> list[RawMessage]:
        """Of too many, those that were asked for, as far as there is room."""
        kept: list[RawMessage] = []
        size = 0
        for one in reversed(messages) if newest else messages:
            size += one.size
            if len(kept) == self.count or (kept and self._is_too_much(size)):
                break
            kept.append(one)
        return kept[::-1] if newest else kept

    def _is_too_much(self, size: int) -> bool:
        if size > MAX_BYTES:
            self._note(f"More than {MAX_BYTES >> 20} MiB of messages: the others are left out.")
        return size > MAX_BYTES

    def is_late(self) -> bool:
        """Whether the time is over; then a note says so."""
        is_late = time.monotonic() > self.deadline
        if is_late:
            self._note("Not all was read in time: give --timeout-s more.")
        return is_late

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _backwards(
    ledgers: Sequence[Ledger], bounds: Bounds, entries: int
) -> Iterator[tuple[EntryPlace, EntryPlace]]:
    """Spans of a topic, both ends included, from its end to its beginning: of ``entries`` entries
    at first, of twice as many each time, as there may be aborted ones among them."""
    assert bounds.last_id is not None
    last = bounds.last_id
    for ledger in reversed(ledgers):
        if not bounds.first[0] <= ledger.id <= last.ledger:
            continue
        end = last.entry if ledger.id == last.ledger else ledger.entries - 1
        begin = max(0, bounds.first[1]) if ledger.id == bounds.first[0] else 0
        while end >= begin:
            start = max(begin, end - entries + 1)
            yield (ledger.id, start), (ledger.id, end)
            end, entries = start - 1, 2 * entries


def _rows(batch: pa.RecordBatch, topic: TopicName) -> Iterator[RawMessage]:
    columns = {name: batch.column(name) for name in _COLUMNS}
    # A peer's time may be beyond what Python's can be.
    columns["publish_time"] = columns["publish_time"].cast(pa.int64())
    sizes = pc.binary_length(columns["value"])
    for row in range(batch.num_rows):
        size = sizes[row].as_py()
        is_shown = size is None or size <= MAX_VALUE_BYTES
        one: dict[str, Any] = {
            name: column[row].as_py()
            for name, column in columns.items()
            if is_shown or name != "value"
        }
        yield RawMessage(
            id=_id((one["ledger"], one["entry"]), topic, one["batch_index"]),
            publish_time_ms=one["publish_time"],
            value=one.get("value"),
            key=one["key"],
            properties=tuple(one["properties"] or ()),
            producer_name=one["producer_name"] or "",
            schema_version=one["schema_version"],
            problem=None if is_shown else f"Its value of {size:,} bytes is too long to be shown.",
        )


def _id(place: EntryPlace, topic: TopicName, batch_index: int = -1) -> MessageId:
    index = topic.partition_index
    return MessageId(*place, -1 if index is None else index, batch_index)
