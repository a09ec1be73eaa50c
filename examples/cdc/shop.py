"""A shop's database: random changes of its customers, as messages in Debezium's format."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pulsar

from examples._demo.demo_topic import open_client

CHANGES: Final = "shop.public.customers"
"""The topic of the changes, named as Debezium does."""

_CITIES: Final = ("Lisbon", "Nairobi", "Osaka", "Quito", "Tromsø", "Ürümqi")
_SEED: Final = 49
_PAUSE_S: Final = 0.5

Row = dict[str, Any]


@dataclass
class Shop:
    """The table ``customers``: the truth that outputs are compared with.

    ``rows``: by id. ``changes``: how many there have been; each has its number as ``lsn``.
    """

    rows: dict[int, Row] = field(default_factory=dict)
    changes: int = 0
    deletes: int = 0
    _chance: random.Random = field(default_factory=lambda: random.Random(_SEED))
    _ids: int = 0

    def change(self) -> tuple[str, bytes, bool]:
        """Change a row; return key and value of the message, and whether it is a delete."""
        self.changes += 1
        kind = self._chance.random()
        if kind < 0.45 or len(self.rows) < 10:
            self._ids += 1
            return self._event("c", None, self._row(self._ids))
        known = self._chance.choice(list(self.rows.values()))
        if kind < 0.85:
            return self._event("u", known, self._row(known["id"]))
        return self._event("d", known, None)

    def last(self) -> tuple[str, bytes, bool]:
        """Add a customer, so that the newest change is in all outputs."""
        self.changes += 1
        self._ids += 1
        return self._event("c", None, self._row(self._ids))

    def _row(self, number: int) -> Row:
        return {
            "id": number,
            "name": f"customer {self._chance.randrange(10**6)}",
            "city": self._chance.choice(_CITIES),
            "spent": round(self._chance.uniform(0, 1000), 2),
        }

    def _event(self, op: str, before: Row | None, after: Row | None) -> tuple[str, bytes, bool]:
        known = after or before
        assert known is not None
        if after is None:
            del self.rows[known["id"]]
            self.deletes += 1
        else:
            self.rows[known["id"]] = {**after, "lsn": self.changes}
        source = {"table": "customers", "lsn": self.changes}
        event = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": time.time_ns() // 1_000_000,
        }
        return json.dumps({"id": known["id"]}), json.dumps(event).encode(), after is None


def send(shop: Shop, service_url: str, rate: Callable[[], int]) -> Iterator[int]:
    """Send changes; yield their number after each batch.

    As Debezium does, a message without an answer is sent again, so some come twice; and a delete is
    followed by a message without a value. ``rate``: how many changes the next batch has; 0: the
    last one.
    """
    client = open_client(service_url)
    producer = client.create_producer(CHANGES, batching_enabled=True)
    try:
        while count := rate():
            _send(producer, [shop.change() for _ in range(count)])
            yield shop.changes
        _send(producer, [shop.last()])
        yield shop.changes
    finally:
        client.close()


def _send(producer: pulsar.Producer, events: list[tuple[str, bytes, bool]]) -> None:
    for key, value, is_delete in events:
        # Debezium's tombstone: a compacted topic forgets the key.
        for content in (value, b"")[: 1 + is_delete]:
            # Until it is answered: the order of a key's changes must stay.
            while True:
                try:
                    producer.send(content, partition_key=key)
                    break
                except pulsar.PulsarException:
                    time.sleep(_PAUSE_S)
