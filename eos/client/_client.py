"""The client: from a service URL to producers and transactions."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections.abc import Collection, Sequence
from typing import Literal, Self

from eos.client._consumer import Consumer
from eos.client._cursor import SubscriptionCursor
from eos.client._entry_producer import EntryProducer
from eos.client._entry_reader import PERMITS, EntryReader
from eos.client._limit_backoff import OF_READERS, Crowd
from eos.client._lookup import Lookup
from eos.client._producer import BatchLimits, Producer
from eos.client._producer_factory import Opening
from eos.client._reader import Reader
from eos.client._readers import Readers, checked_start
from eos.client._subscriptions import DurableConsumer
from eos.client._timer import LingerClock
from eos.client._topic_bounds import Tail
from eos.client._transaction import Transaction
from eos.client._window import Budget
from eos.client.coordinators import Coordinators
from eos.errors import ConfigurationError, ConsumerBusy, TopicNotFound
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules
from eos.wire.commands import InitialPosition, SchemaInfo, SubscriptionType
from eos.wire.decoding import checked_columns


class PulsarClient:
    """A blocking client for writing to Pulsar, in transactions or outside of them.

    ::

        with PulsarClient("pulsar://localhost:6650") as client:
            producer = client.producer("persistent://public/default/orders")
            with client.transaction(timeout_s=60) as txn:
                producer.send(b"all of this", txn=txn)
                producer.send(b"or nothing", txn=txn)

    Args:
        service_url: ``pulsar://host:port[,host:port...]``, or ``pulsar+ssl://`` for TLS.
        auth, listener_name, subscription_prefix: see ``Auth`` and ``ClusterRules``.
        timeout_s: deadline of each connection attempt, each request and each acknowledgement.
        max_pending_bytes: how many bytes all producers together may have in flight; ``send``
            waits beyond.

    Raises:
        ConfigurationError: the service URL is malformed, or a limit is not above zero.
    """

    def __init__(
        self,
        service_url: str,
        *,
        auth: Auth | None = None,
        listener_name: str | None = None,
        subscription_prefix: str | None = None,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("max_pending_bytes", max_pending_bytes)):
            if not value > 0:
                raise ConfigurationError(f"{name}={value!r}: it must be above zero.")
        self._timeout_s = timeout_s
        # Ids count in a connection; unique in the client, so that none is ever used again there.
        self._consumer_ids = itertools.count()
        # One object for each transaction: what ends or poisons it here holds for all who joined.
        self._transactions = weakref.WeakValueDictionary[TxnId, Transaction]()
        self._transactions_lock = threading.Lock()
        rules = ClusterRules(listener_name, subscription_prefix)
        self.lookup = Lookup(service_url, auth or Auth(), rules, timeout_s=timeout_s)
        self.coordinators = Coordinators(self.lookup, timeout_s=timeout_s)
        self._clock = LingerClock()
        self._crowd = crowd = Crowd()
        self._opening = Opening(self.lookup, Budget(max_pending_bytes), self._clock, crowd)
        self._readers = Readers(self.lookup, self._clock, crowd, self._consumer_ids, timeout_s)

    def partition_count(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 when it is not partitioned. Creates nothing.

        Raises:
            TopicNotFound: there is no such topic.
        """
        return self.lookup.partition_count(TopicName.parse(topic))

    def schema(self, topic: str) -> SchemaInfo | None:
        """The newest schema of ``topic`` in the broker's registry; None: it has none."""
        found = self.lookup.schema(TopicName.parse(topic).base)
        return None if found is None else found[0]

    def exists(self, topic: str) -> bool:
        """Whether ``topic``, or one exact ``...-partition-n``, is there. Creates nothing.

        Raises:
            EosError: no answer.
        """
        parsed = TopicName.parse(topic)
        try:
            count = self.lookup.partition_count(parsed.base)
        except TopicNotFound:
            return False
        return parsed.partition_index is None or parsed.partition_index < count

    def producer(
        self,
        topic: str,
        *,
        create: bool = False,
        linger_ms: float = 1.0,
        max_batch_messages: int = 1000,
        max_batch_bytes: int = 128 * 1024,
        hashing: Literal["java", "murmur3"] = "java",
        batching: Literal["by_size", "by_key"] = "by_size",
    ) -> Producer:
        """A producer that gathers messages, on ``topic``: all partitions of it, where it has any.

        Args:
            create: let the broker create a topic that does not exist; not for a partition.
            linger_ms: how long a message may wait for others.
            max_batch_messages, max_batch_bytes: what an entry holds at most, before compression.
            hashing: how a key chooses its partition: as with the Java client, or murmur3.
            batching: ``by_key``: entries of one key each, for ``key_shared`` consumers.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
            ConfigurationError: an option is out of its range.
        """
        limits = BatchLimits(linger_ms, max_batch_messages, max_batch_bytes, hashing, batching)
        producers = self._opening.open_topic(topic, self._timeout_s, create=create)
        return Producer(str(TopicName.parse(topic)), producers, limits, self._clock)

    def entry_producer(self, topic: str, *, create: bool = False) -> EntryProducer:
        """A producer on ``topic``, an unpartitioned one or one exact ``...-partition-n``: each
        message is an entry of its own, unless it is given entries.

        Args:
            create: let the broker create a topic that does not exist; not for a partition.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
            ConfigurationError: the topic is partitioned and no partition is named.
        """
        return self._opening.open_one(topic, self._timeout_s, create=create)

    def create_unpartitioned(self, topic: str) -> None:
        """Let the broker create ``topic``, unpartitioned, when it does not exist.

        By PRODUCER alone: the question for a topic's partitions creates a partitioned one in a
        namespace that makes such by itself (allowAutoTopicCreationType).

        Raises:
            TopicNotFound: the broker does not let clients create topics there.
        """
        self._opening.open(TopicName.parse(topic), None, self._timeout_s).close()

    def entry_producers(
        self,
        topics: Sequence[str],
        *,
        txn: Transaction | None = None,
        schema: SchemaInfo | None = None,
        after: Collection[TxnId | None] | None = None,
    ) -> list[EntryProducer]:
        """A producer on each of ``topics``, opened side by side: many take little longer than one.

        Args:
            txn: registers ``topics`` in it meanwhile; neither waits for the other.
            schema: of what will be sent; registered with the topics unless it is there.
            after: take those that were parked after one of these transactions, all committed, or
                (None) outside of any. Where a policy limits producers, wait until those that other
                processes have parked are closed.

        Raises:
            IncompatibleSchema: a topic's schemas do not admit ``schema``; then none is left open.
            TopicNotFound, ConfigurationError: as ``producer``; then none is left open.
            TransactionExpired: as ``Transaction.register``; then none is left open either.
        """
        return self._opening.open_in(topics, txn, schema, after, self._timeout_s)

    def park(
        self,
        producers: Sequence[EntryProducer],
        txn: Transaction | None,
        schema: SchemaInfo | None = None,
    ) -> None:
        """Keep ``producers`` for a while, for ``entry_producers``: each was handed on by one that
        was used in ``txn``, and has sent nothing."""
        self._opening.parked.park(producers, schema, None if txn is None else txn.id)

    @property
    def limit_hit(self) -> bool:
        """Whether anybody has ever had to wait for producers or readers that others have parked."""
        return self._crowd.was_met

    def reader(
        self,
        topic: str,
        *,
        start: MessageId | None = None,
        columns: Sequence[str] = ("value",),
        read_compacted: bool = False,
    ) -> Reader:
        """A reader on ``topic``, exactly that: an unpartitioned one, or one ``...-partition-n``.

        ::

            with client.reader(topic, columns=("key", "value")) as reader:
                for batch in reader.read_to(reader.last_id):
                    print(batch.num_rows)

        Args:
            start: the first entry that is wanted; None: the topic's first. One that is not there
                any more is passed over without a word: compare the ids.
            columns: which columns the batches have, as ``Reader`` says.
            read_compacted: what a compaction has left of the topic, then what came after it.

        Raises:
            TopicNotFound: there is no such topic.
            ConfigurationError: there is no such column, or ``start`` is something else.
        """
        name = str(TopicName.parse(topic))
        start = checked_start(start)
        wanted = checked_columns(columns)
        reader = Reader(self.lookup, name, start, wanted, self._timeout_s, read_compacted)
        reader.open()
        return reader

    def entry_reader(
        self,
        topic: str,
        start: MessageId | None = None,
        *,
        permits: int = PERMITS,
        waits_for_parked: bool = False,
    ) -> EntryReader:
        """The same, of entries as they are stored.

        Args:
            permits: how many messages the broker may have under way; ``ONE_BY_ONE`` when one entry
                is wanted, as the broker reads and sends no other, or when none may be missed.
            waits_for_parked: where a policy limits readers, wait for those that others have parked.

        Raises:
            TopicNotFound: there is no such topic.
            ConfigurationError: ``start`` is something else.
        """
        name, start = str(TopicName.parse(topic)), checked_start(start)
        open_one = self._readers.open_in_a_crowd if waits_for_parked else self._readers.open
        return open_one(name, start, permits)

    def parked_reader(self, topic: str) -> EntryReader | None:
        """The reader on ``topic`` that was parked and can go on; None: there is none."""
        return self._readers.take(topic)

    def park_reader(self, reader: EntryReader) -> None:
        """Keep ``reader`` for a while, for ``parked_reader``."""
        self._readers.park(reader)

    def tail(self, topic: str, *, read_compacted: bool = False) -> Tail:
        """Where ``topic``, exactly that, begins and ends; it connects when it is asked."""
        name, ids = str(TopicName.parse(topic)), self._consumer_ids
        return Tail(self.lookup, name, ids, self._timeout_s, read_compacted=read_compacted)

    def cursor(self, topic: str, subscription: str) -> SubscriptionCursor:
        """The durable ``subscription`` of ``topic``, to be moved; made when it is first used."""
        name, ids = str(TopicName.parse(topic)), self._consumer_ids
        return SubscriptionCursor(self.lookup, name, subscription, ids, timeout_s=self._timeout_s)

    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        type: Literal["exclusive", "shared", "failover", "key_shared"] = "exclusive",
        start: Literal["earliest", "latest"] = "earliest",
    ) -> Consumer:
        """A consumer of the durable ``subscription`` on ``topic``, exactly that.

        Consume, transform, produce, all or nothing::

            with client.consumer("orders", "billing") as orders:
                invoices = client.producer("invoices")
                while messages := orders.receive_batch(1000, timeout_s=5):
                    with client.transaction(timeout_s=60) as txn:
                        for message in messages:
                            invoices.send(message.value.upper(), txn=txn)
                        orders.acknowledge(messages, txn=txn)

        Args:
            type: who else may have the subscription, and how its messages are spread.
            start: where a subscription begins that is new.

        Raises:
            TopicNotFound: there is no such topic.
            ConsumerBusy: another consumer has the subscription to itself.
            ConfigurationError: there is no such type, or start.
        """
        types = {kind.name.lower(): kind for kind in SubscriptionType}
        starts = {position.name.lower(): position for position in InitialPosition}
        if type not in types or start not in starts:
            raise ConfigurationError(
                f"type={type!r}, start={start!r}: choose a type of {', '.join(types)} and a start "
                f"of {', '.join(starts)}."
            )
        consumer = Consumer(
            self.lookup,
            str(TopicName.parse(topic)),
            subscription,
            types[type],
            starts[start],
            self._consumer_ids,
            self._timeout_s,
        )
        consumer.open()
        return consumer

    def subscribe_durably(self, topic: str, subscription: str) -> None:
        """Make ``subscription`` at the first entry of ``topic``, unless it is there: it keeps all
        that comes behind its position from deletion.

        Raises:
            TopicNotFound: there is no such topic.
        """
        with contextlib.suppress(ConsumerBusy), self._durable_consumer(topic, subscription):
            pass  # one that is busy exists

    def acknowledge(self, topic: str, subscription: str, message_id: MessageId) -> None:
        """Move the durable ``subscription`` behind the entry of ``message_id``; never back.

        One that is missing is made first.

        Raises:
            TopicNotFound: there is no such topic.
            ConsumerBusy: somebody else uses the subscription at this moment.
        """
        crowd = self._crowd.noting(OF_READERS)
        with crowd, self._durable_consumer(topic, subscription) as consumer:
            consumer.acknowledge(message_id)

    def _durable_consumer(self, topic: str, subscription: str) -> DurableConsumer:
        name = str(TopicName.parse(topic))
        broker, consumer_id = self.lookup.broker_of(name), next(self._consumer_ids)
        return DurableConsumer(broker, name, subscription, consumer_id, timeout_s=self._timeout_s)

    def topics(self, namespace: str) -> list[str]:
        """The full names of the persistent topics in ``tenant/namespace``; each partition is one.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        return self.lookup.topics(namespace)

    def transaction(self, *, timeout_s: float = 60.0) -> Transaction:
        """Begin a transaction that the broker aborts after ``timeout_s``.

        Raises:
            TransactionsDisabled: the broker runs without transactions.
            RequestTimeout: no answer; a broker at its limit of active transactions stays silent.
        """
        expires_at = time.monotonic() + timeout_s
        txn_id = self.coordinators.begin(int(timeout_s * 1000))
        txn = Transaction(txn_id, self.coordinators, expires_at=expires_at)
        with self._transactions_lock:
            self._transactions[txn_id] = txn
        return txn

    def join(self, txn_id: TxnId) -> Transaction:
        """Write in a transaction that was begun elsewhere, by the same principal.

        In one client there is one object for each transaction, as long as anybody holds it.
        """
        with self._transactions_lock:
            known = self._transactions.get(txn_id)
            if known is None:
                known = self._transactions[txn_id] = Transaction(txn_id, self.coordinators)
            return known

    def close(self) -> None:
        """Close all connections. Transactions that are open expire by themselves.

        It does not wait: what has no acknowledgement yet is in doubt. May be called twice.
        """
        self._opening.parked.clear()
        self._readers.clear()
        self.lookup.close()
        self._clock.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
