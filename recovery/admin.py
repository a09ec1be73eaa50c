"""What recovery asks of Pulsar's admin API, as facts with names.

Source: the paths of ``/admin/v2`` and ``/admin/v3`` as Pulsar 4.2.4 has them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from pydantic import TypeAdapter

from eos.client.admin import AdminClient, topic_path
from eos.errors import TopicNotFound, printable
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.address import Address
from eos.transport.security import Security
from recovery.admin_shapes import (
    COORDINATORS,
    NAMES,
    QUOTAS,
    SETTINGS,
    TRANSACTIONS,
    BufferShape,
    PartitionsShape,
    PoliciesShape,
    TopicShape,
    shape,
)

_VERSION_CHARS: Final = 100


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction as its coordinator sees it. ``topics``: exact names that it has registered
    and written to."""

    txn: TxnId
    status: str
    opened_at: datetime
    ttl_s: float
    topics: tuple[str, ...]

    @property
    def expires_at(self) -> datetime:
        """When the broker aborts it."""
        return self.opened_at + timedelta(seconds=self.ttl_s)


@dataclass(frozen=True)
class CoordinatorState:
    """One transaction coordinator; ``low_water_mark`` -1 means none yet."""

    tc_id: int
    state: str
    low_water_mark: int
    open_transactions: int


@dataclass(frozen=True)
class ReadPosition:
    """How far readers of one topic may read, and where its entries end.

    ``open_transactions`` counts those that the topic's transaction buffer takes for open, dead
    ones that pin it included.
    """

    max_read: MessageId
    last_entry: MessageId
    first_ledger: int
    open_transactions: int
    is_ready: bool

    @property
    def holds_back(self) -> bool:
        """Whether there are entries that readers can't get to."""
        return self.max_read < self.last_entry


class Admin:
    """The admin API at one URL; every method is one or two requests.

    Args:
        service: the addresses of the cluster's service URL, where they are known.

    Raises:
        ConfigurationError: the URL is none, or would show the token (see ``AdminClient``).
    """

    def __init__(
        self,
        admin_url: str,
        security: Security,
        *,
        timeout_s: float,
        service: Sequence[Address] = (),
    ) -> None:
        self._client = AdminClient(admin_url, security, timeout_s=timeout_s, service=service)
        self.url = admin_url

    def open_transactions(self) -> list[OpenTransaction]:
        """Every transaction that is open, or being ended, on any coordinator that is loaded."""
        path = "/admin/v3/transactions/slowTransactions/0"
        found = self._client.read(path, _transactions)
        return sorted(found, key=lambda open_: (open_.opened_at, open_.txn))

    def transaction(self, txn: TxnId) -> OpenTransaction | None:
        """A transaction that the coordinator still knows; None when it has forgotten it."""
        path = f"/admin/v3/transactions/transactionMetadata/{txn.most}/{txn.least}"
        try:
            return self._client.read(path, lambda row: _transactions({str(txn): row})[0])
        except TopicNotFound:
            return None

    def coordinators(self) -> list[CoordinatorState]:
        """All coordinators. Answers only after a client has connected to them (measured)."""
        path = "/admin/v3/transactions/coordinatorStats"
        answer = self._client.read(path, shape(COORDINATORS))
        return [
            CoordinatorState(
                tc_id=int(tc_id),
                state=str(row.state),
                low_water_mark=row.lowWaterMark,
                open_transactions=row.ongoingTxnSize,
            )
            for tc_id, row in sorted(answer.items(), key=lambda item: int(item[0]))
        ]

    def read_position(self, topic: TopicName) -> ReadPosition:
        """Where readers of an exact topic stand at most.

        Raises:
            TopicNotFound: there is no such topic.
        """
        name = topic_path(topic)
        path = f"/admin/v3/transactions/transactionBufferStats/{name}"
        buffer = self._client.read(path, shape(TypeAdapter(BufferShape)))
        path = f"/admin/v2/persistent/{name}/internalStats"
        stats = self._client.read(path, shape(TypeAdapter(TopicShape)))
        return ReadPosition(
            max_read=_position(buffer.maxReadPosition),
            last_entry=_position(stats.lastConfirmedEntry),
            first_ledger=min((ledger.ledgerId for ledger in stats.ledgers), default=0),
            open_transactions=buffer.ongoingTxnSize,
            is_ready=buffer.state in ("Ready", "NoSnapshot"),
        )

    def is_pinned_by(self, topic: TopicName, txn: TxnId) -> bool:
        """Whether the topic's transaction buffer takes ``txn`` for open, with messages."""
        return self._client.is_pinned_by(topic, txn)

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The exact topics of a name."""
        if topic.partition_index is not None:
            return [topic]
        path = f"/admin/v2/persistent/{topic_path(topic)}/partitions"
        answer = self._client.read(path, shape(TypeAdapter(PartitionsShape)))
        return topic.partitions(answer.partitions)

    def subscriptions(self, topic: TopicName) -> list[str]:
        """Names of a topic's durable subscriptions."""
        path = f"/admin/v2/persistent/{topic_path(topic)}/subscriptions"
        return self._client.read(path, shape(NAMES))

    def backlog_quotas(self, topic: TopicName) -> dict[str, Any]:
        """The backlog quotas that are set on a topic itself, by their kind."""
        path = f"/admin/v2/persistent/{topic_path(topic)}/backlogQuotaMap?applied=false"
        return {
            kind: quota.model_dump()
            for kind, quota in self._client.read(path, shape(QUOTAS)).items()
        }

    def policies(self, namespace: str) -> dict[str, Any]:
        """The policies that are set on ``tenant/namespace``; unset ones are missing."""
        path = f"/admin/v2/namespaces/{namespace}"
        answer = self._client.read(path, shape(TypeAdapter(PoliciesShape)))
        return answer.model_dump(exclude_none=True)

    def broker_settings(self) -> dict[str, str]:
        """The broker's configuration as it runs; needs a superuser."""
        answer = self._client.read("/admin/v2/brokers/configuration/runtime", shape(SETTINGS))
        return {name: printable(str(value)) for name, value in answer.items()}

    def version(self) -> str:
        """The broker's version."""
        return self._client.text("/admin/v2/brokers/version")[0][:_VERSION_CHARS]

    def clock_skew_s(self) -> float | None:
        """Seconds that the broker's clock is ahead of ours, to a second; None: it does not say."""
        before = time.time()
        _, date = self._client.text("/admin/v2/brokers/version")
        here = (before + time.time()) / 2
        try:
            there = parsedate_to_datetime(date or "").timestamp()
        except (ValueError, TypeError, OverflowError):
            return None
        # The header cuts off fractions: half a second is the best guess for them.
        return round(there + 0.5 - here, 1)


def _transactions(answer: Any) -> list[OpenTransaction]:
    rows = shape(TRANSACTIONS)(answer)
    return [
        OpenTransaction(
            txn=TxnId.parse(row.txnId or text),
            status=str(row.status),
            opened_at=datetime.fromtimestamp(row.openTimestamp / 1000, UTC),
            ttl_s=row.timeoutAt / 1000,
            topics=tuple(sorted(row.producedPartitions or {})),
        )
        for text, row in rows.items()
    ]


def _position(text: str) -> MessageId:
    ledger, entry = text.split(":")
    return MessageId(int(ledger), int(entry))
