"""The client: from a service URL to producers and transactions."""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from types import TracebackType
from typing import Self

from eos.client.coordinators import Coordinators
from eos.client.lookup import Lookup
from eos.client.producer import Producer
from eos.client.transaction import Transaction
from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.transport.security import Security


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
        security: authentication and TLS.
        timeout_s: deadline of each connection attempt, each request and each receipt.
        max_pending_bytes: how many bytes one producer may have in flight; ``send`` waits beyond.

    Raises:
        ConfigurationError: the service URL is malformed, or a limit is not above zero.
    """

    def __init__(
        self,
        service_url: str,
        *,
        security: Security | None = None,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("max_pending_bytes", max_pending_bytes)):
            if not value > 0:
                raise ConfigurationError(f"{name}={value!r}: it must be above zero.")
        self._timeout_s = timeout_s
        self._max_pending_bytes = max_pending_bytes
        # Ids count in a connection; unique in the client, so that none is ever used again there.
        self._producer_ids = itertools.count()
        # One object for each transaction: what ends or poisons it here holds for all who joined.
        self._transactions: weakref.WeakValueDictionary[TxnId, Transaction]
        self._transactions = weakref.WeakValueDictionary()
        self._transactions_lock = threading.Lock()
        self.lookup = Lookup(service_url, security or Security(), timeout_s=timeout_s)
        self.coordinators = Coordinators(self.lookup, timeout_s=timeout_s)

    def partition_count(self, topic: str) -> int:
        """How many partitions ``topic`` has, 0 when it is not partitioned. Creates nothing.

        Raises:
            TopicNotFound: there is no such topic.
        """
        return self.lookup.partition_count(TopicName.parse(topic))

    def producer(self, topic: str, *, create: bool = False) -> Producer:
        """A producer on ``topic``: an unpartitioned one, or one exact ``...-partition-n``.

        Args:
            create: let the broker create a topic that does not exist; not for a partition.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
            ConfigurationError: the topic is partitioned and no partition is named.
        """
        parsed = TopicName.parse(topic)
        if parsed.partition_index is None:
            self._check_unpartitioned(parsed, create=create)
        else:
            self._check_partition(parsed, parsed.partition_index)
        name = str(parsed)
        producer = Producer(
            self.lookup.broker_of(name),
            name,
            next(self._producer_ids),
            timeout_s=self._timeout_s,
            max_pending_bytes=self._max_pending_bytes,
        )
        producer.open()
        return producer

    def _check_unpartitioned(self, topic: TopicName, *, create: bool) -> None:
        count = self.lookup.partition_count(topic, create=create)
        if count:
            # The broker would take the base name, and nobody would ever read what was sent.
            raise ConfigurationError(
                f"{topic} has {count} partitions: name one, {topic.partition(0)} for example."
            )

    def _check_partition(self, topic: TopicName, index: int) -> None:
        # PRODUCER would create what is missing.
        try:
            if index < self.lookup.partition_count(topic.base):
                return
        except TopicNotFound:
            pass
        self.lookup.partition_count(topic)  # a topic by itself, with a name like a partition's

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

        It does not wait: what has no receipt yet is in doubt. May be called twice.
        """
        self.lookup.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
