"""The client: from a service URL to producers and transactions."""

from __future__ import annotations

import itertools
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
        ConfigurationError: the service URL is malformed.
    """

    def __init__(
        self,
        service_url: str,
        *,
        security: Security | None = None,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._timeout_s = timeout_s
        self._max_pending_bytes = max_pending_bytes
        self._producer_ids = itertools.count()
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
            create: let the broker create an unpartitioned topic that does not exist.

        Raises:
            TopicNotFound: there is no such topic, and ``create`` is not set.
            ConfigurationError: the topic is partitioned and no partition is named.
        """
        parsed = TopicName.parse(topic)
        if parsed.partition_index is None:
            self._check_unpartitioned(parsed, create=create)
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
        try:
            count = self.lookup.partition_count(topic)
        except TopicNotFound:
            if not create:
                raise
            count = 0
        if count:
            # The broker would take the base name, and nobody would ever read what was sent.
            raise ConfigurationError(
                f"{topic} has {count} partitions: name one, {topic.partition(0)} for example."
            )

    def transaction(self, *, timeout_s: float = 60.0) -> Transaction:
        """Begin a transaction that the broker aborts after ``timeout_s``.

        Raises:
            TransactionsDisabled: the broker runs without transactions.
            RequestTimeout: no answer; a broker at its limit of active transactions stays silent.
        """
        return self.join(self.coordinators.begin(int(timeout_s * 1000)))

    def join(self, txn_id: TxnId) -> Transaction:
        """Write in a transaction that was begun elsewhere, by the same principal."""
        return Transaction(txn_id, self.coordinators)

    def close(self) -> None:
        """Close all connections. Transactions that are open expire by themselves."""
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
