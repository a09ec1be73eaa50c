"""The client: creates producers, readers, consumers and transactions for a service URL."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Collection, Sequence
from functools import partial
from typing import Literal, Self, Unpack

from eos.client._consumer import Consumer, ConsumerFactory
from eos.client._entry_producer import EntryProducer
from eos.client._entry_reader import PERMITS, EntryReader, checked_start
from eos.client._handle_cache import CONSUMER_LIMIT, LimitBackoff, ReaderCache
from eos.client._lookup import Lookup
from eos.client._passive_consumer import SubscriptionCursor
from eos.client._producer import BatchLimits, Producer
from eos.client._producer_factory import ProducerFactory, ProducerKind
from eos.client._reader import Reader, Storage
from eos.client._subscriptions import ConsumerArguments, ConsumerOptions
from eos.client._timer import Timer
from eos.client._topic_bounds import TopicBounds
from eos.client._topics_consumer import TopicGroup, TopicNames, TopicsConsumer
from eos.client._transaction import Transaction
from eos.client._window import Budget
from eos.client.coordinators import Coordinators
from eos.errors import ConfigurationError, ConsumerBusy, TopicNotFound
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth
from eos.transport.message_keys import Encryption
from eos.waiting import boot_time
from eos.wire.commands import SchemaInfo
from eos.wire.decoding import checked_columns


class PulsarClient:
    """A blocking Pulsar client, with transactions.

    ::

        with PulsarClient("pulsar://localhost:6650") as client:
            producer = client.producer("persistent://public/default/orders")
            with client.transaction(timeout_s=60) as txn:
                producer.send(b"all of this", txn=txn)
                producer.send(b"or nothing", txn=txn)

    Args:
        service_url: ``pulsar://host:port[,host:port...]``, or ``pulsar+ssl://`` for TLS.
        auth, listener_name, subscription_prefix: see ``Auth`` and ``ClusterRules``.
        encryption: decrypts what readers and consumers get, and with ``encryption_keys`` encrypts
            what producers send.
        timeout_s: timeout of each connection attempt, each request and each acknowledgement.
        max_pending_bytes: the limit of bytes that all producers together have in flight; above it
            ``send`` waits.

    Raises:
        ConfigurationError: the service URL is malformed, or a limit is not positive.
    """

    def __init__(
        self,
        service_url: str,
        *,
        auth: Auth | None = None,
        listener_name: str | None = None,
        subscription_prefix: str | None = None,
        encryption: Encryption | None = None,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        limited = ("timeout_s", timeout_s, threading.TIMEOUT_MAX)
        for name, value, most in (limited, ("max_pending_bytes", max_pending_bytes, 2**63)):
            if not 0 < value < most:
                raise ConfigurationError(f"{name} must be in (0, {most:g}), not {value!r}.")
        # One object per transaction, so that its end or poison holds for all who joined it.
        self._transactions = weakref.WeakValueDictionary[TxnId, Transaction]()
        self._transactions_lock = threading.Lock()
        rules = ClusterRules(listener_name, subscription_prefix)
        self.lookup = Lookup(service_url, auth or Auth(), rules, timeout_s=timeout_s)
        self.coordinators = Coordinators(self.lookup)
        self._timer = timer = Timer()
        self._limit_backoff = backoff = LimitBackoff()
        keys = None if encryption is None else encryption.keys
        self.decryptor = None if keys is None else keys.decryptor
        self._keys = keys if keys is not None and keys.encrypts else None
        budget = Budget(max_pending_bytes)
        self.producers = ProducerFactory(self.lookup, budget, timer, backoff, self._keys)
        self._readers = ReaderCache(self.lookup, timer, backoff)
        open_producer = partial(self.producer, create=True)
        self._consumers = ConsumerFactory(
            *(self.lookup, timer, self.decryptor),
            *(open_producer, self.subscribe_durably, self.transaction),
        )

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of ``topic``, 0 if not partitioned. Creates nothing.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        return self.lookup.partition_count(TopicName.parse(topic))

    def schema(self, topic: str) -> SchemaInfo | None:
        """Return the newest schema of ``topic`` in the broker's registry, or None."""
        return (self.lookup.schema(TopicName.parse(topic).base) or (None,))[0]

    def exists(self, topic: str) -> bool:
        """Whether ``topic``, or one exact ``...-partition-n``, exists. Creates nothing."""
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
        """Return a producer that sends batches, on ``topic`` with all its partitions.

        Args:
            create: let the broker create a missing topic; not for a partition.
            linger_ms: how long a message may wait for others.
            max_batch_messages, max_batch_bytes: limits of an entry, before compression.
            hashing: how a key chooses its partition: as in the Java client, or murmur3.
            batching: ``by_key``: entries of one key each, for ``key_shared`` consumers.

        Raises:
            TopicNotFound: the topic does not exist, and ``create`` is not set.
            ConfigurationError: an option is out of range.
        """
        limits = BatchLimits(linger_ms, max_batch_messages, max_batch_bytes, hashing, batching)
        producers = self.producers.open_topic(topic, create=create)
        return Producer(str(TopicName.parse(topic)), producers, limits, self._timer, self._keys)

    def entry_producer(self, topic: str, *, create: bool = False) -> EntryProducer:
        """Return a producer on an unpartitioned ``topic`` or one exact ``...-partition-n``.

        It sends each message, or each encoded batch, as one entry; otherwise as ``producer``.
        """
        return self.producers.open_one(topic, create=create)

    def create_unpartitioned(self, topic: str) -> None:
        """Let the broker create ``topic``, unpartitioned, if it does not exist.

        Raises:
            TopicNotFound: the broker does not let clients create topics there.
        """
        # By PRODUCER only: to ask for the topic's partitions would create a partitioned topic in a
        # namespace that does so automatically (allowAutoTopicCreationType).
        self.producers.open(TopicName.parse(topic)).close()

    def entry_producers(
        self,
        topics: Sequence[str],
        *,
        txn: Transaction | None = None,
        schema: SchemaInfo | None = None,
        after: Collection[TxnId | None] | None = None,
        encrypted: bool = False,
    ) -> list[EntryProducer]:
        """Return a producer on each of ``topics``, opened in parallel. On an error all are closed.

        Args:
            txn: register ``topics`` in this transaction, concurrently.
            schema: of the messages; registered with the topics if it is missing.
            after: reuse idle producers whose last transaction is one of these, all committed (None:
                no transaction). At a limit of producers, wait until other processes close idle
                ones.
            encrypted: the caller will send encrypted entries only.

        Raises:
            IncompatibleSchema: ``schema`` is incompatible with a topic's schemas.
            TopicNotFound, ConfigurationError: as ``producer``.
            TransactionExpired: as ``Transaction.register``.
        """
        return self.producers.open_in(topics, txn, ProducerKind(schema, encrypted), after)

    def release_producers(
        self,
        producers: Sequence[EntryProducer],
        txn: Transaction | None,
        schema: SchemaInfo | None = None,
        encrypted: bool = False,
    ) -> None:
        """Keep ``producers`` idle for a while; ``entry_producers`` reuses them.

        Each is the result of ``EntryProducer.transfer``; its predecessor was used in ``txn``.
        """
        kind = ProducerKind(schema, encrypted)
        self.producers.release(producers, kind, None if txn is None else txn.id)

    @property
    def limit_hit(self) -> bool:
        """Whether a limit of producers or readers has ever refused this client."""
        return self._limit_backoff.limit_hit

    def reader(
        self,
        topic: str,
        *,
        start: MessageId | None = None,
        columns: Sequence[str] = ("value",),
        read_compacted: bool = False,
        storage: Storage | None = None,
    ) -> Reader:
        """Return a reader on an unpartitioned ``topic`` or one exact ``...-partition-n``::

            with client.reader(topic, columns=("key", "value")) as reader:
                for batch in reader.read_to(reader.last_id):
                    print(batch.num_rows)

        Args:
            start: the first entry to read; None: the topic's first. Deleted entries are skipped
                silently: compare the ids.
            columns: the columns of the batches; see ``Reader``.
            read_compacted: read the compacted topic, then the entries after the compaction.
            storage: an ``eos.TieredStorage``: large ledgers there are read without the broker.

        Raises:
            TopicNotFound: the topic does not exist; with ``storage`` later, when it is read.
            ConfigurationError: a column is unknown, or ``start`` is not a ``MessageId``.
        """
        name = str(TopicName.parse(topic))
        start = checked_start(start)
        wanted = checked_columns(columns)
        if read_compacted and storage is not None:
            raise ConfigurationError("Storage has no compacted topics: leave out one of the two.")
        reader = Reader(self.lookup, name, start, wanted, read_compacted, storage, self.decryptor)
        if storage is None:  # else it may not need the broker
            reader.open()
        return reader

    def entry_reader(
        self,
        topic: str,
        start: MessageId | None = None,
        *,
        permits: int = PERMITS,
        waits_at_limit: bool = False,
    ) -> EntryReader:
        """Return a reader of stored entries; otherwise as ``reader``.

        Args:
            permits: how many messages the broker may have in flight. With ``ONE_PERMIT`` it reads
                and sends one entry at a time, and drops none.
            waits_at_limit: at a limit of readers, wait until other processes close idle ones.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigurationError: ``start`` is not a ``MessageId``.
        """
        name, start = str(TopicName.parse(topic)), checked_start(start)
        return self._readers.open(name, start, permits, waits_at_limit=waits_at_limit)

    def acquire_reader(self, topic: str) -> EntryReader | None:
        """Return the usable idle reader on ``topic``, or None."""
        return self._readers.acquire(topic)

    def release_reader(self, reader: EntryReader) -> None:
        """Keep ``reader`` idle for a while, for ``acquire_reader``."""
        self._readers.release(reader)

    def topic_bounds(self, topic: str, *, read_compacted: bool = False) -> TopicBounds:
        """Return the bounds of ``topic``, an exact name; it connects at the first question."""
        return TopicBounds(self.lookup, str(TopicName.parse(topic)), read_compacted=read_compacted)

    def cursor(
        self, topic: str, subscription: str, *, exclusive: bool = False
    ) -> SubscriptionCursor:
        """Return a cursor that moves the durable ``subscription`` of ``topic``, an exact name.

        ``exclusive``: while it is in use, no other consumer may use the subscription.
        """
        name = str(TopicName.parse(topic))
        return SubscriptionCursor(self.lookup, name, subscription, exclusive=exclusive)

    def consumer(
        self,
        topic: str,
        subscription: str,
        **options: Unpack[ConsumerArguments],
    ) -> Consumer:
        """Return a consumer of the durable ``subscription`` on ``topic``, an exact name.

        ``options``: see ``ConsumerOptions``.

        Raises:
            TopicNotFound: the topic does not exist.
            ConsumerBusy: another consumer has exclusive use of the subscription.
            ConfigurationError: an option is unknown or out of range.
        """
        return self._consumers.open(topic, subscription, ConsumerOptions(**options))

    def topics_consumer(
        self,
        topics: TopicNames,
        subscription: str,
        *,
        retry: bool = False,
        discovery_s: float = 60.0,
        **options: Unpack[ConsumerArguments],
    ) -> TopicsConsumer:
        """Return one consumer of several topics, with all their partitions.

        Args:
            topics: a topic, several, or all of a namespace that a pattern matches:
                ``re.compile("tenant/namespace/orders-.*")``. The pattern is matched with the whole
                name, without the partition.
            retry: read the topic TOPIC-SUBSCRIPTION-RETRY, too, see ``TopicsConsumer.retry_later``.
            discovery_s: how often new topics and partitions are looked for. They are read from
                their first message on.
            options: see ``ConsumerOptions``.

        Raises:
            TopicNotFound: a topic does not exist; not with a pattern.
            ConsumerBusy: another consumer has exclusive use of the subscription on a topic.
            ConfigurationError: an option is unknown or out of range.
        """
        return TopicsConsumer(
            *(self._consumers, TopicGroup(topics, self.lookup)),
            *(subscription, ConsumerOptions(**options)),
            retry=retry,
            discovery_s=discovery_s,
        )

    def subscribe_durably(self, topic: str, subscription: str) -> None:
        """Create ``subscription``, which protects all entries of ``topic``, if it does not exist.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        with contextlib.suppress(ConsumerBusy), self.cursor(topic, subscription, exclusive=True):
            pass  # a busy subscription exists

    def acknowledge(self, topic: str, subscription: str, message_id: MessageId) -> None:
        """Move the durable ``subscription``, created if missing, after ``message_id``; never back.

        Raises:
            TopicNotFound: the topic does not exist.
            ConsumerBusy: another consumer uses the subscription now.
        """
        watching = self._limit_backoff.watching(CONSUMER_LIMIT)
        with watching, self.cursor(topic, subscription, exclusive=True) as cursor:
            cursor.acknowledge(message_id)

    def topics(self, namespace: str) -> list[str]:
        """Return the full names of the persistent topics in ``tenant/namespace``, by partition."""
        return self.lookup.topics(namespace)

    def transaction(self, *, timeout_s: float = 60.0) -> Transaction:
        """Begin a transaction that the broker aborts after ``timeout_s``.

        Raises:
            TransactionsDisabled: the broker runs without transactions.
            RequestTimeout: no answer; a broker at its limit of active transactions does not reply.
        """
        began, ttl_ms = boot_time(), int(1000 * max(0.0, min(1e9, timeout_s)))
        txn_id = self.coordinators.begin(ttl_ms)  # refuses both bounds
        txn = Transaction(txn_id, self.coordinators, expires_at=began + timeout_s)
        with self._transactions_lock:
            self._transactions[txn_id] = txn
        return txn

    def join(self, txn_id: TxnId) -> Transaction:
        """Return a transaction that the same principal began elsewhere, to write in it.

        A client has one object per transaction, as long as it is referenced.
        """
        with self._transactions_lock:
            known = self._transactions.get(txn_id)
            if known is None:
                known = self._transactions[txn_id] = Transaction(txn_id, self.coordinators)
            return known

    def close(self) -> None:
        """Close all connections. Open transactions will expire.

        It does not wait: sends without an acknowledgement are in doubt. May be called twice.
        """
        self.producers.clear()
        self._readers.clear()
        self.lookup.close()
        self._timer.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
