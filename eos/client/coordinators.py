"""The transaction coordinators: begin, register partitions, end. Each method is one attempt."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from eos.client._lookup import Lookup
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    CoordinatorNotFound,
    EosError,
    NotAllowed,
    ProtocolError,
    RequestTimeout,
    TopicNotFound,
    TransactionsDisabled,
    broker_error,
)
from eos.ids import TopicName, TxnId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.messages import WireMessage

ASSIGN_TOPIC: Final = TopicName("pulsar", "system", "transaction_coordinator_assign")
MIN_TTL_MS: Final = 100
MAX_TTL_MS: Final = 24 * 3600 * 1000  # a huge one disables expiry for a coordinator (measured)

ResponseT = TypeVar(
    "ResponseT",
    commands.NewTxnResponse,
    commands.AddPartitionToTxnResponse,
    commands.AddSubscriptionToTxnResponse,
    commands.EndTxnResponse,
)


class Coordinators:
    """All coordinators of a cluster, for one client."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self.timeout_s = lookup.timeout_s
        self._lock = threading.Lock()
        self._connections: dict[int, Connection] = {}
        self._next = itertools.count()
        self._known_count = 0

    def count(self) -> int:
        """Ask for the number of coordinators.

        Raises:
            TransactionsDisabled: there are none: the broker runs without transactions.
        """
        try:
            count = self._lookup.partition_count(ASSIGN_TOPIC)
        except TopicNotFound as error:
            raise TransactionsDisabled("The cluster has no transaction coordinator.") from error
        if count == 0:
            raise TransactionsDisabled("The cluster has no transaction coordinator.")
        self._known_count = count
        return count

    def connect(self, tc_id: int) -> None:
        """Connect to coordinator ``tc_id``, which loads and finishes ending transactions."""
        self._connection(tc_id)

    def begin(self, ttl_ms: int) -> TxnId:
        """Begin a transaction on the next coordinator, in rotation; see ``begin_on``."""
        count = self._known_count or self.count()
        try:
            return self.begin_on(next(self._next) % count, ttl_ms)
        except EosError:
            self._known_count = 0  # it may be another cluster now
            raise

    def begin_on(self, tc_id: int, ttl_ms: int) -> TxnId:
        """Begin a transaction on coordinator ``tc_id``; the broker aborts it after ``ttl_ms``.

        Raises:
            RequestTimeout: no answer; a broker at its limit of active transactions does not reply.
        """
        if not MIN_TTL_MS <= ttl_ms <= MAX_TTL_MS:
            raise ConfigurationError(
                f"The time to live must be {MIN_TTL_MS} ms to 24 hours, not {ttl_ms} ms."
            )
        answer = self._request(
            tc_id,
            lambda request_id: commands.NewTxn(request_id=request_id, ttl_ms=ttl_ms, tc_id=tc_id),
            commands.NewTxnResponse,
            doing="Opening a transaction",
        )
        if answer.txnid_most != tc_id or answer.txnid_least is None:
            raise ProtocolError(
                f"Coordinator {tc_id} returned an invalid id of a new transaction: "
                f"({answer.txnid_most},{answer.txnid_least})."
            )
        return TxnId(answer.txnid_most, answer.txnid_least)

    def add_partitions(self, txn: TxnId, topics: Iterable[str]) -> None:
        """Register partitions by their exact names."""
        # A base name would be accepted, and lose the data.
        partitions = tuple(topics)
        self._request(
            txn.most,
            lambda request_id: commands.AddPartitionToTxn(
                request_id=request_id,
                txnid_most=txn.most,
                txnid_least=txn.least,
                partitions=partitions,
            ),
            commands.AddPartitionToTxnResponse,
            doing=f"Adding {len(partitions)} partitions to transaction {txn}",
        )

    def add_subscription(self, txn: TxnId, topic: str, subscription: str) -> None:
        """Register a subscription of ``topic``, an exact name, for acknowledgements."""
        self._request(
            txn.most,
            lambda request_id: commands.AddSubscriptionToTxn(
                request_id=request_id,
                txnid_most=txn.most,
                txnid_least=txn.least,
                subscriptions=(commands.Subscription(topic=topic, subscription=subscription),),
            ),
            commands.AddSubscriptionToTxnResponse,
            doing=f"Adding {subscription} of {topic} to transaction {txn}",
        )

    def end(self, txn: TxnId, action: commands.TxnAction, *, timeout_s: float) -> None:
        """Send END_TXN once. A return means OK.

        Raises:
            TransactionNotFound, InvalidTransactionStatus: the transaction ended earlier; only the
                witness knows the outcome.
            EosError: other errors say nothing about the outcome.
        """
        self._request(
            txn.most,
            lambda request_id: commands.EndTxn(
                request_id=request_id,
                txnid_most=txn.most,
                txnid_least=txn.least,
                action=int(action),
            ),
            commands.EndTxnResponse,
            doing=f"Ending transaction {txn} with {action.name.lower()}",
            timeout_s=timeout_s,
        )

    def _request(
        self,
        tc_id: int,
        make: Callable[[int], WireMessage],
        answer: type[ResponseT],
        *,
        doing: str,
        timeout_s: float | None = None,
    ) -> ResponseT:
        connection = self._connection(tc_id)
        try:
            response = connection.request(
                make, answer, timeout_s=timeout_s or self.timeout_s, doing=doing
            )
            if response.error is not None:
                raise broker_error(response.error, response.message, doing=doing)
        except (ConnectionLost, RequestTimeout, CoordinatorNotFound, BrokerNotReady):
            # The coordinator may have moved: the next call repeats the lookup.
            with self._lock:
                if self._connections.get(tc_id) is connection:
                    del self._connections[tc_id]
            raise
        return response

    def _connection(self, tc_id: int) -> Connection:
        with self._lock:
            known = self._connections.get(tc_id)
        if known is not None and known.is_alive:
            return known
        doing = f"Connecting to coordinator {tc_id}"
        # Coordinator n runs in the broker that owns partition n of this topic. The lookup also
        # makes the broker load it: without, a restarted broker answers ServiceNotReady (measured).
        connection = self._lookup.broker_of(str(ASSIGN_TOPIC.partition(tc_id)))
        try:
            answer = connection.request(
                lambda request_id: commands.TcClientConnectRequest(
                    request_id=request_id, tc_id=tc_id
                ),
                commands.TcClientConnectResponse,
                timeout_s=self.timeout_s,
                doing=doing,
            )
            if answer.error is not None:
                raise broker_error(answer.error, answer.message, doing=doing)
        except NotAllowed as error:
            raise TransactionsDisabled(error.message) from None
        with self._lock:
            self._connections[tc_id] = connection
        return connection
