"""What consumers and readers send, and what a consumer has received."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

from eos.errors import ConfigurationError, ProtocolError, Unauthorized
from eos.ids import EntryPlace, MessageId
from eos.transport.address import PREFIX_HINT, ClusterRules
from eos.transport.connection import Connection
from eos.transport.listeners import ConsumerListener
from eos.wire import commands
from eos.wire.batch import Entry, object_bytes
from eos.wire.commands import InitialPosition, SubscriptionType
from eos.wire.frames import Delivery

MOST_PERMITS: Final = 2**31 - 1  # of one FLOW: an entry may claim any number of messages


@contextmanager
def prefix_hint() -> Iterator[None]:
    """Around SUBSCRIBE: add a hint at the policy for subscription names to ``Unauthorized``."""
    try:
        yield
    except Unauthorized as error:
        error.hint = PREFIX_HINT
        raise


def new_subscription(rules: ClusterRules) -> str:
    """Return a unique subscription name for a reader."""
    return rules.subscription(f"eos-reader-{uuid.uuid4().hex}")


def subscribing(
    topic: str,
    subscription: str,
    consumer_id: int,
    *,
    kind: commands.SubscriptionType = commands.SubscriptionType.EXCLUSIVE,
    durable: bool = False,
    start: MessageId | None = None,
    at_end: bool = False,
    read_compacted: bool | None = None,
    epoch: int | None = None,
    priority_level: int | None = None,
    replicate_state: bool | None = None,
) -> Callable[[int], commands.Subscribe]:
    """Return a function that makes a SUBSCRIBE from a request id.

    It begins at ``start``, else ``at_end`` of the topic, else at its first entry. ``epoch``: the
    consumer's, see ``consumer_epoch``.
    """
    positions = commands.InitialPosition
    is_keyed = kind is commands.SubscriptionType.KEY_SHARED
    keyed = commands.KeySharedMeta(mode=commands.KeySharedMode.AUTO_SPLIT) if is_keyed else None
    return lambda request_id: commands.Subscribe(
        topic=topic,
        subscription=subscription,
        subscription_type=kind,
        consumer_id=consumer_id,
        request_id=request_id,
        durable=durable,
        start_message_id=None if start is None else commands.MessageIdData.of_entry(start),
        read_compacted=read_compacted,
        initial_position=positions.LATEST if at_end else positions.EARLIEST,
        force_topic_creation=False,
        key_shared_meta=keyed,
        consumer_epoch=epoch,
        priority_level=priority_level,
        replicate_subscription_state=replicate_state,
    )


def subscribe(
    connection: Connection,
    listener: ConsumerListener,
    make: Callable[[int], commands.Subscribe],
    *,
    timeout_s: float,
    doing: str,
) -> None:
    """Send SUBSCRIBE for ``listener``; on an error nothing stays open.

    Raises:
        EosError: the broker refuses, or does not answer.
    """
    consumer_id = make(0).consumer_id
    connection.listeners.add_consumer(consumer_id, listener)
    try:
        with prefix_hint():
            connection.request(make, commands.Success, timeout_s=timeout_s, doing=doing)
    except BaseException:
        unsubscribe(connection, consumer_id)  # the broker may have opened it
        raise


def unsubscribe(connection: Connection, consumer_id: int) -> None:
    """Close a consumer, without waiting for the broker's answer."""
    connection.listeners.remove_consumer(consumer_id)
    connection.notify(closing(consumer_id))


def closing(consumer_id: int) -> Callable[[int], commands.CloseConsumer]:
    """Return a function that makes CLOSE_CONSUMER from a request id."""
    return lambda request_id: commands.CloseConsumer(consumer_id=consumer_id, request_id=request_id)


def last_id_of(answer: commands.GetLastMessageIdResponse) -> MessageId | None:
    """Return the last readable entry; None if there is none."""
    last = answer.last_message_id.message_id()
    return None if last.ledger < 0 else last._replace(batch_index=-1)


# The maximum number of messages that the broker may have in flight.
PERMITS: Final = 1000
# The approximate limit of queued bytes, once the size of entries is known.
QUEUE_BYTES: Final = 32 * 1024 * 1024
# Above this limit the consumer subscribes again, with fewer permits.
QUEUE_BYTES_MAX: Final = 4 * QUEUE_BYTES
_FIRST_PERMITS: Final = 8
_MAX_GRANT: Final = 2**31 - 1


