"""A stretch of a receipt topic: every entry from a place that is known to a message sent now.

Opening a reader is what takes longest in an answer to the roll call (measured: 5 to 12 ms of 8 to
20), so a stream's readers are parked, and go on in the next epoch. Such a one is believed only
where it leaves out no number from the start to the end: entries of a ledger are numbered without a
gap, so it has met all of them, whatever anybody has done to its cursor meanwhile. A number that is
missing may be a marker's or an aborted entry's, too. Then, and whatever else is strange, a new
reader reads all of it; and where that one misses a number, another one reads entry by entry: of
several at once a broker may drop what somebody wants it to (``ONE_BY_ONE``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from eos._waiting import beside
from eos.client import ONE_BY_ONE, PERMITS
from eos.errors import EosError, RequestTimeout, TransactionPoisoned
from eos.ids import EntryPlace, MessageId

if TYPE_CHECKING:
    from eos.client import Entry, EntryReader, PulsarClient

FAR_ENTRIES: Final = 100
"""A parked reader that is farther behind than that is closed: a new one is there sooner."""
PARKED_WAIT_S: Final = 1.0
"""How long a parked reader may take: it has entries in a few ms, or something is wrong with it."""
MAX_KEPT: Final = 250_000
"""Of entries: far more than any job has tasks."""


class _Placed(Protocol):
    @property
    def id(self) -> MessageId: ...


Met = TypeVar("Met", bound=_Placed)


@dataclass(frozen=True)
class TopicStretch(Generic[Met]):
    """From the entry at ``start`` of ``topic`` on.

    ``is_start`` says whether an entry is the one that has to be there; ``was_met``, whether this
    process has met it before, so that a reader may begin behind it. ``keep`` makes of an entry what
    is kept of it, None of one that is passed over: whoever may write to the topic may have put
    entries of any size and number between start and end.
    """

    topic: str
    start: EntryPlace
    is_start: Callable[[Entry], bool]
    was_met: bool
    keep: Callable[[Entry], Met | None]

    def read_to(
        self,
        client: PulsarClient,
        send: Callable[[], MessageId],
        *,
        timeout_s: float,
        parks: bool,
    ) -> list[Met]:
        """Send, and read the topic up to what was sent: what is kept of the entries behind
        ``start``, of all of them.

        Args:
            parks: go on with the reader that was parked, and park it again.

        Raises:
            TransactionPoisoned: what has to be at ``start`` is not there, or there is more to keep
                than ``MAX_KEPT``.
            EosError: it is not known whether the message was sent, or what comes before it.
        """
        parked = self._parked(client, parks=parks)
        if parked is None:
            sent, reader = self._send_and_open(client, send)
        else:
            try:
                sent = send()
                met = self._met_by_parked(parked, sent)
            except BaseException:
                parked.close()
                raise
            if met is not None:
                client.park_reader(parked)
                return met
            parked.close()
            reader = self._open(client)
        try:
            met, is_whole = self._met(reader, sent, timeout_s)
        except BaseException:
            reader.close()
            raise
        if parks:
            client.park_reader(reader)
        else:
            reader.close()
        return met if is_whole else self._met_one_by_one(client, sent, timeout_s)

    def _met_one_by_one(self, client: PulsarClient, end: MessageId, timeout_s: float) -> list[Met]:
        with self._open(client, permits=ONE_BY_ONE) as reader:
            met, _ = self._met(reader, end, timeout_s)
        return met

    def _parked(self, client: PulsarClient, *, parks: bool) -> EntryReader | None:
        """The parked reader, where it is of use."""
        reader = client.parked_reader(self.topic)
        if reader is None:
            return None
        ledger, entry = self.start
        at = reader.next_id
        newest = entry + 1 if self.was_met else entry
        if parks and at and at.ledger == ledger and newest - FAR_ENTRIES <= at.entry <= newest:
            return reader
        reader.close()
        return None

    def _met_by_parked(self, reader: EntryReader, end: MessageId) -> list[Met] | None:
        """None: something is missing, or strange."""
        assert reader.next_id is not None
        expected = max(self.start, reader.next_id.place)
        met: list[Met] = []
        try:
            for entry in reader.read_to(end, time.monotonic() + PARKED_WAIT_S):
                place = entry.id.place
                if place < self.start:
                    continue
                if place != expected or (place == self.start and not self.is_start(entry)):
                    return None
                if place > self.start:
                    self._keep(entry, met)
                if place == end.place:
                    return met
                expected = place[0], place[1] + 1
        except EosError:
            pass  # its connection is gone, or the topic has moved
        return None

    def _met(self, reader: EntryReader, end: MessageId, timeout_s: float) -> tuple[list[Met], bool]:
        """What is kept, and whether no number is missing behind the start."""
        met: list[Met] = []
        expected, is_whole = self.start, True
        # From here on: the first answer of a cold process may have taken all of it (measured).
        for entry in reader.read_to(end, time.monotonic() + timeout_s):
            place = entry.id.place
            if expected != self.start:
                is_whole &= place == expected
                self._keep(entry, met)
            elif place != self.start or not self.is_start(entry):
                raise TransactionPoisoned(
                    f"{self.topic} has lost the roll call's beginning, or its reader was moved."
                )
            expected = place[0], place[1] + 1
            if place >= end.place:
                return met, is_whole
        raise RequestTimeout(f"{self.topic} could not be read to the end of the roll call in time.")

    def _keep(self, entry: Entry, met: list[Met]) -> None:
        if len(met) == MAX_KEPT:
            raise TransactionPoisoned(
                f"{self.topic} has more than {MAX_KEPT} answers of this call."
            )
        kept = self.keep(entry)
        if kept is not None:
            met.append(kept)

    def _open(self, client: PulsarClient, *, permits: int = PERMITS) -> EntryReader:
        start = MessageId(*self.start)
        return client.entry_reader(self.topic, start, permits=permits, waits_for_parked=True)

    def _send_and_open(
        self, client: PulsarClient, send: Callable[[], MessageId]
    ) -> tuple[MessageId, EntryReader]:
        """Send, and open the reader that will meet it: both at once, for both take a while, and
        neither needs the other."""
        opened: list[EntryReader] = []
        try:
            sent = beside(lambda: opened.append(self._open(client)), send)
        except BaseException:
            for reader in opened:
                reader.close()
            raise
        return sent, opened[0]
