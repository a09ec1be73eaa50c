"""Requests to Pulsar's admin API, with typed results.

Source: the paths of ``/admin/v2`` and ``/admin/v3`` in Pulsar 4.2.4.
"""

from __future__ import annotations

import time
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar

from eos.admin import _responses as responses
from eos.admin._results import (
    CoordinatorState,
    Ledger,
    OpenTransaction,
    ReadPosition,
    Retention,
    StoredLedger,
    Subscription,
    TopicStats,
)
from eos.admin._transport import Transport, create_topic, path_of, topic_path
from eos.errors import ProtocolError, TopicNotFound, printable
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.address import Address
from eos.transport.auth import Auth

_VERSION: Final = "/admin/v2/brokers/version"
_VERSION_CHARS: Final = 100

T = TypeVar("T")


class AdminClient:
    """The admin API at one URL; each method makes one or two requests.

    All methods raise ``Unauthorized`` if the role lacks the permission, ``TopicNotFound`` if the
    topic or resource does not exist, ``ProtocolError`` if the answer is not Pulsar's, and
    ``EosError`` if the API can't be reached.

    Args:
        auth: ``Transport`` says to which hosts its token is sent.
        service: the addresses of the cluster's service URL, if known.
        timeout_s: for each request.

    Raises:
        ConfigurationError: the URL is invalid, or would expose the token (see ``Transport``).
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
        """Return all transactions, open or ending, of all loaded coordinators."""
        found = self._read("/admin/v3/transactions/slowTransactions/0", responses.transactions)
        return sorted(found, key=lambda open_: (open_.opened_at, open_.txn))

    def transaction(self, txn: TxnId) -> OpenTransaction | None:
        """Return a transaction; None if its coordinator no longer knows it."""
        path = f"/admin/v3/transactions/transactionMetadata/{txn.most}/{txn.least}"
        try:
            return self._read(path, lambda answer: responses.transactions({str(txn): answer})[0])
        except TopicNotFound:
            return None

    def coordinators(self) -> list[CoordinatorState]:
        """Return all coordinators; only after a client has connected to them (measured)."""
        return self._read("/admin/v3/transactions/coordinatorStats", responses.coordinators)

    def read_position(self, topic: TopicName) -> ReadPosition:
        """Return how far readers of an exact topic may read."""
        # The last entry first: asked afterwards, it is ahead wherever messages are being sent.
        stats = self._read(topic_path(topic, "internalStats"), responses.ledgers)
        path = f"/admin/v3/transactions/transactionBufferStats/{path_of(topic)}"
        buffer = self._read(path, responses.buffer)
        return ReadPosition(
            max_read=responses.position(buffer.maxReadPosition),
            last_entry=responses.position(stats.lastConfirmedEntry),
            first_ledger=min((ledger.ledgerId for ledger in stats.ledgers), default=0),
            open_transactions=buffer.ongoingTxnSize,
            is_ready=buffer.state in ("Ready", "NoSnapshot"),
        )

    def ledgers(self, topic: TopicName) -> list[Ledger]:
        """Return the ledgers of an exact topic, in order."""
        stats = self._read(topic_path(topic, "internalStats"), responses.ledgers)
        found = [Ledger(one.ledgerId, one.entries, one.size) for one in stats.ledgers]
        if found:  # the counts of the open ledger are separate fields
            entries, size = stats.currentLedgerEntries, stats.currentLedgerSize
            found[-1] = replace(found[-1], entries=entries, bytes=size)
        return sorted(found, key=lambda ledger: ledger.id)

    def compacted_ledger(self, topic: TopicName) -> int | None:
        """Return the number of the ledger that the last compaction of an exact topic has made."""
        stats = self._read(topic_path(topic, "internalStats"), responses.ledgers)
        made = stats.compactedLedger.ledgerId
        return None if made < 0 else made

    def stored_ledgers(self, topic: TopicName) -> list[StoredLedger]:
        """Return the ledgers of an exact topic, in order, and what tiered storage has of them."""
        stored = self._read(topic_path(topic, "internal-info"), responses.stored_ledgers)
        return [
            StoredLedger(
                one.ledgerId,
                one.entries,
                one.size,
                one.offloadedContextUuid if one.isOffloaded else None,
            )
            for one in sorted(stored.ledgers, key=lambda one: one.ledgerId)  # they are in none
        ]

    def buffer_loaded_ms(self, topic: TopicName) -> int | None:
        """Return since when the transaction buffer of an exact topic is loaded; None: it is not."""
        path = f"/admin/v3/transactions/transactionBufferStats/{path_of(topic)}"
        buffer = self._read(path, responses.buffer)
        return buffer.recoverEndTime or None if buffer.state == "Ready" else None

    def is_aborted(self, topic: TopicName, txn: TxnId) -> bool | None:
        """Whether ``topic``, an exact one, knows a transaction as aborted; None: it is open there.

        It knows that for as long as it has entries of it (measured on 4.2.4), but is not loaded
        yet if ``buffer_loaded_ms`` is not the same before and after.
        """
        name = path_of(topic)
        path = f"/admin/v3/transactions/transactionInBufferStats/{name}/{txn.most}/{txn.least}"
        return self._read(path, responses.is_aborted)

    def first_entry_of(self, topic: TopicName, txn: TxnId) -> MessageId | None:
        """Return the first entry of ``txn`` in an exact ``topic``; None if its transaction buffer
        does not count ``txn`` as open."""
        # For an open transaction the answer is ``{"startPosition": ..., "aborted": false}``
        # (measured on 4.2.4).
        name = path_of(topic)
        path = f"/admin/v3/transactions/transactionInBufferStats/{name}/{txn.most}/{txn.least}"
        try:
            return self._read(path, responses.first_entry)
        except TopicNotFound:
            return None

    def is_open_in_buffer(self, topic: TopicName, txn: TxnId) -> bool:
        """Whether the transaction buffer of ``topic`` counts ``txn`` as open, with messages.

        If it does so after ``txn`` has ended, all readers of the topic are blocked there.
        """
        return self.first_entry_of(topic, txn) is not None

    def create_topic(self, topic: TopicName, partitions: int = 0) -> None:
        """See ``create_topic``."""
        create_topic(self._transport, topic, partitions)

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """Return the exact topics of ``topic``: its partitions, or itself."""
        if topic.partition_index is not None:
            return [topic]
        return topic.partitions(self._read(topic_path(topic, "partitions"), responses.partitions))

    def tenants(self) -> list[str]:
        """Return all tenants of the cluster; requires a superuser."""
        return sorted(self._read("/admin/v2/tenants", responses.names))

    def namespaces(self, tenant: str) -> list[str]:
        """Return the namespaces of a tenant, as ``tenant/namespace``."""
        path = f"/admin/v2/namespaces/{urllib.parse.quote(tenant, safe='')}"
        return sorted(self._read(path, responses.names))

    def topics(self, namespace: str) -> list[TopicName]:
        """Return the topics of ``tenant/namespace`` without system topics; a partitioned topic
        once."""
        path = f"/admin/v2/persistent/{namespace}"
        found = [
            *self._read(path, responses.names),
            *self._read(f"{path}/partitioned", responses.names),
        ]
        # Without system topics. A partitioned topic is listed by its name, and by its partitions.
        bases = {TopicName.parse(name).base for name in found if responses.is_topic(name)}
        return sorted(name for name in bases if not name.local.startswith("__"))

    def topic_stats(self, topic: TopicName, *, is_partitioned: bool) -> TopicStats:
        """Return a topic's size, clients and subscriptions."""
        kind = "partitioned-stats?perPartition=false" if is_partitioned else "stats"
        return self._read(topic_path(topic, kind), responses.topic_stats)

    def retention(self, topic: TopicName) -> Retention:
        """Return the retention in effect for a topic: its own, its namespace's, or the broker's."""
        return self._read(topic_path(topic, "retention?applied=true"), responses.retention)

    def message_ttl_s(self, topic: TopicName) -> int:
        """Return the message time to live in effect for a topic, in seconds; 0: no expiry."""
        return self._read(topic_path(topic, "messageTTL?applied=true"), responses.seconds)

    def delete_topic(self, topic: TopicName, *, is_partitioned: bool) -> None:
        """Delete a topic and its messages.

        Raises:
            BrokerNotReady: the topic is in use.
        """
        self._transport.ask("DELETE", topic_path(topic, "partitions" if is_partitioned else ""))

    def trim(self, topic: TopicName) -> None:
        """Delete what no subscription and no retention keeps of an exact topic: whole ledgers, but
        for the one that is written to.
        """
        self._transport.ask("POST", topic_path(topic, "trim"))

    def subscriptions(self, topic: TopicName) -> list[str]:
        """Return the names of a topic's durable subscriptions."""
        return self._read(topic_path(topic, "subscriptions"), responses.names)

    def subscription_stats(self, topic: TopicName) -> list[Subscription]:
        """Return the durable subscriptions of an exact topic, sorted by name."""
        return self._read(topic_path(topic, "stats"), responses.subscriptions)

    def acknowledged(self, topic: TopicName, name: str) -> MessageId | None:
        """Return up to where a subscription of an exact topic has acknowledged everything; None if
        it does not exist."""
        cursors = self._read(topic_path(topic, "internalStats"), responses.ledgers).cursors
        # In these statistics names are as Java's URLEncoder writes them.
        encoded = urllib.parse.quote_plus(name, safe="*").replace("~", "%7E")
        found = cursors.get(encoded) or cursors.get(name)
        return None if found is None else responses.position(found.markDeletePosition)

    def remove_subscription(self, topic: TopicName, name: str) -> None:
        """Remove a subscription of an exact topic. The broker may then delete messages that only
        this subscription retained.

        Raises:
            BrokerNotReady: the subscription has a consumer.
        """
        subscription = urllib.parse.quote(name, safe="")
        self._transport.ask("DELETE", topic_path(topic, f"subscription/{subscription}"))

    def backlog_quotas(self, topic: TopicName) -> dict[str, Any]:
        """Return the backlog quotas that are set on the topic itself, by kind."""
        return self._read(topic_path(topic, "backlogQuotaMap?applied=false"), responses.quotas)

    def rate(self, topic: TopicName, kind: str) -> dict[str, Any]:
        """Return the ``publishRate``, ``dispatchRate`` or ``subscriptionDispatchRate`` that is set
        on the topic itself."""
        return self._read(topic_path(topic, kind), responses.rate)

    def policies(self, namespace: str) -> dict[str, Any]:
        """Return the policies that are set on ``tenant/namespace``, without unset ones."""
        return self._read(f"/admin/v2/namespaces/{namespace}", responses.policies)

    def broker_settings(self) -> dict[str, str]:
        """Return the broker's configuration in effect; requires a superuser."""
        return self._read("/admin/v2/brokers/configuration/runtime", responses.settings)

    def version(self) -> str:
        """Return the broker's version."""
        text = self._transport.ask("GET", _VERSION).body.decode("utf-8", "replace")
        return printable(text.strip())[:_VERSION_CHARS]

    def clock_skew_s(self) -> float | None:
        """Return how many seconds the broker's clock is ahead of the local one, to within a second;
        None if the answer has no date."""
        before = time.time()
        date = self._transport.ask("GET", _VERSION).date
        here = (before + time.time()) / 2
        try:
            there = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return None
        # The header has whole seconds, rounded down: add half a second as the best estimate.
        return round(there + 0.5 - here, 1)

    def _read(self, path: str, shape: Callable[[Any], T]) -> T:
        answer = self._transport.ask_json("GET", path)
        try:
            return shape(answer)
        except ValueError as error:
            raise ProtocolError(
                f"The admin API's answer to {path} is not a valid one: {str(error)[:200]}."
            ) from None
