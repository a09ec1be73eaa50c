"""Results of requests to the admin API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from eos.ids import MessageId, TxnId


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction in its coordinator's view. ``topics``: exact names that were registered for it
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
    """One transaction coordinator; a ``low_water_mark`` of -1 is not set yet."""

    tc_id: int
    state: str
    low_water_mark: int
    open_transactions: int


@dataclass(frozen=True)
class ReadPosition:
    """How far readers of one topic may read, and its last entry.

    ``open_transactions``: those that the topic's transaction buffer counts as open, including ended
    ones that still block its readers.
    """

    max_read: MessageId
    last_entry: MessageId
    first_ledger: int
    open_transactions: int
    is_ready: bool

    @property
    def blocks_readers(self) -> bool:
        """Whether there are entries that readers can't reach yet."""
        return self.max_read < self.last_entry


@dataclass(frozen=True)
class Ledger:
    """A segment of a topic's storage. Its entries are numbered from 0, including transaction
    markers."""

    id: int
    entries: int
    bytes: int
    is_offloaded: bool


@dataclass(frozen=True)
class TopicStats:
    """The size and clients of a topic, over all its partitions.

    ``messages_in``: since the partitions were loaded. ``readers``: those without a durable
    subscription. ``created_at``: None if the broker does not say.
    """

    storage_bytes: int
    messages_in: int
    producers: int
    readers: int
    subscriptions: tuple[Subscription, ...]
    created_at: datetime | None = None


@dataclass(frozen=True)
class Retention:
    """How long messages are kept once all subscriptions have acknowledged them; -1: forever, 0: not
    at all."""

    minutes: int
    megabytes: int


@dataclass(frozen=True)
class Subscription:
    """A durable subscription of a topic.

    ``backlog``: unacknowledged messages, approximately. ``acknowledged_at``: None if nothing was
    acknowledged since the topic was loaded.
    """

    name: str
    backlog: int
    consumers: int
    acknowledged_at: datetime | None
