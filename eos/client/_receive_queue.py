"""Entries that a consumer has been sent and has not opened yet; and how many more may come.

The broker counts permits in messages, but sends whole entries, of any number of messages, as long
as it has a permit: so there are never more entries under way than permits, and that is what can be
checked. It knows no bytes: permits are few at first, and fewer the larger the entries are.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from eos.ids import EntryPlace
from eos.wire.frames import Delivery

PERMITS: Final = 1000
"""The most messages that the broker may have under way to us."""

QUEUE_BYTES: Final = 32 * 1024 * 1024
"""What waits takes about that at most, once the entries' size is known."""

QUEUE_BYTES_MAX: Final = 4 * QUEUE_BYTES
"""With more, suddenly, the consumer subscribes again, and asks for less."""

_FIRST_PERMITS: Final = 8
_MAX_GRANT: Final = 2**31 - 1


class ReceiveQueue:
    """Of one subscribing; locked by the consumer that has it."""

    def __init__(self, entry_bytes: int = 0) -> None:
        self._queue: deque[Delivery] = deque()
        self._bytes = 0
        self._stale = 0  # how many at the queue's front come again
        self._permits = _FIRST_PERMITS
        self._granted = 0
        self.entry_bytes_max = entry_bytes
        """The largest entry of late, roughly; the next subscribing begins with it."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def is_overfull(self) -> bool:
        """Whether there are far more bytes than were foreseen."""
        return self._bytes > QUEUE_BYTES_MAX and len(self._queue) > 1

    @property
    def is_beyond_permits(self) -> bool:
        """Whether the broker has sent more than it may."""
        return len(self._queue) > PERMITS

    def put(self, delivery: Delivery, *, is_old: bool, is_ordered: bool) -> None:
        """It has come.

        Args:
            is_old: it is of an epoch before the last redelivery, and comes again.
            is_ordered: places go up; where they do not the broker has begun again.
        """
        queue = self._queue
        if is_ordered and queue and place_of(delivery) <= place_of(queue[-1]):
            self._stale = len(queue)  # the broker begins again, after an aborted transaction
        queue.append(delivery)
        self._bytes += len(delivery.body)
        self._stale = len(queue) if is_old else self._stale
        self.entry_bytes_max = max(len(delivery.body), self.entry_bytes_max * 7 // 8)

    def take(self) -> tuple[Delivery, bool]:
        """The first one, and whether it comes again and must not be given."""
        delivery = self._queue.popleft()
        self._bytes -= len(delivery.body)
        is_stale, self._stale = self._stale > 0, max(0, self._stale - 1)
        return delivery, is_stale

    def all_come_again(self) -> None:
        """After a redelivery: what waits now must not be given."""
        self._stale = len(self._queue)

    def spend(self, num_messages: int) -> None:
        """So many messages are not under way any more."""
        self._granted -= num_messages

    def grant(self) -> int:
        """How many permits to give the broker now; 0: none yet."""
        permits = min(self._permits, max(1, QUEUE_BYTES // max(1, self.entry_bytes_max)))
        if self._granted > permits // 2:
            return 0
        granted = min(permits - self._granted, _MAX_GRANT)
        self._granted += granted
        self._permits = min(PERMITS, 2 * self._permits)
        return granted


def place_of(delivery: Delivery) -> EntryPlace:
    """Where the entry sits."""
    return delivery.command.message_id.message_id().place