class ReceiveQueue:
    """The received entries of one SUBSCRIBE, with its flow control; under the consumer's lock."""

    # The broker counts permits in messages, but sends whole entries, of any number of messages,
    # while it has a permit. So there are never more entries in flight than permits, which can be
    # checked. It does not limit bytes: permits are few at first, and fewer for large entries.

    def __init__(self, entry_bytes: int = 0) -> None:
        self._queue: deque[Delivery] = deque()
        self._bytes = 0
        self._stale = 0  # entries at the queue's front that will be delivered again
        self._permits = _FIRST_PERMITS
        self._granted = 0
        # Approximately, of recent entries; the next SUBSCRIBE begins with it.
        self.entry_bytes_max = entry_bytes

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def is_overfull(self) -> bool:
        """Whether far more bytes are queued than expected."""
        # Whatever the broker sends beyond the permits must not pile up without limit.
        return self._bytes > QUEUE_BYTES_MAX and len(self._queue) > 1

    @property
    def is_beyond_permits(self) -> bool:
        """Whether the broker has sent more than it may."""
        return len(self._queue) > PERMITS

    def put(self, delivery: Delivery, *, is_old: bool, is_ordered: bool) -> None:
        """Queue a delivered entry.

        Args:
            is_old: it is of a consumer epoch before the last redelivery, and will come again.
            is_ordered: positions increase; a lower one means that the broker has started again.
        """
        queue = self._queue
        if is_ordered and queue and place_of(delivery) <= place_of(queue[-1]):
            self._stale = len(queue)  # the broker has started again, after an aborted transaction
        queue.append(delivery)
        self._bytes += len(delivery.body)
        self._stale = len(queue) if is_old else self._stale
        self.entry_bytes_max = max(len(delivery.body), self.entry_bytes_max * 7 // 8)

    def take(self) -> tuple[Delivery, bool]:
        """Remove the first entry; return it, and whether it must be dropped as it comes again."""
        delivery = self._queue.popleft()
        self._bytes -= len(delivery.body)
        is_stale, self._stale = self._stale > 0, max(0, self._stale - 1)
        return delivery, is_stale

    def mark_stale(self) -> None:
        """After a redelivery request: all queued entries must be dropped."""
        self._stale = len(self._queue)

    def spend(self, num_messages: int) -> None:
        """Count messages that are no longer in flight."""
        self._granted -= num_messages

    def grant(self) -> int:
        """Return the permits to grant to the broker now; 0: none yet."""
        # Large entries are permitted fewer at a time: the queue is limited in bytes.
        permits = min(self._permits, max(1, QUEUE_BYTES // max(1, self.entry_bytes_max)))
        if self._granted > permits // 2:
            return 0
        granted = min(permits - self._granted, _MAX_GRANT)
        self._granted += granted
        self._permits = min(PERMITS, 2 * self._permits)
        return granted


def place_of(delivery: Delivery) -> EntryPlace:
    """Return the position of the entry."""
    return delivery.command.message_id.message_id().place


def wanted_of(entry: Entry, delivery: Delivery) -> Collection[int]:
    """Return the indexes of the messages of ``entry`` that are not acknowledged."""
    # Other consumers may have acknowledged some by batch index
    # (``acknowledgmentAtBatchIndexLevelEnabled``). The broker does not count these as permits
    # (``Consumer.sendMessages``).
    words = delivery.command.ack_set
    if not words:
        return range(entry.num_messages)
    count = min(entry.num_messages, 64 * len(words))
    return {index for index in range(count) if words[index // 64] >> (index % 64) & 1}


@dataclass(frozen=True)
class ReceivedMessage:
    """A message from a consumer.

    Attributes:
        topic: the exact name, with the partition.
        id: identifies it for the acknowledgement; includes its index in a batch.
        value: None for a tombstone.
        key: bytes if it was encoded in base64.
        event_time_ms: None if its producer set none.
        redelivery_count: how often the broker has delivered it before; always 0 if only one
            consumer receives messages, as the broker does not count then.
        encryption_context: of an entry that could not be decrypted, see
            ``eos.wire.encryption.Decryptor``; ``value`` is the whole entry as it is stored then.
    """

    topic: str
    id: MessageId
    value: bytes | None
    key: str | bytes | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    publish_time_ms: int
    redelivery_count: int
    encryption_context: str | None = None

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        return object_bytes(self.value, self.key, self.properties.items())


def messages_of(
    topic: str,
    entry: Entry,
    delivery: Delivery,
    wanted: Collection[int],
    context: str | None = None,
) -> list[ReceivedMessage]:
    """Return the messages of ``entry``, which came with ``delivery``, at the indexes ``wanted``.

    Raises:
        ProtocolError: it is malformed, or has too many messages for objects.
    """
    is_batch = entry.metadata.num_messages_in_batch is not None
    try:
        return [
            ReceivedMessage(
                topic=topic,
                id=entry.id._replace(batch_index=index if is_batch else -1),
                value=message.value,
                key=message.key,
                properties=dict(message.properties),
                event_time_ms=message.event_time_ms,
                publish_time_ms=entry.metadata.publish_time,
                redelivery_count=delivery.command.redelivery_count,
                encryption_context=context,
            )
            for index, message in enumerate(entry.bounded_messages())
            if index in wanted
        ]
    except ProtocolError as error:
        # The traceback would keep the decoded entry alive, with asyncio until the next garbage
        # collection (120 MiB each, measured).
        raise error.with_traceback(None) from None


TypeName = Literal["exclusive", "shared", "failover", "key_shared"]
StartName = Literal["earliest", "latest"]

_TYPES: Final = {kind.name.lower(): kind for kind in SubscriptionType}
_STARTS: Final = {position.name.lower(): position for position in InitialPosition}
_ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
# Consumers keep so long what was not acknowledged; a retry topic is for later.
_LONGEST_DELAY_S: Final = 86_400.0


class ConsumerArguments(TypedDict, total=False):
    """The arguments of ``ConsumerOptions``."""

    type: TypeName
    start: StartName
    priority_level: int
    replicate_subscription_state: bool
    nack_delay_s: float
    nack_max_delay_s: float
    max_redeliveries: int | None
    dead_letter_topic: str | None


@dataclass(frozen=True)
class ConsumerOptions:
    """The options of a consumer.

    Attributes:
        type: how consumers share the subscription.
        start: where a new subscription begins.
        priority_level: of a shared or failover consumer; 0 gets messages first.
        replicate_subscription_state: keep the position in the namespace's other clusters, too.
        nack_delay_s, nack_max_delay_s: see ``Consumer.negative_acknowledge``.
        max_redeliveries: what came again more often goes to ``dead_letter_topic``
            (TOPIC-SUBSCRIPTION-DLQ), and is acknowledged in the same transaction.

    Raises:
        ConfigurationError: an option is unknown or out of range.
    """

    type: TypeName = "exclusive"
    start: StartName = "earliest"
    priority_level: int = 0
    replicate_subscription_state: bool = False
    nack_delay_s: float = 60.0
    nack_max_delay_s: float = 600.0
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if self.type not in _TYPES or self.start not in _STARTS:
            raise ConfigurationError(
                f"type={self.type!r}, start={self.start!r}: choose a type of {', '.join(_TYPES)} "
                f"and a start of {', '.join(_STARTS)}."
            )
        if not 0 <= self.priority_level < 2**31:
            raise ConfigurationError(
                f"priority_level must be 0 (first) or more, not {self.priority_level!r}."
            )
        if not 0 < self.nack_delay_s <= self.nack_max_delay_s <= _LONGEST_DELAY_S:
            raise ConfigurationError(
                "nack_delay_s must be above zero, and at most nack_max_delay_s, which is at most "
                f"{_LONGEST_DELAY_S:.0f}."
            )
        if self.max_redeliveries is not None:
            if self.is_ordered:
                raise ConfigurationError(
                    f"max_redeliveries: brokers do not count redeliveries of type={self.type!r}.",
                    hint="Choose the type shared or key_shared.",
                )
            if self.max_redeliveries < 0:
                raise ConfigurationError(
                    f"max_redeliveries must be 0 or more, not {self.max_redeliveries!r}."
                )
        elif self.dead_letter_topic is not None:
            raise ConfigurationError("dead_letter_topic needs max_redeliveries.")

    @property
    def kind(self) -> SubscriptionType:
        """The type on the wire."""
        return _TYPES[self.type]

    @property
    def is_ordered(self) -> bool:
        """Whether one consumer gets all messages, in their order."""
        return self.kind in _ORDERED

    @property
    def is_exclusive(self) -> bool:
        """Whether the subscription has no other consumer."""
        return self.kind is SubscriptionType.EXCLUSIVE

    @property
    def is_at_end(self) -> bool:
        """Whether a new subscription begins after the last message."""
        return _STARTS[self.start] is InitialPosition.LATEST

    def nack_delay_of_s(self, redelivery_count: int) -> float:
        """How long a message stays away that was delivered so often before: twice as long each
        time."""
        return float(min(self.nack_max_delay_s, self.nack_delay_s * 2 ** min(redelivery_count, 60)))
