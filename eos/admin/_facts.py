"""What the admin API tells, with names and units."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from eos.ids import MessageId, TxnId


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


@dataclass(frozen=True)
class Ledger:
    """A part of a topic that is stored as one: its entries are numbered from 0, markers of
    transactions among them."""

    id: int
    entries: int
    bytes: int
    is_offloaded: bool


@dataclass(frozen=True)
class TopicStats:
    """What a topic holds, over all of its partitions.

    ``messages_in``: since they were loaded. ``readers``: those who read and keep nothing.
    ``made_at``: None where the broker does not say.
    """

    storage_bytes: int
    messages_in: int
    producers: int
    readers: int
    subscriptions: tuple[Subscription, ...]
    made_at: datetime | None = None


@dataclass(frozen=True)
class Retention:
    """How long what everybody has acknowledged is kept; -1: for ever, 0: not at all."""

    minutes: int
    megabytes: int


@dataclass(frozen=True)
class Subscription:
    """A durable subscription of a topic.

    ``backlog``: messages that it keeps from deletion, about. ``acknowledged_at``: None when nothing
    was, since the topic was loaded.
    """

    name: str
    backlog: int
    consumers: int
    acknowledged_at: datetime | None
