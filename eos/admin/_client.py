"""The questions to Pulsar's admin API, answered as facts with names.

Source: the paths of ``/admin/v2`` and ``/admin/v3`` as Pulsar 4.2.4 has them.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from eos.admin import _responses as responses
from eos.admin._creation import create_topic, path_of
from eos.admin._facts import (
    CoordinatorState,
    Ledger,
    OpenTransaction,
    ReadPosition,
    Retention,
    Subscription,
    TopicStats,
)
from eos.admin._transport import Transport
from eos.errors import ProtocolError, TopicNotFound, printable
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.address import Address
from eos.transport.auth import Auth

_VERSION: Final = "/admin/v2/brokers/version"
_VERSION_CHARS: Final = 100

T = TypeVar("T")


class AdminClient:
    """The admin API at one URL; every method is one or two requests.

    Each raises ``Unauthorized`` when the role may not ask, ``TopicNotFound`` for what is not there,
    ``ProtocolError`` for an answer that is not one of Pulsar's, and ``EosError`` when the API can't
    be asked.

    Args:
        auth: the token goes only where ``Transport`` says.
        service: the addresses of the cluster's service URL, where they are known.
        timeout_s: for each request.

    Raises:
        ConfigurationError: the URL is none, or would show the token (see ``Transport``).
    """

    def __init__(
        self,
        admin_url: str,
        auth: Auth,
        *,
        timeout_s: float,
        service: Sequence[Address] = (),
    ) -> None:
        self._transport = Transport(admin_url, auth, timeout_s=timeout_s, service=service)
        self.url = admin_url

    def open_transactions(self) -> list[OpenTransaction]:
        """Every transaction that is open, or being ended, on any coordinator that is loaded."""
        found = self._read("/admin/v3/transactions/slowTransactions/0", responses.transactions)
        return sorted(found, key=lambda open_: (open_.opened_at, open_.txn))

    def transaction(self, txn: TxnId) -> OpenTransaction | None:
        """A transaction that the coordinator still knows; None when it has forgotten it."""
        path = f"/admin/v3/transactions/transactionMetadata/{txn.most}/{txn.least}"
        try:
            return self._read(path, lambda answer: responses.transactions({str(txn): answer})[0])
        except TopicNotFound:
            return None

    def coordinators(self) -> list[CoordinatorState]:
        """All coordinators. Answers only after a client has connected to them (measured)."""
        return self._read("/admin/v3/transactions/coordinatorStats", responses.coordinators)

    def read_position(self, topic: TopicName) -> ReadPosition:
        """Where readers of an exact topic stand at most.

        Raises:
            TopicNotFound: there is no such topic.
        """
        name = path_of(topic)
        buffer = self._read(
            f"/admin/v3/transactions/transactionBufferStats/{name}", responses.buffer
        )
        stats = self._read(f"/admin/v2/persistent/{name}/internalStats", responses.ledgers)
        return ReadPosition(
            max_read=responses.position(buffer.maxReadPosition),
            last_entry=responses.position(stats.lastConfirmedEntry),
            first_ledger=min((ledger.ledgerId for ledger in stats.ledgers), default=0),
            open_transactions=buffer.ongoingTxnSize,
            is_ready=buffer.state in ("Ready", "NoSnapshot"),
        )

    def ledgers(self, topic: TopicName) -> list[Ledger]:
        """What an exact topic is made of, in its order.

        Raises:
            TopicNotFound: there is no such topic.
        """
        path = f"/admin/v2/persistent/{path_of(topic)}/internalStats"
        stats = self._read(path, responses.ledgers)
        found = [
            Ledger(one.ledgerId, one.entries, one.size, one.offloaded) for one in stats.ledgers
        ]
        if found:  # the one that is written to is counted apart
            entries, size = stats.currentLedgerEntries, stats.currentLedgerSize
            found[-1] = replace(found[-1], entries=entries, bytes=size)
        return sorted(found, key=lambda ledger: ledger.id)

    def begun_at(self, topic: TopicName, txn: TxnId) -> MessageId | None:
        """The first entry of ``txn`` in an exact ``topic``, whose transaction buffer counts it as
        open; None when it does not.

        Source: ``transactionInBufferStats`` answers ``{"startPosition": ..., "aborted": false}``
        for it (measured on 4.2.4).
        """
        name = path_of(topic)
        path = f"/admin/v3/transactions/transactionInBufferStats/{name}/{txn.most}/{txn.least}"
        try:
            return self._read(path, responses.begun_at)
        except TopicNotFound:
            return None

    def is_pinned_by(self, topic: TopicName, txn: TxnId) -> bool:
        """Whether the transaction buffer of ``topic`` counts ``txn`` as open, with messages.

        For a transaction that has ended this means: it holds back every reader of the topic.
        """
        return self.begun_at(topic, txn) is not None

    def create_topic(self, topic: TopicName, partitions: int = 0) -> None:
        """Create ``topic``, whatever its namespace lets clients create; 0: unpartitioned."""
        create_topic(self._transport, topic, partitions)

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The exact topics of a name."""
        if topic.partition_index is not None:
            return [topic]
        path = f"/admin/v2/persistent/{path_of(topic)}/partitions"
        return topic.partitions(self._read(path, responses.partitions))

    def tenants(self) -> list[str]:
        """All of the cluster; needs a superuser."""
        return sorted(self._read("/admin/v2/tenants", responses.names))

    def namespaces(self, tenant: str) -> list[str]:
        """Those of a tenant, ``tenant/namespace`` each."""
        path = f"/admin/v2/namespaces/{urllib.parse.quote(tenant, safe='')}"
        return sorted(self._read(path, responses.names))

    def topics(self, namespace: str) -> list[TopicName]:
        """The topics of ``tenant/namespace`` but the broker's own; partitioned ones once."""
        path = f"/admin/v2/persistent/{namespace}"
        found = self._read(path, responses.names) + self._read(
            f"{path}/partitioned", responses.names
        )
        bases = {TopicName.parse(name).base for name in found if responses.is_topic(name)}
        return sorted(name for name in bases if not name.local.startswith("__"))

    def topic_stats(self, topic: TopicName, *, is_partitioned: bool) -> TopicStats:
        """What a topic holds, and who keeps it.

        Raises:
            TopicNotFound: there is no such topic.
        """
        kind = "partitioned-stats?perPartition=false" if is_partitioned else "stats"
        return self._read(f"/admin/v2/persistent/{path_of(topic)}/{kind}", responses.topic_stats)

    def retention(self, topic: TopicName) -> Retention:
        """Of a topic, as it holds: its own, its namespace's, or the broker's."""
        path = f"/admin/v2/persistent/{path_of(topic)}/retention?applied=true"
        return self._read(path, responses.retention)

    def message_ttl_s(self, topic: TopicName) -> int:
        """After how many seconds a topic's messages expire, as it holds; 0: never."""
        path = f"/admin/v2/persistent/{path_of(topic)}/messageTTL?applied=true"
        return self._read(path, responses.seconds)

    def delete_topic(self, topic: TopicName, *, is_partitioned: bool) -> None:
        """Delete a topic with all that is in it.

        Raises:
            TopicNotFound: there is no such topic.
            BrokerNotReady: somebody uses it.
        """
        partitions = "/partitions" if is_partitioned else ""
        self._transport.ask("DELETE", f"/admin/v2/persistent/{path_of(topic)}{partitions}")

    def subscriptions(self, topic: TopicName) -> list[str]:
        """Names of a topic's durable subscriptions."""
        path = f"/admin/v2/persistent/{path_of(topic)}/subscriptions"
        return self._read(path, responses.names)

    def subscription_stats(self, topic: TopicName) -> list[Subscription]:
        """The durable subscriptions of an exact topic, in order of their names.

        Raises:
            TopicNotFound: there is no such topic.
        """
        path = f"/admin/v2/persistent/{path_of(topic)}/stats"
        return self._read(path, responses.subscriptions)

    def remove_subscription(self, topic: TopicName, name: str) -> None:
        """Remove a subscription of an exact topic; what only it kept may be deleted then.

        Raises:
            TopicNotFound: there is no such topic, or no such subscription.
            BrokerNotReady: a consumer uses it.
        """
        subscription = urllib.parse.quote(name, safe="")
        path = f"/admin/v2/persistent/{path_of(topic)}/subscription/{subscription}"
        self._transport.ask("DELETE", path)

    def backlog_quotas(self, topic: TopicName) -> dict[str, Any]:
        """The backlog quotas that are set on a topic itself, by their kind."""
        path = f"/admin/v2/persistent/{path_of(topic)}/backlogQuotaMap?applied=false"
        return self._read(path, responses.quotas)

    def rate(self, topic: TopicName, kind: str) -> dict[str, Any]:
        """The ``publishRate``, ``dispatchRate`` or ``subscriptionDispatchRate`` that is set on a
        topic itself."""
        return self._read(f"/admin/v2/persistent/{path_of(topic)}/{kind}", responses.rate)

    def policies(self, namespace: str) -> dict[str, Any]:
        """The policies that are set on ``tenant/namespace``; unset ones are missing."""
        return self._read(f"/admin/v2/namespaces/{namespace}", responses.policies)

    def broker_settings(self) -> dict[str, str]:
        """The broker's configuration as it runs; needs a superuser."""
        return self._read("/admin/v2/brokers/configuration/runtime", responses.settings)

    def version(self) -> str:
        """The broker's version."""
        text = self._transport.ask("GET", _VERSION).body.decode("utf-8", "replace")
        return printable(text.strip())[:_VERSION_CHARS]

    def clock_skew_s(self) -> float | None:
        """Seconds that the broker's clock is ahead of ours, to a second; None: it does not say."""
        before = time.time()
        date = self._transport.ask("GET", _VERSION).date
        here = (before + time.time()) / 2
        try:
            there = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return None
        # The header cuts off fractions: half a second is the best guess for them.
        return round(there + 0.5 - here, 1)

    def _read(self, path: str, shape: Callable[[Any], T]) -> T:
        answer = self._transport.ask_json("GET", path)
        try:
            return shape(answer)
        except ValueError as error:
            raise ProtocolError(
                f"The admin API's answer to {path} is not one of Pulsar's: {str(error)[:200]}."
            ) from None
