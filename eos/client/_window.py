"""The entries of one producer that are in flight: sent and not acknowledged."""

from __future__ import annotations

import copy
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from eos.errors import EosError, Fatal, RequestTimeout
from eos.ids import MessageId
from eos.waiting import Future, Monitor

# Added to an entry's payload size: many small entries also cost memory.
ENTRY_OVERHEAD_BYTES: Final = 1024
_MAX_THREADS: Final = 64


class Budget:
    """The bytes that all producers of one client together may have in flight.

    Waiting threads get room in turn, so that a large entry does not wait forever.

    Args:
        max_bytes: includes ``ENTRY_OVERHEAD_BYTES`` per entry; a larger entry is sent alone.
    """

    def __init__(self, max_bytes: int) -> None:
        self.lock = Monitor()
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._entries: dict[PendingEntry, None] = {}
        self._turns: dict[int, None] = {}

    @contextmanager
    def turn(self) -> Iterator[int]:
        """The thread's turn among those that wait for room; the first ``has_room`` begins it."""
        # By thread: leftovers of an interrupt in here end with the thread's next turn, and a
        # callback that sends does not take another thread's turn.
        mine = threading.get_ident()
        try:
            yield mine
        finally:
            with self.lock:
                self._turns.pop(mine, None)
                self.lock.notify_all()

    def has_room(self, size_bytes: int, turn: int) -> bool:
        """Whether it is this turn, and an entry of that size may be sent now."""
        self._turns.setdefault(turn)
        fits = not self._entries or self._used_bytes + size_bytes <= self._max_bytes
        return fits and next(iter(self._turns)) == turn

    def oldest(self) -> PendingEntry | None:
        """The oldest entry in flight of any producer."""
        return next(iter(self._entries), None)

    def take(self, entry: PendingEntry) -> None:
        """Count an entry as in flight."""
        self._entries[entry] = None
        self._used_bytes += entry.size_bytes

    def free(self, entries: Iterable[PendingEntry]) -> None:
        """Remove entries from those in flight. No effect the second time, or before ``take``."""
        for entry in entries:
            if entry in self._entries:
                del self._entries[entry]
                self._used_bytes -= entry.size_bytes
        self.lock.notify_all()


@dataclass(frozen=True, eq=False)
class PendingEntry:
    """One entry, from the moment when its sender asks for room."""

    window: Window
    size_bytes: int
    acknowledgement: Future[MessageId]


class Window:
    """Numbers, limits and awaits entries in flight, and fails all of them when one is in doubt.

    Args:
        topic: for error messages.
        timeout_s: how long a caller waits for the acknowledgement of the oldest entry.
        on_failure: called once, under the lock, before the failure is visible to others.
    """

    # All changes are made under the budget's lock, which all producers of a client share. Futures
    # are completed after its release, as they run users' callbacks.

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
        """Whether it accepts entries: not failed and not closed."""
        return self._failure is None and not self._closed

    def check(self) -> None:
        """Check that it accepts entries.

        Raises:
            EosError: the reason of its failure; each caller gets a copy.
        """
        if self._failure is not None:
            raise copy.copy(self._failure)
        if self._closed:
            raise Fatal(f"The producer on {self._topic} is closed.")

    def entry(self, payload_bytes: int) -> PendingEntry:
        """Return a new entry; ``flush`` ignores it until ``admit``."""
        entry = PendingEntry(self, payload_bytes + ENTRY_OVERHEAD_BYTES, Future())
        entry.acknowledgement.set_running_or_notify_cancel()  # a sent entry can't be cancelled
        return entry

    def admit(self, entry: PendingEntry, num_messages: int, check: Callable[[], None]) -> int:
        """Wait for room, and return the sequence id of an entry that is about to be sent.

        ``check``: called under the lock; raises if the entry must not be sent.
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
                silent.window.fail_by_timeout()  # which frees its room

    def is_in_flight(self, entry: PendingEntry) -> bool:
        """Whether it is admitted, and not acknowledged or lost."""
        with self.lock:
            return entry in self._entries.values()

    def acknowledge(self, sequence_id: int, message_id: MessageId) -> bool:
        """Complete one entry. False: no such entry is in flight."""
        with self.lock:
            entry = self._entries.pop(sequence_id, None)
            if entry is None:
                return False
            self._budget.free([entry])
        entry.acknowledgement.set_result(message_id)
        return True

    def fail(self, reason: EosError) -> None:
        """Fail: entries in flight are in doubt, and no more are accepted. The first reason counts.

        If a call is interrupted, the next one completes its work.
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

    def fail_by_timeout(self) -> None:
        """Fail, as the broker has not acknowledged the oldest entry within the timeout."""
        self.fail(
            RequestTimeout(f"No acknowledgement from {self._topic} in {self._timeout_s:g} s.")
        )

    def successor(self, on_failure: Callable[[EosError], None]) -> Window:
        """Return a new window that continues the sequence ids of this one, which is closed."""
        return Window(
            self._topic,
            self._budget,
            timeout_s=self._timeout_s,
            on_failure=on_failure,
            # With deduplication, the broker drops ids that it has already seen.
            first_sequence_id=self._next_sequence_id,
        )

    def close(self) -> bool:
        """Accept no more entries. False: it was closed before."""
        with self.lock:
            was_closed, self._closed = self._closed, True
            return not was_closed

    def flush(self, deadline: float = math.inf) -> None:
        """Wait for the acknowledgements of all entries that were admitted before this call.

        Raises:
            EosError: the reason of its failure.
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
            self.fail_by_timeout()
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _await(
        self,
        is_done: Callable[[], bool],
        oldest: Callable[[], PendingEntry | None],
        deadline: float = math.inf,
    ) -> PendingEntry | None:
        """Wait under the lock until ``is_done``, or until this window has failed.

        Returns the ``oldest`` entry if it stayed unacknowledged for the timeout, or the deadline.
        """
        while self._failure is None and not is_done():
            before = oldest()

            # Only the oldest one counts: acknowledgements of younger entries are no progress.
            def moved(before: PendingEntry | None = before) -> bool:
                return self._failure is not None or is_done() or oldest() is not before

            wait_s = min(self._timeout_s, max(0.0, deadline - time.monotonic()))
            if not self.lock.wait_for(moved, wait_s) and before is not None:
                return before
        return None


class HasInFlight(Protocol):
    """A producer with entries in flight, or a consumer with acknowledgements."""

    def flush(self, deadline: float = ...) -> None:
        """Wait for earlier sends, until ``deadline`` by ``time.monotonic``."""

    def close_failed(self, deadline: float) -> None:
        """Wait until the broker has closed it, or until ``deadline``; raises nothing."""


def drain(producers: Iterable[HasInFlight], timeout_s: float) -> None:
    """Wait until ``producers`` have nothing in flight, for at most two timeouts in total."""
    # An abort that overtakes the first send to a new partition blocks the partition's readers
    # (measured). So wait for all acknowledgements first.
    deadline = time.monotonic() + timeout_s
    failed = []
    for producer in producers:
        try:
            producer.flush(deadline)
        except EosError:  # not raised: the abort must be sent in any case
            failed.append(producer)
    if not failed:
        return
    # Their acknowledgements did not come: the broker answers CLOSE_PRODUCER when it has stored all
    # earlier entries.
    deadline = time.monotonic() + timeout_s
    with ThreadPoolExecutor(min(len(failed), _MAX_THREADS)) as pool:
        for producer in failed:
            pool.submit(producer.close_failed, deadline)
