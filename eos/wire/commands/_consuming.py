"""The commands of consumers. ``consumer_id`` names a consumer on one connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire.commands._common import MessageIdData
from eos.wire.messages import WireMessage, field


class SubscriptionType(IntEnum):
    """Who shares a subscription, and how its messages are spread over them."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """Where a subscription begins that has no position yet."""

    LATEST = 0
    EARLIEST = 1


class AckType(IntEnum):
    """What ACK acknowledges: the message, or all up to it."""

    INDIVIDUAL = 0
    CUMULATIVE = 1


class KeySharedMode(IntEnum):
    """Who says which keys a consumer gets: the broker, or the consumers."""

    AUTO_SPLIT = 0


class KeySharedMeta(WireMessage):
    """Without it the broker does not take a subscription of the type KEY_SHARED."""

    mode: int = field(1, "int32")


class Subscribe(WireMessage):
    topic: str = field(1, "string")
    subscription: str = field(2, "string")
    subscription_type: int = field(3, "int32")
    consumer_id: int = field(4, "uint64")
    request_id: int = field(5, "uint64")
    consumer_name: str | None = field(6, "string", default=None)
    priority_level: int | None = field(7, "int32", default=None)
    durable: bool | None = field(8, "bool", default=None)
    start_message_id: MessageIdData | None = field(9, MessageIdData, default=None)
    read_compacted: bool | None = field(11, "bool", default=None)
    initial_position: int | None = field(13, "int32", default=None)
    force_topic_creation: bool | None = field(15, "bool", default=None)
    key_shared_meta: KeySharedMeta | None = field(17, KeySharedMeta, default=None)
    consumer_epoch: int | None = field(19, "uint64", default=None)


class Deliver(WireMessage):
    """MESSAGE of the protocol, which comes with an entry. Named so since all these are messages."""

    consumer_id: int = field(1, "uint64")
    message_id: MessageIdData = field(2, MessageIdData)
    redelivery_count: int = field(3, "uint32", default=0)
    ack_set: tuple[int, ...] = field(4, "int64", default=())
    consumer_epoch: int | None = field(5, "uint64", default=None)

    @classmethod
    def entry_of(cls, parsed: Any) -> MessageId:
        """Which entry a parsed one comes with. Nothing else of it is looked at: a typed object
        costs more than all else that is done for a small entry.

        Raises:
            ProtocolError: it does not say.
        """
        place = parsed.message_id
        if not (place.HasField("ledger") and place.HasField("entry")):
            raise ProtocolError(f"{cls.__name__} without the id of an entry.")
        ledger, entry = place.ledger, place.entry
        if ledger >= 2**63 or entry >= 2**63:
            return MessageId(-1, -1)
        return MessageId(ledger, entry, place.partition, place.batch_index)


class Ack(WireMessage):
    consumer_id: int = field(1, "uint64")
    ack_type: int = field(2, "int32")
    message_ids: tuple[MessageIdData, ...] = field(3, MessageIdData, default=())
    txnid_least: int | None = field(6, "uint64", default=None)
    txnid_most: int | None = field(7, "uint64", default=None)
    request_id: int | None = field(8, "uint64", default=None)


class AckResponse(WireMessage):
    """The answer to an ACK with a request id."""

    consumer_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")
    request_id: int | None = field(6, "uint64", default=None)


class Flow(WireMessage):
    """The broker may deliver so many messages more. It counts messages, not entries."""

    consumer_id: int = field(1, "uint64")
    permits: int = field(2, "uint32")


class RedeliverUnacknowledged(WireMessage):
    """Deliver these again, or all that is not acknowledged. To consumers that have a subscription
    to themselves the broker always delivers all again, with the epoch in each delivery."""

    consumer_id: int = field(1, "uint64")
    message_ids: tuple[MessageIdData, ...] = field(2, MessageIdData, default=())
    consumer_epoch: int | None = field(3, "uint64", default=None)


class CloseConsumer(WireMessage):
    """Travels both ways: the broker sends it when a topic is unloaded or deleted."""

    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class ReachedEndOfTopic(WireMessage):
    """The topic was terminated, and all of it has been delivered."""

    consumer_id: int = field(1, "uint64")


class GetLastMessageId(WireMessage):
    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class GetLastMessageIdResponse(WireMessage):
    """The last entry that will be delivered: no marker, below every open transaction.

    ``consumer_mark_delete_position`` is before the next entry that this consumer may get.
    """

    last_message_id: MessageIdData = field(1, MessageIdData)
    request_id: int = field(2, "uint64")
    consumer_mark_delete_position: MessageIdData | None = field(3, MessageIdData, default=None)


class Seek(WireMessage):
    """Move a subscription: to an entry, or to a publish time. The broker answers SUCCESS and closes
    the consumer; the next one of the subscription begins there."""

    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")
    message_id: MessageIdData | None = field(3, MessageIdData, default=None)
    message_publish_time: int | None = field(4, "uint64", default=None)
