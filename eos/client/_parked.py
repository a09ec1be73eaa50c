"""Producers that wait for the next task of their process, open at the broker and idle.

Opening and closing one costs two round trips and a look-up, for each topic partition of each task;
a stream writes to the same ones in every epoch. One that is parked has nothing under way, and is
another object than the one that has sent: nothing can be sent in the old transaction by it (I3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from eos.client._entry_producer import EntryProducer
from eos.client._limit_backoff import Crowd
from eos.client._shelf import Shelf
from eos.client._timer import LingerClock
from eos.ids import TxnId
from eos.wire.commands import SchemaInfo


@dataclass(frozen=True)
class _Place:
    """One that waits: how it was opened, and what it was used in."""

    producer: EntryProducer
    schema: SchemaInfo | None
    txn: TxnId | None


class Parked:
    """Those of one client."""

    def __init__(self, clock: LingerClock, crowd: Crowd) -> None:
        self._places = Shelf[_Place](clock, crowd, lambda place: place.producer.abandon())

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
        for name in topics:
            place = self._places.take(name)
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
        for producer in producers:
            self._places.put(producer.topic, _Place(producer, schema, txn))

    def clear(self) -> None:
        """Forget all, and what comes later; their connections are being closed."""
        self._places.clear()
