"""The entries of one producer that the broker has not acknowledged yet.

Numbers them, bounds them, waits for them, and ends them all at once when one is in doubt. Every
change is made under ``lock``, which is the budget's and so that of all producers of a client;
futures are settled behind it, because they run users' callbacks.
"""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from eos._waiting import Future, Monitor
from eos.errors import EosError, Fatal, RequestTimeout
from eos.ids import MessageId

ENTRY_OVERHEAD_BYTES: Final = 1024
"""What an entry counts for besides its payload: many small ones cost memory as well."""


class Budget:
    """How many bytes the producers of one client may have in flight, all together.

    Whoever waits for room gets it in turn, so that a large entry is not passed over for ever.

    Args:
        max_bytes: ``ENTRY_OVERHEAD_BYTES`` for each entry included; a larger entry goes alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self.lock = Monitor()
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._entries: dict[PendingEntry, None] = {}
        self._turns: dict[int, None] = {}

    @contextmanager
    def turn(self) -> Iterator[int]:
        """A place among those who wait for room, for as long as the block runs.

        It is the thread's, and taken with its first question for room: what an interrupt in here
        leaves behind ends with the thread's next one, and a callback that sends takes none away.
        """
        mine = threading.get_ident()
        try:
            yield mine
        finally:
            with self.lock:
                self._turns.pop(mine, None)
                self.lock.notify_all()

    def has_room(self, size_bytes: int, turn: int) -> bool:
        """Whether it is one's turn, and an entry of that size may go now."""
        self._turns.setdefault(turn)
        fits = not self._entries or self._used_bytes + size_bytes <= self._max_bytes
        return fits and next(iter(self._turns)) == turn

    def oldest(self) -> PendingEntry | None:
        """The entry that has been in flight for longest, whosever it is."""
        return next(iter(self._entries), None)

    def take(self, entry: PendingEntry) -> None:
        """It is in flight."""
        self._entries[entry] = None
        self._used_bytes += entry.size_bytes

    def free(self, entries: Iterable[PendingEntry]) -> None:
        """They are in flight no longer. The second time, and before ``take``, it does nothing."""
        for entry in entries:
            if entry in self._entries:
                del self._entries[entry]
                self._used_bytes -= entry.size_bytes
        self.lock.notify_all()


@dataclass(frozen=True, eq=False)
class PendingEntry:
    """One entry, from the moment that its sender asks for room."""

    window: Window
    size_bytes: int
    acknowledgement: Future[MessageId]


