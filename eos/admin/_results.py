"""Results of requests to the admin API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from eos.ids import MessageId, TxnId


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction in its coordinator's view."""

    txn: TxnId
    status: str
    opened_at: datetime
    ttl_s: float
    topics: tuple[str, ...]  # exact names, that were registered for it and written to

    @property
    def expires_at(self) -> datetime:
        """When the broker aborts it."""
        return self.opened_at + timedelta(seconds=self.ttl_s)


@dataclass(frozen=True)
class CoordinatorState:
    """One transaction coordinator."""

    tc_id: int
    state: str
    low_water_mark: int  # -1: not set yet
    open_transactions: int


@dataclass(frozen=True)
class ReadPosition:
    """How far readers of one topic may read, and its last entry."""

    max_read: MessageId
    last_entry: MessageId
    first_ledger: int
    # Of the topic's transaction buffer, including ended ones that still block its readers.
    open_transactions: int
    is_ready: bool

    @property
    def blocks_readers(self) -> bool:
        """Whether there are entries that readers can't reach yet."""
        return self.max_read < self.last_entry


@dataclass(frozen=True)
class Ledger:
    """A segment of a topic's storage."""

    id: int
    entries: int  # numbered from 0, including transaction markers
    bytes: int


@dataclass(frozen=True)
class StoredLedger:
    """A segment of a topic's storage, by the topic's metadata; the last one, which is open, without
    sizes.

    ``upload``: a part of the names of its objects in tiered storage; None: it is not there, or not
    whole.
    """

    id: int
    entries: int
    bytes: int
    upload: str | None


@dataclass(frozen=True)
class TopicStats:
    """The size and clients of a topic, over all its partitions."""

    storage_bytes: int
    messages_in: int  # since the partitions were loaded
    producers: int
    readers: int  # without a durable subscription
    subscriptions: tuple[Subscription, ...]
    created_at: datetime | None = None  # older brokers do not say


@dataclass(frozen=True)
class Retention:
    """How long messages are kept once all subscriptions have acknowledged them."""

    # -1: forever, 0: not at all.
    minutes: int
    megabytes: int


@dataclass(frozen=True)
class Subscription:
    """A durable subscription of a topic."""

    name: str
    backlog: int  # unacknowledged messages, approximately
    consumers: int
    acknowledged_at: datetime | None  # None: not since the topic was loaded
