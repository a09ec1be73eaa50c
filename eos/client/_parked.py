"""Producers that wait for the next task of their process, open at the broker and idle.

Opening and closing one costs two round trips and a look-up, for each topic partition of each task;
a stream writes to the same ones in every epoch. One that is parked has nothing under way, and is
another object than the one that has sent: nothing can be sent in the old transaction by it (I3).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from eos.client._entry_producer import EntryProducer
from eos.client._linger import LingerClock
from eos.ids import TxnId
from eos.wire.commands import SchemaInfo

PARKED_FOR_S: Final = 30.0
"""Longer than most triggers. A topic with a producer can't be deleted without force."""
MAX_PARKED: Final = 1024
"""In one client."""


@dataclass(frozen=True)
class _Place:
    """One that waits: how it was opened, what it was used in, and since when it waits."""

    producer: EntryProducer
    schema: SchemaInfo | None
    txn: TxnId | None
    since: float


class Parked:
    """Those of one client."""

    def __init__(self, clock: LingerClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._places: dict[str, _Place] = {}  # by topic, those that wait for longest first
        self._is_watched = False
        self._is_closed = False

    def take(
        self, topics: Iterable[str], schema: SchemaInfo | None, after: Collection[TxnId | None]
    ) -> dict[str, EntryProducer]:
        """The producers on ``topics`` that wait and can still send; each is handed out once.

        Args:
            after: the transactions in one of which they were used last; None: in no transaction.
                All are committed: what an aborted one has left behind must not go by the name of a
                later writer. Others are closed.
        """
        taken: dict[str, EntryProducer] = {}
        with self._lock:
            found = {name: self._places.pop(name, None) for name in topics}
        for name, place in found.items():
            if place is None:
                continue
            if place.txn in after and place.schema == schema and place.producer.is_usable:
                taken[name] = place.producer
            else:
                place.producer.abandon()
        return taken

    def park(
        self, producers: Iterable[EntryProducer], schema: SchemaInfo | None, txn: TxnId | None
    ) -> None:
        """Keep ``producers``, none of which has anything under way, for a while."""
        now = time.monotonic()
        with self._lock:
            if self._is_closed:
                return
            replaced = []
            for producer in producers:
                replaced.append(self._places.pop(producer.topic, None))
                self._places[producer.topic] = _Place(producer, schema, txn, now)
            while len(self._places) > MAX_PARKED:
                replaced.append(self._places.pop(next(iter(self._places))))
            watch, self._is_watched = not self._is_watched, True
        for place in replaced:
            if place is not None:
                place.producer.abandon()
        if watch:
            self._clock.call_after(PARKED_FOR_S, self._drop_idle)

    def clear(self) -> None:
        """Forget all, and what comes later; their connections are being closed."""
        with self._lock:
            self._is_closed = True
            self._places.clear()

    def _drop_idle(self) -> None:
        """Close what has waited for long enough; come again when the next one has."""
        now = time.monotonic()
        idle = []
        with self._lock:
            for name, place in list(self._places.items()):
                if place.since + PARKED_FOR_S > now:
                    break
                idle.append(self._places.pop(name))
            oldest = next(iter(self._places.values()), None)
            self._is_watched = oldest is not None
        for place in idle:
            place.producer.abandon()
        if oldest is not None:
            self._clock.call_after(oldest.since + PARKED_FOR_S - now, self._drop_idle)
