"""Bounded reads anywhere in a topic of plain, committed, aborted and open transactions.

A read from ``start`` to ``end`` returns the values that a plain ``pulsar-client`` sees between
them, without loss or duplicates, and it ends. The rule: ``end`` is at most the id that
GetLastMessageId returns, and reading stops at the first entry at or after ``end``.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import pytest

from eos.client import PulsarClient, Transaction
from eos.ids import EntryPlace, MessageId
from eos.testing import PulsarStandalone
from eos.wire.batch import Message
from tests.support.admin import call
from tests.support.judge import drain

READ_S = 20.0
"""A read that takes longer counts as hanging."""


@dataclass(frozen=True)
class Read:
    start: MessageId | None
    end: MessageId
    values: list[bytes]


class Writer:
    """Writes at random and records the ids of its entries, without markers."""

    def __init__(self, client: PulsarClient, topic: str, rng: random.Random) -> None:
        self._client = client
        self._topic = topic
        self._rng = rng
        self._producer = client.entry_producer(topic, create=True)
        # An unload closes a ledger, and entries without a subscription are deleted with it.
        client.subscribe_durably(topic, "keeper")
        self._open: list[Transaction] = []
        self._count = 0
        self.places: list[EntryPlace] = []

    def write(self, steps: int, *, at_most_open: int) -> None:
        """Make ``steps`` sends and transaction ends; some transactions may be left open."""
        for _ in range(steps):
            end_one = len(self._open) > at_most_open or self._rng.random() < 0.3
            if self._open and end_one:
                self._end(self._open.pop(self._rng.randrange(len(self._open))))
            else:
                self._send()
        while len(self._open) > at_most_open:
            self._end(self._open.pop(0))

    def _send(self) -> None:
        txn = None
        if self._rng.random() < 0.7:
            if not self._open or self._rng.random() < 0.5:
                self._open.append(self._client.transaction(timeout_s=300))
            txn = self._rng.choice(self._open)
        messages = []
        for _ in range(self._rng.choice((1, 1, 2, 7))):
            self._count += 1
            messages.append(Message(b"%d" % self._count))
        for receipt in self._producer.send_many(messages, txn=txn):
            self.places.append(receipt.result(timeout=30).place)

    def _end(self, txn: Transaction) -> None:
        txn.commit() if self._rng.random() < 0.6 else txn.abort()

    def reopen(self) -> None:
        """Open another producer after an unload; open transactions can only be aborted."""
        for txn in self._open:
            txn.abort()
        self._open.clear()
        self._producer = self._client.entry_producer(self._topic)


def cut(
    rng: random.Random, places: list[EntryPlace], last: MessageId
) -> tuple[EntryPlace, EntryPlace]:
    """Return a random start and end: entries, markers or unused ids, the end up to ``last``."""
    first, second = sorted(rng.choice(places) for _ in range(2))
    start = (first[0], max(0, first[1] + rng.choice((-1, 0, 0, 1, 2))))
    end = (second[0], second[1] + rng.choice((-1, 0, 0, 1, 3)))
    if rng.random() < 0.4 or end > last.place or end[1] < 0:
        end = last.place
    return start, end


def read(
    client: PulsarClient, topic: str, rng: random.Random, places: list[EntryPlace]
) -> Read | None:
    started = time.monotonic()
    with client.reader(topic) as reader:
        last = reader.last_id
    if last is None:
        return None
    start, end = (MessageId(*place) for place in cut(rng, places, last))
    whole = rng.random() < 0.1
    values: list[bytes] = []
    with client.reader(topic, start=None if whole else start) as reader:
        if rng.random() < 0.3:  # in two steps
            between = MessageId(*rng.choice(places))
            if between.place < end.place:
                for batch in reader.read_to(between):
                    values += batch["value"].to_pylist()
        for batch in reader.read_to(end):
            values += batch["value"].to_pylist()
    assert time.monotonic() - started < READ_S, (start, end)
    return Read(None if whole else start, end, values)


def check(
    standalone: PulsarStandalone, client: PulsarClient, topic: str, *, reads: int, seed: int
) -> None:
    """Write, read and unload in turn; then compare all reads with a plain ``pulsar-client``."""
    rng = random.Random(seed)
    writer = Writer(client, topic, rng)
    made: list[Read] = []
    rounds = 5
    for _ in range(rounds):
        writer.write(60, at_most_open=2)
        for n in range(reads // rounds):
            if n in (reads // rounds // 3, reads // rounds - 1):
                name = topic.rpartition("/")[2]
                admin = f"/v2/persistent/public/default/{name}/unload"
                call(standalone.admin_url, "PUT", admin)
                writer.reopen()
                writer.write(8, at_most_open=2)
            if (one := read(client, topic, rng, writer.places)) is not None:
                made.append(one)
    writer.reopen()
    judged = [(seen.position[:2], seen.value) for seen in drain(standalone.service_url, topic)]
    assert len(made) > reads * 0.8
    assert sum(len(one.values) for one in made) > reads
    for one in made:
        start = (0, 0) if one.start is None else one.start.place
        wanted = [value for place, value in judged if start <= place <= one.end.place]
        assert one.values == wanted, (seed, one.start, one.end)


@pytest.mark.broker
def test_two_hundred_random_reads_lose_nothing_and_double_nothing(
    pulsar_standalone: PulsarStandalone, client: PulsarClient, name: str
) -> None:
    check(pulsar_standalone, client, f"persistent://public/default/{name}", reads=200, seed=19)


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_two_thousand_random_reads_lose_nothing_and_double_nothing(
    pulsar_standalone: PulsarStandalone, client: PulsarClient, name: str, seed: int
) -> None:
    check(pulsar_standalone, client, f"persistent://public/default/{name}", reads=200, seed=seed)
