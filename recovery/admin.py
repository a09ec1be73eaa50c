"""What recovery asks of Pulsar's admin API, as facts with names.

Sources: the paths and fields of ``/admin/v2`` and ``/admin/v3`` as Pulsar 4.2.4 answers them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from eos.client.admin import AdminClient, topic_path
from eos.errors import ProtocolError, TopicNotFound
from eos.ids import MessageId, TopicName, TxnId
from eos.transport.security import Security


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
    """The admin API at one URL; every method is one or two requests."""

    def __init__(self, admin_url: str, security: Security, *, timeout_s: float) -> None:
        self._client = AdminClient(admin_url, security, timeout_s=timeout_s)
        self.url = admin_url

    def open_transactions(self) -> list[OpenTransaction]:
        """Every transaction that is open, or being ended, on any coordinator that is loaded."""
        answer = self._client.get("/admin/v3/transactions/slowTransactions/0")
        found = [_transaction(text, row) for text, row in _object(answer).items()]
        return sorted(found, key=lambda open_: (open_.opened_at, open_.txn))

    def transaction(self, txn: TxnId) -> OpenTransaction | None:
        """A transaction that the coordinator still knows; None when it has forgotten it."""
        path = f"/admin/v3/transactions/transactionMetadata/{txn.most}/{txn.least}"
        try:
            return _transaction(str(txn), _object(self._client.get(path)))
        except TopicNotFound:
            return None

    def coordinators(self) -> list[CoordinatorState]:
        """All coordinators. Answers only after a client has connected to them (measured)."""
        answer = _object(self._client.get("/admin/v3/transactions/coordinatorStats"))
        return [
            CoordinatorState(
                tc_id=int(tc_id),
                state=str(row.get("state")),
                low_water_mark=int(row.get("lowWaterMark", -1)),
                open_transactions=int(row.get("ongoingTxnSize", 0)),
            )
            for tc_id, row in sorted(answer.items(), key=lambda item: int(item[0]))
        ]

    def read_position(self, topic: TopicName) -> ReadPosition:
        """Where readers of an exact topic stand at most.

        Raises:
            TopicNotFound: there is no such topic.
        """
        name = topic_path(topic)
        buffer = _object(self._client.get(f"/admin/v3/transactions/transactionBufferStats/{name}"))
        stats = _object(self._client.get(f"/admin/v2/persistent/{name}/internalStats"))
        ledgers = [int(ledger["ledgerId"]) for ledger in stats.get("ledgers", [])]
        return ReadPosition(
            max_read=_position(buffer.get("maxReadPosition")),
            last_entry=_position(stats.get("lastConfirmedEntry")),
            first_ledger=min(ledgers, default=0),
            open_transactions=int(buffer.get("ongoingTxnSize", 0)),
            is_ready=buffer.get("state") in ("Ready", "NoSnapshot"),
        )

    def is_pinned_by(self, topic: TopicName, txn: TxnId) -> bool:
        """Whether the topic's transaction buffer takes ``txn`` for open, with messages."""
        return self._client.is_pinned_by(topic, txn)

    def partitions(self, topic: TopicName) -> list[TopicName]:
        """The exact topics of a name."""
        if topic.partition_index is not None:
            return [topic]
        path = f"/admin/v2/persistent/{topic_path(topic)}/partitions"
        return list(topic.partitions(int(_object(self._client.get(path)).get("partitions", 0))))

    def subscriptions(self, topic: TopicName) -> list[str]:
        """Names of a topic's durable subscriptions."""
        path = f"/admin/v2/persistent/{topic_path(topic)}/subscriptions"
        return [str(name) for name in self._client.get(path)]

    def policies(self, namespace: str) -> dict[str, Any]:
        """The policies that are set on ``tenant/namespace``; unset ones are missing."""
        return _object(self._client.get(f"/admin/v2/namespaces/{namespace}"))

    def broker_settings(self) -> dict[str, str]:
        """The broker's configuration as it runs; needs a superuser."""
        answer = _object(self._client.get("/admin/v2/brokers/configuration/runtime"))
        return {name: str(value) for name, value in answer.items()}

    def version(self) -> str:
        """The broker's version."""
        return self._client.text("/admin/v2/brokers/version")[0]

    def clock_skew_s(self) -> float | None:
        """Seconds that the broker's clock is ahead of ours, to a second; None: it does not say."""
        before = time.time()
        _, date = self._client.text("/admin/v2/brokers/version")
        if date is None:
            return None
        here = (before + time.time()) / 2
        # The header cuts off fractions: half a second is the best guess for them.
        return round(parsedate_to_datetime(date).timestamp() + 0.5 - here, 1)


def _transaction(text: str, row: Any) -> OpenTransaction:
    row = _object(row)
    txn = TxnId.parse(str(row.get("txnId") or text))
    return OpenTransaction(
        txn=txn,
        status=str(row.get("status")),
        opened_at=datetime.fromtimestamp(int(row.get("openTimestamp", 0)) / 1000, UTC),
        ttl_s=int(row.get("timeoutAt", 0)) / 1000,
        topics=tuple(sorted(_object(row.get("producedPartitions") or {}))),
    )


def _position(text: Any) -> MessageId:
    match = re.fullmatch(r"(-?\d+):(-?\d+)", str(text))
    if match is None:
        raise ProtocolError(f"The admin API gave {text!r} for a position.")
    return MessageId(int(match[1]), int(match[2]))


def _object(answer: Any) -> dict[str, Any]:
    if not isinstance(answer, dict):
        raise ProtocolError("The admin API's answer is no object.")
    return answer
