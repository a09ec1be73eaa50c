"""Reads the first or the last committed messages of a topic, without a durable subscription."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from eos.admin import AdminClient, Ledger
from eos.client import Bounds, PulsarClient
from eos.errors import ProtocolError
from eos.ids import EntryPlace, MessageId, TopicName
from eos.wire.batch import object_bytes

# Total size of the messages in memory; twice that while two partitions are merged. In JSON a byte
# may take six, several times.
MAX_BYTES: Final = 16 * 1024 * 1024

# Size of a value that is shown: brokers accept messages of 5 MiB by default, compressed.
MAX_VALUE_BYTES: Final = 8 * 1024 * 1024

_MOST_AT_FIRST: Final = 100  # Entries to read at first: each may have thousands of messages.

_COLUMNS: Final = (
    "value", "key", "publish_time", "properties", "producer_name", "schema_version",
    "ledger", "entry", "batch_index",
)  # fmt: skip


@dataclass(frozen=True)
class RawMessage:
    """A message as it is stored."""

    id: MessageId
    publish_time_ms: int | None = None
    value: bytes | None = None
    key: bytes | None = None
    properties: tuple[tuple[str, str], ...] = ()
    producer_name: str = ""
    schema_version: bytes | None = None
    # Why an entry, which may have several messages, can't be decoded, or why a value is not shown.
    problem: str | None = None
    clock: int = 0  # orders merged partitions; it never decreases in one

    @property
    def size(self) -> int:
        """Its approximate size in memory."""
        return object_bytes(self.value, self.key, self.properties)


@dataclass
class PeekReader:
    """Reads the newest or the oldest ``count`` messages of a topic, partition by partition.

    Attributes:
        deadline: when to stop, by ``time.monotonic``.
        found: the messages, in the order of their clocks.
        notes: why messages may be missing.
    """

    # A broker delivers only committed messages: none of aborted transactions, and none from the
    # first entry of an open one on. Reading ends where the topic ends now; it does not wait for
    # more.

    client: PulsarClient
    count: int
    deadline: float
    found: list[RawMessage] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add_oldest(self, topic: TopicName, start: MessageId | None) -> None:
        """Read the exact ``topic`` from ``start`` on; TopicNotFound if it does not exist."""
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
        """Read the end of the exact ``topic``; TopicNotFound if it does not exist."""
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
        # Puts the messages between two places before `held`, or as many of the last ones as are
        # wanted. Returns whether earlier messages are wanted, too.
        newer: deque[RawMessage] = deque()
        size, is_full = sum(one.size for one in held), False
        wanted = self.count - len(held)
        first, last = MessageId(*start), MessageId(*end)
        for message in self._messages(topic, first, last, of_each_batch=wanted):
            newer.append(message)
            size += message.size
            # One message is kept, however large.
            while len(newer) > wanted or (len(newer) > 1 and self._is_too_much(size)):
                is_full = True
                size -= newer.popleft().size
        if self.is_late():
            return False  # the last messages of the span have not arrived
        held[:0] = newer
        return not is_full and len(held) < self.count

    def _messages(
        self,
        topic: TopicName,
        start: MessageId | None,
        last: MessageId | None,
        of_each_batch: int | None = None,
    ) -> Iterator[RawMessage]:
        # In order; for entries that can't be decoded, their place and the reason. At most
        # `of_each_batch` of a batch's last messages are wanted.
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
            # The place of the bad entry: read again, without decoding it.
            bad = self._next_place(topic, start)
            if self.is_late() or bad is None or bad > last.place:
                return
            yield RawMessage(_id(bad, topic), problem=reason)
            start = MessageId(bad[0], bad[1] + 1)

    def _next_place(self, topic: TopicName, start: MessageId | None) -> EntryPlace | None:
        with self.client.entry_reader(str(topic), start) as reader:
            entry = next(reader.read(self.deadline), None)
        return None if entry is None else entry.id.place

    def _bounds(self, topic: TopicName) -> Bounds:
        with closing(self.client.topic_bounds(str(topic))) as tail:
            return tail.final_bounds()

    def _merged(self, more: Sequence[RawMessage]) -> list[RawMessage]:
        clock, timed = 0, []
        for one in more:
            # Producers' clocks differ, but the messages of a partition stay in their order.
            clock = max(clock, one.publish_time_ms or 0)
            timed.append(replace(one, clock=clock))
        return list(heapq.merge(self.found, timed, key=lambda one: one.clock))

    def _fitting(self, messages: list[RawMessage], *, newest: bool) -> list[RawMessage]:
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
            self._note(f"More than {MAX_BYTES >> 20} MiB of messages: the rest is left out.")
        return size > MAX_BYTES

    def is_late(self) -> bool:
        """Whether the deadline has passed; then it adds a note."""
        is_late = time.monotonic() > self.deadline
        if is_late:
            self._note("Not all messages were read in time: increase --timeout-s.")
        return is_late

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def _backwards(
    ledgers: Sequence[Ledger], bounds: Bounds, entries: int
) -> Iterator[tuple[EntryPlace, EntryPlace]]:
    # Spans from the topic's end to its beginning (both ends inclusive): of `entries` entries at
    # first, then of twice as many each time, because some may be aborted.
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
    # A producer's time may be out of the range of Python's datetime.
    columns["publish_time"] = columns["publish_time"].cast(pa.int64())
    sizes = pc.binary_length(columns["value"])
    for row in range(batch.num_rows):
        size = sizes[row].as_py()
        # A longer value would be held several times over in memory.
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
            problem=None if is_shown else f"The value of {size:,} bytes is too long to be shown.",
        )


def _id(place: EntryPlace, topic: TopicName, batch_index: int = -1) -> MessageId:
    index = topic.partition_index
    return MessageId(*place, -1 if index is None else index, batch_index)
