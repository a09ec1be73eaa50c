"""Reads a receipt topic without a gap, from a known entry to a message that is sent now.

Entries of a ledger are numbered without a gap. An idle reader, whose cursor may have been moved, is
trusted only if it delivers every number from start to end; otherwise a new one reads all again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from eos.client import ONE_PERMIT, PERMITS
from eos.errors import EosError, RequestTimeout, TransactionPoisoned
from eos.ids import EntryPlace, MessageId
from eos.waiting import run_both

if TYPE_CHECKING:
    from eos.client import Entry, EntryReader, PulsarClient

MAX_LAG_ENTRIES: Final = 100
"""An idle reader that lags further than this is closed: opening a new one is faster."""
IDLE_READ_TIMEOUT_S: Final = 1.0
"""Timeout of a read by an idle reader: it delivers within a few ms, or something is wrong."""
MAX_ITEMS: Final = 250_000
"""Far more than any job has tasks."""


class _Placed(Protocol):
    @property
    def id(self) -> MessageId: ...


Item = TypeVar("Item", bound=_Placed)


@dataclass(frozen=True)
class ContiguousRead(Generic[Item]):
    """``topic`` from the entry at ``start`` on.

    Attributes:
        is_start: whether an entry is the one expected at ``start``.
        start_was_read: this process has read the start before, so a reader may begin after it.
        extract: makes an item of an entry, also of the sent one, or None to skip it. Any writer to
            the topic may have put entries of any size and number between start and end.
    """

    topic: str
    start: EntryPlace
    is_start: Callable[[Entry], bool]
    start_was_read: bool
    extract: Callable[[Entry], Item | None]

    def read_to(
        self,
        client: PulsarClient,
        send: Callable[[], MessageId],
        *,
        timeout_s: float,
        reuse: bool,
    ) -> list[Item]:
        """Send, and read up to the sent message. Return the items of all entries after the start.

        Args:
            reuse: use the idle reader, if there is one, and keep the reader for the next time.

        Raises:
            TransactionPoisoned: another entry is at ``start``, or there are more than
                ``MAX_ITEMS`` items.
            EosError: it is not known whether the message was sent, or which entries precede it.
        """
        # Opening a reader is the slowest part of an answer to the roll call (measured: 5 to 12 ms
        # of 8 to 20). So a stream keeps its readers idle between epochs and reuses them.
        idle = self._idle_reader(client, reuse=reuse)
        if idle is None:
            sent, reader = self._send_and_open(client, send)
        else:
            try:
                sent = send()
                items = self._read_by_idle(idle, sent)
            except BaseException:
                idle.close()
                raise
            if items is not None:
                client.release_reader(idle)
                return items
            idle.close()
            reader = self._open(client)
        try:
            items, is_whole = self._read(reader, sent, timeout_s)
        except BaseException:
            reader.close()
            raise
        if reuse:
            client.release_reader(reader)
        else:
            reader.close()
        return items if is_whole else self._read_one_by_one(client, sent, timeout_s)

    def _read_one_by_one(
        self, client: PulsarClient, end: MessageId, timeout_s: float
    ) -> list[Item]:
        # The missing number may be a marker's or an aborted entry's. But from a batch of entries
        # the broker may also drop some if a hostile writer wants it to (``ONE_PERMIT``).
        with self._open(client, permits=ONE_PERMIT) as reader:
            items, _ = self._read(reader, end, timeout_s)
        if not items or items[-1].id.place != end.place:
            raise RequestTimeout(f"{self.topic} has lost {end}, which was sent just now.")
        return items

    def _idle_reader(self, client: PulsarClient, *, reuse: bool) -> EntryReader | None:
        reader = client.acquire_reader(self.topic)
        if reader is None:
            return None
        ledger, entry = self.start
        at = reader.next_id
        newest = entry + 1 if self.start_was_read else entry
        if reuse and at and at.ledger == ledger and newest - MAX_LAG_ENTRIES <= at.entry <= newest:
            return reader
        reader.close()
        return None

    def _read_by_idle(self, reader: EntryReader, end: MessageId) -> list[Item] | None:
        """Return None if an entry is missing or unexpected."""
        assert reader.next_id is not None
        expected = max(self.start, reader.next_id.place)
        items: list[Item] = []
        try:
            for entry in reader.read_to(end, time.monotonic() + IDLE_READ_TIMEOUT_S):
                place = entry.id.place
                if place < self.start:
                    continue
                if place != expected or (place == self.start and not self.is_start(entry)):
                    return None
                if place > self.start:
                    self._collect(entry, items)
                if place == end.place:
                    return items
                expected = place[0], place[1] + 1
        except EosError:
            pass  # its connection is lost, or the topic has moved
        return None

    def _read(
        self, reader: EntryReader, end: MessageId, timeout_s: float
    ) -> tuple[list[Item], bool]:
        """Return the items, and whether no entry number is missing after the start."""
        items: list[Item] = []
        expected, is_whole = self.start, True
        # From here on: a cold process may need all of it for its first answer (measured).
        for entry in reader.read_to(end, time.monotonic() + timeout_s):
            place = entry.id.place
            if expected != self.start:
                is_whole &= place == expected
                self._collect(entry, items)
            elif place != self.start or not self.is_start(entry):
                raise TransactionPoisoned(
                    f"{self.topic} has lost the roll call's beginning, or its reader was moved."
                )
            expected = place[0], place[1] + 1
            if place >= end.place:
                return items, is_whole and place == end.place
        raise RequestTimeout(f"{self.topic} could not be read to the end of the roll call in time.")

    def _collect(self, entry: Entry, items: list[Item]) -> None:
        if len(items) == MAX_ITEMS:
            raise TransactionPoisoned(
                f"{self.topic} has more than {MAX_ITEMS} answers to this roll call."
            )
        item = self.extract(entry)
        if item is not None:
            items.append(item)

    def _open(self, client: PulsarClient, *, permits: int = PERMITS) -> EntryReader:
        start = MessageId(*self.start)
        return client.entry_reader(self.topic, start, permits=permits, waits_at_limit=True)

    def _send_and_open(
        self, client: PulsarClient, send: Callable[[], MessageId]
    ) -> tuple[MessageId, EntryReader]:
        opened: list[EntryReader] = []
        try:
            sent = run_both(lambda: opened.append(self._open(client)), send)
        except BaseException:
            for reader in opened:
                reader.close()
            raise
        return sent, opened[0]
