"""Idle producers and readers, kept open at the broker for the next task of the process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from eos.client._entry_reader import EntryReader
from eos.client._lookup import Lookup
from eos.client._subscriptions import new_subscription
from eos.client._timer import Timer
from eos.errors import ConsumerBusy, EosError, NotAllowed, ProducerBusy
from eos.ids import MessageId

T = TypeVar("T")

# Longer than most triggers. A topic with a producer or reader can't be deleted without force.
IDLE_TTL_S: Final = 30.0
MAX_IDLE: Final = 1024  # in one cache
_PAUSE_S: Final = 0.5

LimitErrors = tuple[type[EosError], ...]
# A broker's answers at a limit of producers, and of consumers or subscriptions (measured).
PRODUCER_LIMIT: Final[LimitErrors] = (ProducerBusy,)
CONSUMER_LIMIT: Final[LimitErrors] = (ConsumerBusy, NotAllowed)
# It has the same class, but ends with the other process's use of the subscription.
_IN_USE: Final = "Exclusive consumer is already connected"


class LimitBackoff:
    """Backs off while the broker's producer or consumer limit is reached.

    Attributes:
        limit_hit: the broker has refused this client at least once.
    """

    # A broker's policies may admit fewer producers, consumers or subscriptions than there are
    # processes that keep idle ones: wait for those of other processes to be closed, and keep none.

    def __init__(self) -> None:
        self.limit_hit = False

    @contextmanager
    def watching(self, errors: LimitErrors) -> Iterator[None]:
        """Set ``limit_hit`` if the block raises one of ``errors``."""
        try:
            yield
        except errors as error:
            if _IN_USE not in error.message:
                self.limit_hit = True
            raise

    def retry(self, call: Callable[[], T], errors: LimitErrors, timeout_s: float) -> T:
        """Return ``call()``; repeat it on ``errors``, until other processes close idle handles.

        Raises:
            EosError: another error of ``call``; or one of ``errors``, if they last for
                ``timeout_s`` longer than idle handles live.
        """
        deadline = time.monotonic() + IDLE_TTL_S + timeout_s
        while True:
            try:
                with self.watching(errors):
                    return call()
            except errors:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)  # not eos.retry: executors have no tenacity


class HandleCache(Generic[T]):
    """At most one idle handle per topic, each for at most ``IDLE_TTL_S``.

    ``close`` closes a handle; it must not raise.
    """

    # To open and close a handle takes two round trips and a lookup for each topic partition of each
    # task, and a stream uses the same partitions in every epoch.

    def __init__(self, timer: Timer, backoff: LimitBackoff, close: Callable[[T], None]) -> None:
        self._timer = timer
        self._backoff = backoff
        self._close = close
        self._lock = threading.Lock()
        # By topic, the one that is idle for longest first: with the time of its release.
        self._idle: dict[str, tuple[float, T]] = {}
        self._is_scheduled = False
        self._is_closed = False

    def acquire(self, topic: str) -> T | None:
        """Remove and return the idle handle on ``topic``; None if there is none."""
        with self._lock:
            found = self._idle.pop(topic, None)
        return None if found is None else found[1]

    def release(self, topic: str, handle: T) -> None:
        """Keep ``handle`` idle for a while; it replaces another one on ``topic``."""
        if self._backoff.limit_hit:  # it would block others
            self._close(handle)
            return
        with self._lock:
            if self._is_closed:
                return
            replaced = [self._idle.pop(topic, None)]
            self._idle[topic] = time.monotonic(), handle
            if len(self._idle) > MAX_IDLE:
                replaced.append(self._idle.pop(next(iter(self._idle))))
            schedule, self._is_scheduled = not self._is_scheduled, True
        for other in replaced:
            if other is not None:
                self._close(other[1])
        if schedule:
            self._timer.call_after(IDLE_TTL_S, self._evict, self)

    def _evict(self) -> None:
        """Close handles that are idle for ``IDLE_TTL_S``; run again when the next one is."""
        now = time.monotonic()
        expired = []
        with self._lock:
            for topic, (since, handle) in list(self._idle.items()):
                if since + IDLE_TTL_S > now:
                    break
                expired.append(handle)
                del self._idle[topic]
            oldest, _ = next(iter(self._idle.values()), (None, None))
            self._is_scheduled = oldest is not None
        for handle in expired:
            self._close(handle)
        if oldest is not None:
            self._timer.call_after(oldest + IDLE_TTL_S - now, self._evict, self)

    def clear(self) -> None:
        """Drop all handles, also those released later: the client closes their connections."""
        with self._lock:
            self._is_closed = True
            self._idle.clear()


class ReaderCache:
    """Opens the entry readers of one client, and keeps idle ones."""

    def __init__(self, lookup: Lookup, timer: Timer, backoff: LimitBackoff) -> None:
        self._backoff = backoff
        self._lookup = lookup
        self._cache = HandleCache[EntryReader](timer, backoff, EntryReader.close)

    def open(
        self, topic: str, start: MessageId | None, permits: int, *, waits_at_limit: bool
    ) -> EntryReader:
        """See ``PulsarClient.entry_reader``; ``topic`` is the exact name."""
        # All attempts use one subscription name: if a reader is refused while another one closes,
        # the broker may keep its subscription (measured). The next attempt takes it over.
        name = new_subscription(self._lookup.rules)

        def open_one() -> EntryReader:
            connection = self._lookup.broker_of(topic)
            # With more permits than entries wanted, the broker reads and sends a hundred.
            reader = EntryReader(
                self._lookup, connection, topic, start, permits=permits, subscription=name
            )
            reader.open()
            return reader

        if not waits_at_limit:
            return open_one()
        return self._backoff.retry(open_one, CONSUMER_LIMIT, self._lookup.timeout_s)

    def acquire(self, topic: str) -> EntryReader | None:
        """Remove and return the usable idle reader on ``topic``; None if there is none."""
        reader = self._cache.acquire(topic)
        if reader is None or reader.is_usable:
            return reader
        reader.close()
        return None

    def release(self, reader: EntryReader) -> None:
        """Keep ``reader`` idle for a while."""
        # The last chance: an idle reader acknowledges nothing.
        reader.acknowledge()
        self._cache.release(reader.topic, reader)

    def clear(self) -> None:
        """Drop all, also those released later: the client closes their connections."""
        self._cache.clear()