class Window:
    """Entries in flight.

    Args:
        topic: for the texts of errors.
        budget: what the entries of all producers of a client take together.
        timeout_s: how long the oldest entry may wait for its acknowledgement while somebody waits.
        on_failure: called once, under the lock, before anybody else learns of the failure.
        first_sequence_id: where the numbers begin.
    """

    def __init__(
        self,
        topic: str,
        budget: Budget,
        *,
        timeout_s: float,
        on_failure: Callable[[EosError], None],
        first_sequence_id: int = 0,
    ) -> None:
        self.lock = budget.lock
        self._budget = budget
        self._topic = topic
        self._timeout_s = timeout_s
        self._on_failure = on_failure
        self._entries: OrderedDict[int, PendingEntry] = OrderedDict()
        self._next_sequence_id = first_sequence_id
        self._failure: EosError | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether it takes entries: neither failed nor closed."""
        return self._failure is None and not self._closed

    def check(self) -> None:
        """Raise why it takes no entries; nothing when it does.

        Raises:
            EosError: what made it fail, afresh for each caller.
        """
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._closed:
            raise Fatal(f"The producer on {self._topic} is closed.")

    def entry(self, payload_bytes: int) -> PendingEntry:
        """An entry that wants to be sent; nobody waits for it until ``admit``."""
        entry = PendingEntry(self, payload_bytes + ENTRY_OVERHEAD_BYTES, Future())
        entry.acknowledgement.set_running_or_notify_cancel()  # nobody can call back what is sent
        return entry

    def admit(self, entry: PendingEntry, num_messages: int, check: Callable[[], None]) -> int:
        """The sequence id of an entry that is about to be sent. Waits for room.

        A producer whose acknowledgements stop coming fails, and gives its room back.

        Args:
            check: called under the lock; raises when the entry must not be sent.
        """
        with self._budget.turn() as turn:
            while True:
                with self.lock:
                    silent = self._await(
                        lambda: self._budget.has_room(entry.size_bytes, turn), self._budget.oldest
                    )
                    if silent is None:
                        check()
                        sequence_id = self._next_sequence_id
                        self._next_sequence_id += num_messages
                        self._entries[sequence_id] = entry
                        self._budget.take(entry)
                        return sequence_id
                silent.window.fail_in_silence()

    def is_in_flight(self, entry: PendingEntry) -> bool:
        """Whether ``flush`` would wait for it: it is admitted, and neither acknowledged nor lost.

        A sender that is interrupted anywhere, in ``admit`` as well, learns here what it left.
        """
        with self.lock:
            return entry in self._entries.values()

    def acknowledge(self, sequence_id: int, message_id: MessageId) -> bool:
        """Settle one entry. False: no such entry is in flight."""
        with self.lock:
            entry = self._entries.pop(sequence_id, None)
            if entry is None:
                return False
            self._budget.free([entry])
        entry.acknowledgement.set_result(message_id)
        return True

    def fail(self, reason: EosError) -> None:
        """All entries in flight are in doubt, and no more are taken. Only the first reason counts.

        What an interrupted call left undone, the next one does.
        """
        with self.lock:
            failure = self._failure or copy.copy(reason)
            if self._failure is None:
                self._on_failure(failure)
                self._failure = failure
            lost = list(self._entries.values())
            self._budget.free(lost)
            self._entries.clear()
        for entry in lost:
            entry.acknowledgement.set_exception(copy.copy(failure))

    def fail_in_silence(self) -> None:
        """``fail``: the broker has not acknowledged the oldest entry for a whole time-out."""
        self.fail(
            RequestTimeout(f"No acknowledgement from {self._topic} in {self._timeout_s:g} s.")
        )

    def successor(self, on_failure: Callable[[EosError], None]) -> Window:
        """Another one whose numbers go on where this one's, which is closed, have ended."""
        return Window(
            self._topic,
            self._budget,
            timeout_s=self._timeout_s,
            on_failure=on_failure,
            first_sequence_id=self._next_sequence_id,
        )

    def close(self) -> bool:
        """Take no more entries. False: it was closed before."""
        with self.lock:
            was_closed, self._closed = self._closed, True
            return not was_closed

    def flush(self, deadline: float = math.inf) -> None:
        """Wait for the acknowledgements of all entries that were admitted before this call.

        ``deadline``: not longer than that, on the clock of ``time.monotonic``.

        Raises:
            EosError: what made it fail.
        """
        with self.lock:
            end = self._next_sequence_id

            def is_flushed() -> bool:
                oldest = next(iter(self._entries), None)
                return oldest is None or oldest >= end

            silent = self._await(
                is_flushed, lambda: next(iter(self._entries.values()), None), deadline
            )
        if silent is not None:
            self.fail_in_silence()
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _await(
        self,
        is_done: Callable[[], bool],
        oldest: Callable[[], PendingEntry | None],
        deadline: float = math.inf,
    ) -> PendingEntry | None:
        """Under the lock, until it is done or this window has failed.

        Returns:
            The ``oldest`` entry, when it has been that, unacknowledged, for a whole time-out or
            until ``deadline``: answers to younger ones are no sign of life for it. None otherwise.
        """
        while self._failure is None and not is_done():
            before = oldest()

            def moved(before: PendingEntry | None = before) -> bool:
                return self._failure is not None or is_done() or oldest() is not before

            wait_s = min(self._timeout_s, max(0.0, deadline - time.monotonic()))
            if not self.lock.wait_for(moved, wait_s) and before is not None:
                return before
        return None
