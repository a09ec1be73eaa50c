"""Opens producers on existing topics, many in parallel, and keeps idle ones."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from eos.client._entry_producer import EntryProducer
from eos.client._handle_cache import PRODUCER_LIMIT, HandleCache, LimitBackoff
from eos.client._lookup import Lookup
from eos.client._timer import Timer
from eos.client._transaction import Transaction
from eos.client._window import Budget
from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.transport.message_keys import MessageKeys
from eos.waiting import parallel_map, run_both
from eos.wire.commands import ProducerAccessMode, SchemaInfo


@dataclass(frozen=True)
class ProducerKind:
    """How a producer is opened; see ``EntryProducer.open``. Only shared ones are kept idle."""

    schema: SchemaInfo | None = None
    encrypted: bool = False
    access: ProducerAccessMode = ProducerAccessMode.SHARED
    topic_epoch: int | None = None


@dataclass(frozen=True)
class _IdleProducer:
    """A producer with nothing in flight, how it was opened, and its last transaction."""

    # Another object than the one that has sent: it can't send in the old transaction (I3).
    producer: EntryProducer
    kind: ProducerKind
    txn: TxnId | None


class ProducerFactory:
    """Opens the producers of one client.

    Args:
        budget: the bytes that all of them may have in flight together.
        backoff: waits at a limit of producers.
        keys: encrypt what their users send; None: nothing is encrypted.
    """

    def __init__(
        self,
        lookup: Lookup,
        budget: Budget,
        timer: Timer,
        backoff: LimitBackoff,
        keys: MessageKeys | None,
    ) -> None:
        self._backoff = backoff
        self._lookup = lookup
        self._budget = budget
        self._keys = keys
        self._own_kind = ProducerKind(encrypted=keys is not None)
        self._cache = HandleCache[_IdleProducer](timer, backoff, lambda one: one.producer.abandon())
        # Ids must be unique per connection; they are unique in the client, and never reused.
        self._producer_ids = itertools.count()

    def open_one(
        self,
        topic: str,
        *,
        create: bool,
        access: ProducerAccessMode = ProducerAccessMode.SHARED,
        topic_epoch: int | None = None,
    ) -> EntryProducer:
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
        return self.open(parsed, replace(self._own_kind, access=access, topic_epoch=topic_epoch))

    def open_topic(self, topic: str, *, create: bool) -> list[EntryProducer]:
        """Open one on each partition of ``topic``, or on an unpartitioned topic.

        Raises:
            TopicNotFound: the topic does not exist, and ``create`` is not set.
        """
        parsed = TopicName.parse(topic)
        count = 0
        if parsed.partition_index is None:
            count = self._lookup.partition_count(parsed, create=create)
        if not count:
            return [self.open_one(topic, create=create)]
        return self._open_all([str(parsed.partition(n)) for n in range(count)], self._own_kind)

    def open_in(
        self,
        topics: Sequence[str],
        txn: Transaction | None,
        kind: ProducerKind,
        after: Collection[TxnId | None] | None,
    ) -> list[EntryProducer]:
        """Open one on each of ``topics``, which are registered in ``txn`` concurrently.

        With ``after``, idle producers are reused (see ``_acquire``), and at a limit of producers it
        waits until other processes close theirs.

        Raises:
            TopicNotFound: one of the topics does not exist.
            TransactionExpired: as ``Transaction.register``.
            EosError: a broker refuses, or does not answer. All producers are closed.
        """
        if after is None:
            return self._open_in(topics, txn, kind, {})
        # Idle producers of other processes may fill the broker's limit for a while.
        return self._backoff.retry(
            lambda: self._open_in(topics, txn, kind, self._acquire(topics, kind, after)),
            PRODUCER_LIMIT,
            self._lookup.timeout_s,
        )

    def _open_in(
        self,
        topics: Sequence[str],
        txn: Transaction | None,
        kind: ProducerKind,
        idle: dict[str, EntryProducer],
    ) -> list[EntryProducer]:
        missing = [topic for topic in topics if topic not in idle]
        opened: list[EntryProducer] = []
        try:
            if txn is None:
                opened = self._open_all(missing, kind)
            else:
                run_both(
                    partial(txn.register, topics),
                    lambda: opened.extend(self._open_all(missing, kind)),
                )
        except BaseException:
            for producer in (*opened, *idle.values()):
                producer.abandon()
            raise
        new = iter(opened)
        return [idle[topic] if topic in idle else next(new) for topic in topics]

    def _open_all(self, topics: Sequence[str], kind: ProducerKind) -> list[EntryProducer]:
        """Open one on each of ``topics``, in parallel. On an error all are closed."""
        parsed = [TopicName.parse(topic) for topic in topics]
        self._check_exists(parsed)
        opened: list[EntryProducer] = []

        def open_recorded(topic: TopicName) -> EntryProducer:
            opened.append(producer := self.open(topic, kind))
            return producer

        try:
            return parallel_map(open_recorded, parsed)
        except BaseException:
            for producer in opened:
                producer.abandon()
            raise

    def open(self, topic: TopicName, kind: ProducerKind | None = None) -> EntryProducer:
        """Open one on exactly ``topic``; the broker creates a missing topic, if it may."""
        name = str(topic)
        kind = kind or self._own_kind
        is_shared = kind.access is ProducerAccessMode.SHARED
        producer = EntryProducer(
            self._lookup.broker_of(name) if is_shared else self._lookup.own_connection(name),
            name,
            next(self._producer_ids),
            timeout_s=self._lookup.timeout_s,
            budget=self._budget,
            keys=self._keys,
            owns_connection=not is_shared,
        )
        producer.open(
            kind.schema,
            encrypted=kind.encrypted,
            access=kind.access,
            topic_epoch=kind.topic_epoch,
        )
        return producer

    def _acquire(
        self, topics: Iterable[str], kind: ProducerKind, after: Collection[TxnId | None]
    ) -> dict[str, EntryProducer]:
        """Take the usable idle producers on ``topics``; None in ``after``: without transaction."""
        acquired: dict[str, EntryProducer] = {}
        for name in topics:
            idle = self._cache.acquire(name)
            if idle is None:
                continue
            # Only if its last transaction is committed: leftovers of an aborted transaction must
            # not have the same producer name as a later writer's entries.
            if idle.txn in after and idle.kind == kind and idle.producer.is_usable:
                acquired[name] = idle.producer
            else:
                idle.producer.abandon()
        return acquired

    def release(
        self, producers: Iterable[EntryProducer], kind: ProducerKind, txn: TxnId | None
    ) -> None:
        """Keep ``producers`` idle for a while. They must have nothing in flight."""
        for producer in producers:
            self._cache.release(producer.topic, _IdleProducer(producer, kind, txn))

    def clear(self) -> None:
        """Drop all idle ones, also those released later: the client closes their connections."""
        self._cache.clear()

    def _check_exists(self, topics: Sequence[TopicName]) -> None:
        """Check each topic. One request per base topic."""
        # PRODUCER would create a missing one.
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
