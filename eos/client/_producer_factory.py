"""Opens producers on existing topics, many in parallel."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import partial

from eos._waiting import run_both
from eos.client._entry_producer import EntryProducer
from eos.client._handle_cache import PRODUCER_LIMIT, LimitBackoff, ProducerCache
from eos.client._lookup import Lookup
from eos.client._timer import Timer
from eos.client._transaction import Transaction
from eos.client._window import Budget
from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.parallel import parallel_map
from eos.wire.commands import SchemaInfo


class ProducerFactory:
    """Opens the producers of one client.

    Args:
        budget: the bytes that all of them may have in flight together.
        backoff: waits at a limit of producers.

    Attributes:
        cache: the idle producers.
    """

    def __init__(self, lookup: Lookup, budget: Budget, timer: Timer, backoff: LimitBackoff) -> None:
        self.cache = ProducerCache(timer, backoff)
        self._backoff = backoff
        self._lookup = lookup
        self._budget = budget
        # Ids must be unique per connection; they are unique in the client, and never reused.
        self._producer_ids = itertools.count()

    def open_one(self, topic: str, timeout_s: float, *, create: bool) -> EntryProducer:
        """Open one on an unpartitioned topic, or on one exact ``...-partition-n``.

        Raises:
            TopicNotFound: the topic does not exist, and ``create`` is not set.
            ConfigurationError: the topic is partitioned.
        """
        parsed = TopicName.parse(topic)
        if create and parsed.partition_index is None:
            self._check_unpartitioned(parsed, create=True)
        else:
            self._check_exists([parsed])
        return self.open(parsed, None, timeout_s)

    def open_topic(self, topic: str, timeout_s: float, *, create: bool) -> list[EntryProducer]:
        """Open one on each partition of ``topic``, or on an unpartitioned topic.

        Raises:
            TopicNotFound: the topic does not exist, and ``create`` is not set.
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
        """Open one on each of ``topics``, in parallel. On an error all are closed.

        Raises:
            TopicNotFound: one of them does not exist.
            EosError: a broker refuses, or does not answer.
        """
        parsed = [TopicName.parse(topic) for topic in topics]
        self._check_exists(parsed)
        opened: list[EntryProducer] = []

        def open_recorded(topic: TopicName) -> EntryProducer:
            opened.append(producer := self.open(topic, schema, timeout_s))
            return producer

        try:
            return parallel_map(open_recorded, parsed)
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
        """``open_all`` in a transaction, in which ``topics`` are registered concurrently.

        With ``after``, idle producers are reused (``ProducerCache.acquire``), and at a limit of
        producers it waits until other processes close theirs.

        Raises:
            TransactionExpired: as ``Transaction.register``.
            EosError: as ``open_all``.
        """
        if after is None:
            return self._open_in(topics, txn, schema, {}, timeout_s)

        def open_missing() -> list[EntryProducer]:
            idle = self.cache.acquire(topics, schema, after)
            return self._open_in(topics, txn, schema, idle, timeout_s)

        return self._backoff.retry(open_missing, PRODUCER_LIMIT, timeout_s)

    def _open_in(
        self,
        topics: Sequence[str],
        txn: Transaction | None,
        schema: SchemaInfo | None,
        idle: dict[str, EntryProducer],
        timeout_s: float,
    ) -> list[EntryProducer]:
        missing = [topic for topic in topics if topic not in idle]
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
            for producer in (*opened, *idle.values()):
                producer.abandon()
            raise
        new = iter(opened)
        return [idle[topic] if topic in idle else next(new) for topic in topics]

    def open(self, topic: TopicName, schema: SchemaInfo | None, timeout_s: float) -> EntryProducer:
        """Open one on exactly ``topic``; the broker creates a missing topic, if it may.

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
        """Check each topic, as PRODUCER would create a missing one. One request per base topic."""
        partitions = [topic for topic in topics if topic.partition_index is not None]
        counts = {base: self._maybe_count(base) for base in {topic.base for topic in partitions}}
        for topic in topics:
            if topic.partition_index is None:
                self._check_unpartitioned(topic, create=False)
            elif topic.partition_index >= counts[topic.base]:
                # Is it an unpartitioned topic with a name like a partition's?
                self._lookup.partition_count(topic)

    def _maybe_count(self, topic: TopicName) -> int:
        try:
            return self._lookup.partition_count(topic)
        except TopicNotFound:
            return 0

    def _check_unpartitioned(self, topic: TopicName, *, create: bool) -> None:
        count = self._lookup.partition_count(topic, create=create)
        if count:
            # The broker would accept the base name, and readers would never see the messages.
            raise ConfigurationError(
                f"{topic} has {count} partitions: name one, for example {topic.partition(0)}, or "
                "use PulsarClient.producer, which chooses by key."
            )
