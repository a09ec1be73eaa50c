"""Counts entries and their rows: limits the entries of an epoch, and divides them among tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice, pairwise
from math import ceil
from typing import Final, Self

from eos.admin import Ledger
from eos.client import ONE_PERMIT, Entry, PulsarClient
from eos.errors import BrokerError, ProtocolError, RequestTimeout
from eos.ids import EntryPlace, MessageId
from eos.retry import attempts
from eos.sources._offsets import Span, place_text
from eos.waiting import parallel_map

_SENDING_MS: Final = 60_000  # of all chunks of a message
_MOST_READ: Final = 64 * 2**20  # bytes, of an entry at least as many as its handling costs
_ENTRY_BYTES: Final = 1000


@dataclass(frozen=True)
class EntryRun:
    """Entries of one ledger: ``count`` from ``first`` on. ``bytes`` is their approximate size."""

    ledger: int
    first: int
    count: int
    bytes: float


@dataclass(frozen=True)
class Contents:
    """The entries of a span, in their order."""

    span: Span
    runs: tuple[EntryRun, ...]

    @classmethod
    def of(cls, span: Span, ledgers: Sequence[Ledger]) -> Self:
        """Find the entries by the partition's ledgers; the last one may have grown since."""
        assert span.end is not None
        start = span.start or (0, 0)
        runs = []
        # Entries of a ledger are numbered without a gap, including markers of transactions and
        # aborted entries, so counts are never too small.
        for ledger in ledgers:
            first = start[1] if ledger.id == start[0] else 0
            end = span.end[1] if ledger.id == span.end[0] else ledger.entries
            if start[0] <= ledger.id <= span.end[0] and end > first:
                share = (end - first) / (ledger.entries or end)
                runs.append(EntryRun(ledger.id, first, end - first, share * ledger.bytes))
        return cls(span, tuple(runs))

    @property
    def entries(self) -> int:
        """The number of entries."""
        return sum(run.count for run in self.runs)

    @property
    def bytes(self) -> float:
        """Their approximate size in the broker's storage."""
        return sum(run.bytes for run in self.runs)

    def place_of(self, count: int) -> EntryPlace:
        """Return the place after the first ``count`` entries."""
        for run in self.runs:
            if count <= run.count:
                return run.ledger, run.first + count
            count -= run.count
        assert self.span.end is not None
        return self.span.end

    def cut(self, count: int) -> EntryPlace:
        """Return the end of a span of the first ``count`` entries."""
        assert self.span.end is not None
        return self.span.end if count >= self.entries else self.place_of(count)

    def split(self, parts: int) -> list[Span]:
        """Split it into at most ``parts`` spans of about equal numbers of entries."""
        parts = max(1, min(parts, self.entries))
        inner = [self.place_of(self.entries * part // parts) for part in range(1, parts)]
        places = [self.span.start, *inner, self.span.end]
        return [Span(start, end) for start, end in pairwise(places)]


def limited(contents: Mapping[str, Contents], fraction: float) -> dict[str, EntryPlace]:
    """Return where each partition's span ends if only ``fraction`` of the entries may be read."""
    # Each partition with entries gets at least one, so that none starves.
    return {name: one.cut(ceil(one.entries * fraction)) for name, one in contents.items()}


def shares(contents: Mapping[str, Contents], tasks: int) -> dict[str, int]:
    """Divide at least ``tasks`` tasks among partitions by their bytes; each gets at least one."""
    total = sum(one.bytes for one in contents.values())
    return {
        name: max(1, ceil(tasks * one.bytes / total)) if total else 1
        for name, one in contents.items()
    }


# Known partitions that are sampled again in one planning. A broker sends whole entries: with 3,000
# topics, entries of 180 KiB and epochs of two each, one sample of each took a fifth of the time
# (measured).
MAX_RESAMPLED: Final = 64


def next_entry(
    client: PulsarClient, topic: str, start: MessageId | None, timeout_s: float
) -> Entry | None:
    """Return the first entry at ``start`` or after it; None if none is readable in ``timeout_s``.

    Raises:
        ProtocolError: the entry is malformed.
        EosError: the topic can't be read.
    """
    deadline = time.monotonic() + timeout_s

    def read() -> Entry | None:
        with client.entry_reader(topic, start, permits=ONE_PERMIT) as reader:
            return next(reader.read(deadline), None)

    # The topic may move to another broker meanwhile.
    return attempts(timeout_s)(read)


def first_published(
    client: PulsarClient, topic: str, start: EntryPlace, last: EntryPlace, since_ms: int
) -> EntryPlace:
    """Return the first entry from ``start`` to ``last`` that was published at ``since_ms`` or
    later; the place after ``last`` if there is none.

    ``last`` is readable.

    Raises:
        RequestTimeout: no entry came for the client's ``timeout_s``.
        EosError: the topic can't be read, or an entry is malformed.
    """
    place = start
    with client.entry_reader(topic, MessageId(*start)) as reader:
        while place <= last:
            entry = next(reader.read(time.monotonic() + client.lookup.timeout_s), None)
            if entry is None:
                raise RequestTimeout(f"{topic} delivers no entry from {place_text(place)} on.")
            if entry.metadata.publish_time >= since_ms:
                return entry.id.place
            place = (entry.id.ledger, entry.id.entry + 1)
    return place


def unfinished_before(
    client: PulsarClient, topic: str, place: EntryPlace, timeout_s: float
) -> EntryPlace:
    """Return the first entry before ``place`` that is needed after it: a chunk of a message with
    later chunks there; ``place`` if no ledger before that of ``place`` has one.

    If there is too much to read, it is the begin of the last minute.

    Raises:
        EosError: the topic can't be read.
    """
    with closing(client.topic_bounds(topic)) as tail:
        first, last = tail.bounds()
        if last is None or last.place < first:
            return place
        try:
            newest = next_entry(client, topic, MessageId(*min(last.place, place)), timeout_s)
            if newest is None:
                return place
            # All chunks have the publish time of their message.
            since_ms = newest.metadata.publish_time - _SENDING_MS
            begin = max(first, tail.place_at(max(0, since_ms)))
        except (ProtocolError, BrokerError):  # its time is unknown; it can't be looked for
            return place
    if begin >= (place[0], 0):
        return place
    with client.entry_reader(topic, MessageId(*begin)) as reader:
        entries = reader.read(time.monotonic() + timeout_s)
        try:
            found = _first_unfinished(entries, place, last.place, since_ms)
        except ProtocolError:  # an entry is malformed
            found = None
    return begin if found is None else found


def _first_unfinished(
    entries: Iterator[Entry], end: EntryPlace, last: EntryPlace, since_ms: int
) -> EntryPlace | None:
    """None: it is unknown. ``last``: of the entries that can be read."""
    begun: dict[tuple[str, str | None], EntryPlace] = {}
    size = 0
    for entry in entries:
        one, at = entry.metadata, entry.id.place
        size += len(entry.payload) + _ENTRY_BYTES
        if size > _MOST_READ:
            return None
        if at < end and (one.num_chunks_from_msg or 1) > 1 and one.publish_time >= since_ms:
            begun.setdefault((one.producer_name, one.uuid), at)
            if (one.chunk_id or 0) + 1 == one.num_chunks_from_msg:
                del begun[one.producer_name, one.uuid]
        if at >= min(end, last):
            return min(begun.values(), default=end)
    return None


class RowsPerEntry:
    """The number of messages in an entry of each partition, by a recent sample.

    Unknown partitions are sampled, and some of the others, in turn. ``sample`` returns the number
    of messages in the entry at a place, or in the next one.
    """

    def __init__(self, sample: Callable[[str, EntryPlace], int]) -> None:
        self._sample = sample
        self._known: dict[str, int] = {}  # the oldest sample first

    def of(self, starts: Mapping[str, EntryPlace]) -> dict[str, int]:
        """Return it for the partitions that are read from ``starts`` on; EosError if one can't be
        read."""
        unknown = [name for name in starts if name not in self._known]
        # A few in turn: an entry of each topic in each epoch would be sent for planning alone.
        in_turn = islice((name for name in self._known if name in starts), MAX_RESAMPLED)
        # Known ones too: the first entry of a topic may be unlike later ones.
        names = [*unknown, *in_turn]
        for name, rows in zip(
            names, parallel_map(lambda name: self._sample(name, starts[name]), names), strict=True
        ):
            self._known.pop(name, None)
            self._known[name] = rows
        return {name: self._known[name] for name in starts}
