"""The entries of one producer that the broker has not acknowledged yet.

Numbers them, bounds them, waits for them, and ends them all at once when one is in doubt. Every
change is made under ``lock``; futures are settled behind it, because they run users' callbacks.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from eos.errors import EosError, Fatal, RequestTimeout
from eos.ids import MessageId

ENTRY_OVERHEAD_BYTES: Final = 1024
"""What an entry counts for besides its payload: many small ones cost memory as well."""


@dataclass(frozen=True)
class _Entry:
    size_bytes: int
    receipt: Future[MessageId]


class Window:
    """Entries in flight.

    Args:
        topic: for the texts of errors.
        max_bytes: how much may be in flight, ``ENTRY_OVERHEAD_BYTES`` for each entry included;
            a larger entry goes alone.
        timeout_s: how long the oldest entry may wait for its receipt while somebody waits.
        on_failure: called once, under the lock, before anybody else learns of the failure.
    """

    def __init__(
        self,
        topic: str,
        *,
        max_bytes: int,
        timeout_s: float,
        on_failure: Callable[[EosError], None],
    ) -> None:
        self.lock = threading.Condition()
        self._topic = topic
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._on_failure = on_failure
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._size_bytes = 0
        self._next_sequence_id = 0
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

    def admit(
        self, payload_bytes: int, num_messages: int, check: Callable[[], None]
    ) -> tuple[int, Future[MessageId]]:
        """A sequence id, and the future receipt, for an entry that is about to be sent.

        Args:
            check: called under the lock; raises when the entry must not be sent.
        """
        with self.lock:
            check()
            sequence_id = self._next_sequence_id
            self._next_sequence_id += num_messages
            entry = _Entry(payload_bytes + ENTRY_OVERHEAD_BYTES, Future())
            entry.receipt.set_running_or_notify_cancel()  # nobody can call back what is sent
            self._entries[sequence_id] = entry
            self._size_bytes += entry.size_bytes
            return sequence_id, entry.receipt

    def acknowledge(self, sequence_id: int, message_id: MessageId) -> bool:
        """Settle one entry. False: no such entry is in flight."""
        with self.lock:
            entry = self._entries.pop(sequence_id, None)
            if entry is None:
                return False
            self._size_bytes -= entry.size_bytes
            self.lock.notify_all()
        entry.receipt.set_result(message_id)
        return True

    def fail(self, reason: EosError) -> None:
        """All entries in flight are in doubt, and no more are taken. Only the first time counts."""
        with self.lock:
            if self._failure is not None:
                return
            self._failure = failure = copy.copy(reason)
            self._on_failure(failure)
            lost = list(self._entries.values())
            self._entries.clear()
            self._size_bytes = 0
            self.lock.notify_all()
        for entry in lost:
            entry.receipt.set_exception(copy.copy(failure))

    def close(self) -> bool:
        """Take no more entries. False: it was closed before."""
        with self.lock:
            was_closed, self._closed = self._closed, True
            return not was_closed

    def await_room(self, payload_bytes: int) -> None:
        """Wait until an entry of that size fits; after a failure return at once."""
        size_bytes = payload_bytes + ENTRY_OVERHEAD_BYTES
        self._await(lambda: self._size_bytes + size_bytes <= self._max_bytes or not self._entries)

    def flush(self) -> None:
        """Wait for the receipts of all entries that were admitted before this call.

        Raises:
            EosError: what made it fail.
        """
        with self.lock:
            end = self._next_sequence_id

        def is_flushed() -> bool:
            oldest = self._oldest()
            return oldest is None or oldest >= end

        self._await(is_flushed)
        if self._failure is not None:
            raise copy.copy(self._failure)

    def _oldest(self) -> int | None:
        return next(iter(self._entries), None)

    def _await(self, is_done: Callable[[], bool]) -> None:
        if not self._wait_for(is_done):
            self.fail(RequestTimeout(f"No receipt from {self._topic} in {self._timeout_s:g} s."))

    def _wait_for(self, is_done: Callable[[], bool]) -> bool:
        """Until it is done, or the window has failed. False: the oldest entry waited too long."""
        with self.lock:
            while self._failure is None and not is_done():
                oldest = self._oldest()

                def moved(oldest: int | None = oldest) -> bool:
                    return self._failure is not None or is_done() or self._oldest() != oldest

                # Receipts of younger entries are no sign of life for this one.
                if not self.lock.wait_for(moved, self._timeout_s):
                    return False
        return True
