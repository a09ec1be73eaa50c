"""The queue of entries that a consumer has received and not decoded, with its flow control.

The broker counts permits in messages, but sends whole entries, of any number of messages, while it
has a permit. So there are never more entries in flight than permits, which can be checked. The
broker does not limit bytes: permits are few at first, and fewer for large entries.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from eos.ids import EntryPlace
from eos.wire.frames import Delivery

PERMITS: Final = 1000
"""The maximum number of messages that the broker may have in flight."""

QUEUE_BYTES: Final = 32 * 1024 * 1024
"""The approximate limit of queued bytes, once the size of entries is known."""

QUEUE_BYTES_MAX: Final = 4 * QUEUE_BYTES
"""Above this limit the consumer subscribes again, with fewer permits."""

_FIRST_PERMITS: Final = 8
_MAX_GRANT: Final = 2**31 - 1


class ReceiveQueue:
    """The queue of one SUBSCRIBE, protected by the consumer's lock."""

    def __init__(self, entry_bytes: int = 0) -> None:
        self._queue: deque[Delivery] = deque()
        self._bytes = 0
        self._stale = 0  # entries at the queue's front that will be delivered again
        self._permits = _FIRST_PERMITS
        self._granted = 0
        self.entry_bytes_max = entry_bytes
        """The approximate maximum size of recent entries; the next SUBSCRIBE begins with it."""

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def is_overfull(self) -> bool:
        """Whether far more bytes are queued than expected."""
        return self._bytes > QUEUE_BYTES_MAX and len(self._queue) > 1

    @property
    def is_beyond_permits(self) -> bool:
        """Whether the broker has sent more than it may."""
        return len(self._queue) > PERMITS

    def put(self, delivery: Delivery, *, is_old: bool, is_ordered: bool) -> None:
        """Queue a delivered entry.

        Args:
            is_old: it is of a consumer epoch before the last redelivery, and will come again.
            is_ordered: positions increase; a lower one means that the broker has started again.
        """
        queue = self._queue
        if is_ordered and queue and place_of(delivery) <= place_of(queue[-1]):
            self._stale = len(queue)  # the broker has started again, after an aborted transaction
        queue.append(delivery)
        self._bytes += len(delivery.body)
        self._stale = len(queue) if is_old else self._stale
        self.entry_bytes_max = max(len(delivery.body), self.entry_bytes_max * 7 // 8)

    def take(self) -> tuple[Delivery, bool]:
        """Remove the first entry; return it, and whether it must be dropped as it comes again."""
        delivery = self._queue.popleft()
        self._bytes -= len(delivery.body)
        is_stale, self._stale = self._stale > 0, max(0, self._stale - 1)
        return delivery, is_stale

    def mark_stale(self) -> None:
        """After a redelivery request: all queued entries must be dropped."""
        self._stale = len(self._queue)

    def spend(self, num_messages: int) -> None:
        """Count messages that are no longer in flight."""
        self._granted -= num_messages

    def grant(self) -> int:
        """Return the permits to grant to the broker now; 0: none yet."""
        permits = min(self._permits, max(1, QUEUE_BYTES // max(1, self.entry_bytes_max)))
        if self._granted > permits // 2:
            return 0
        granted = min(permits - self._granted, _MAX_GRANT)
        self._granted += granted
        self._permits = min(PERMITS, 2 * self._permits)
        return granted


def place_of(delivery: Delivery) -> EntryPlace:
    """Return the position of the entry."""
    return delivery.command.message_id.message_id().place
