"""How producers are opened: on topics that are there, many side by side."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import partial

from eos._waiting import run_both
from eos.client._entry_producer import EntryProducer
from eos.client._limit_backoff import OF_PRODUCERS, Crowd
from eos.client._lookup import Lookup
from eos.client._parked import Parked
from eos.client._timer import LingerClock
from eos.client._transaction import Transaction
from eos.client._window import Budget
from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.parallel import parallel_map
from eos.wire.commands import SchemaInfo


class Opening:
    """Opens the producers of one client.

    Args:
        budget: what all of them may have in flight together.
        crowd: where producers are parked, a policy may admit no more.

    Attributes:
        parked: those that wait to be used again.
    """

    def __init__(self, lookup: Lookup, budget: Budget, clock: LingerClock, crowd: Crowd) -> None:
        self.parked = Parked(clock, crowd)
        self._crowd = crowd
        self._lookup = lookup
        self._budget = budget
        # Ids count in a connection; unique in the client, so that none is ever used again there.
        self._producer_ids = itertools.count()

    def open_one(self, topic: str, timeout_s: float, *, create: bool) -> EntryProducer:
        """On an unpartitioned topic, or on one exact ``...-partition-n``.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
            ConfigurationError: the topic is partitioned and no partition is named.
        """
        parsed = TopicName.parse(topic)
        if create and parsed.partition_index is None:
            self._check_unpartitioned(parsed, create=True)
        else:
            self._check_exists([parsed])
        return self.open(parsed, None, timeout_s)

    def open_topic(self, topic: str, timeout_s: float, *, create: bool) -> list[EntryProducer]:
        """On all partitions of ``topic``, or on the topic that has none.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
        """
        parsed = TopicName.parse(topic)
        count = 0
        if parsed.partition_index is None:
            count = self._lookup.partition_count(parsed, create=create)
        if not count:
            return [self.open_one(topic, timeout_s, create=create)]
        return self.open_all([str(parsed.partition(n)) for n in range(count)], None, timeout_s)

    def open_all(
        self, topics: Sequence[str], schema: SchemaInfo | None, timeout_s: float
    ) -> list[EntryProducer]:
        """One on each of ``topics``, side by side; none stays open when one fails.

        Raises:
            TopicNotFound: one of them is not there.
            EosError: a broker refuses, or does not answer.
        """
        parsed = [TopicName.parse(topic) for topic in topics]
        self._check_exists(parsed)
        opened: list[EntryProducer] = []

        def open_noted(topic: TopicName) -> EntryProducer:
            opened.append(producer := self.open(topic, schema, timeout_s))
            return producer

        try:
            return parallel_map(open_noted, parsed)
        except BaseException:
            for producer in opened:
                producer.abandon()
            raise

    def open_in(
        self,
        topics: Sequence[str],
        txn: Transaction | None,
        schema: SchemaInfo | None,
        after: Collection[TxnId | None] | None,
        timeout_s: float,
    ) -> list[EntryProducer]:
        """``open_all`` in a transaction: those of ``Parked.take`` first, and ``topics`` are
        registered meanwhile. None stays open when something fails.

        With ``after``, other processes have parked some too. Where a policy admits no more, these
        are waited for.

        Raises:
            TransactionExpired: as ``Transaction.register``.
            EosError: as ``open_all``.
        """
        if after is None:
            return self._open_in(topics, txn, schema, {}, timeout_s)

        def open_those_missing() -> list[EntryProducer]:
            parked = self.parked.take(topics, schema, after)
            return self._open_in(topics, txn, schema, parked, timeout_s)

        return self._crowd.outwait(open_those_missing, OF_PRODUCERS, timeout_s)

    def _open_in(
        self,
        topics: Sequence[str],
        txn: Transaction | None,
        schema: SchemaInfo | None,
        parked: dict[str, EntryProducer],
        timeout_s: float,
    ) -> list[EntryProducer]:
        missing = [topic for topic in topics if topic not in parked]
        opened: list[EntryProducer] = []
        try:
            if txn is None:
                opened = self.open_all(missing, schema, timeout_s)
            else:
                run_both(
                    partial(txn.register, topics),
                    lambda: opened.extend(self.open_all(missing, schema, timeout_s)),
                )
        except BaseException:
            for producer in (*opened, *parked.values()):
                producer.abandon()
            raise
        new = iter(opened)
        return [parked[topic] if topic in parked else next(new) for topic in topics]

    def open(self, topic: TopicName, schema: SchemaInfo | None, timeout_s: float) -> EntryProducer:
        """On exactly ``topic``; the broker creates what is missing, if it may.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        name = str(topic)
        producer = EntryProducer(
            self._lookup.broker_of(name),
            name,
            next(self._producer_ids),
            timeout_s=timeout_s,
            budget=self._budget,
        )
        producer.open(schema)
        return producer

    def _check_exists(self, topics: Sequence[TopicName]) -> None:
        """PRODUCER would create what is missing. One question for all partitions of a topic."""
        partitions = [topic for topic in topics if topic.partition_index is not None]
        counts = {base: self._maybe_count(base) for base in {topic.base for topic in partitions}}
        for topic in topics:
            if topic.partition_index is None:
                self._check_unpartitioned(topic, create=False)
            elif topic.partition_index >= counts[topic.base]:
                # A topic by itself, with a name like a partition's?
                self._lookup.partition_count(topic)

    def _maybe_count(self, topic: TopicName) -> int:
        try:
            return self._lookup.partition_count(topic)
        except TopicNotFound:
            return 0

    def _check_unpartitioned(self, topic: TopicName, *, create: bool) -> None:
        count = self._lookup.partition_count(topic, create=create)
        if count:
            # The broker would take the base name, and nobody would ever read what was sent.
            raise ConfigurationError(
                f"{topic} has {count} partitions: name one, {topic.partition(0)} for example, or "
                "use PulsarClient.producer, which chooses by key."
            )
