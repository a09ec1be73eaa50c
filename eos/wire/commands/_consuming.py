"""The commands of consumers. ``consumer_id`` names a consumer on one connection."""

from __future__ import annotations

from enum import IntEnum

from eos.wire.commands._parts import MessageIdData
from eos.wire.messages import WireMessage, field


class SubscriptionType(IntEnum):
    """Who shares a subscription. We speak one of them: nobody does."""

    EXCLUSIVE = 0


class InitialPosition(IntEnum):
    """Where a subscription begins that has no position yet."""

    LATEST = 0
    EARLIEST = 1


class AckType(IntEnum):
    """What ACK acknowledges: the message, or all up to it."""

    INDIVIDUAL = 0
    CUMULATIVE = 1


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


class Deliver(WireMessage):
    """MESSAGE of the protocol, which comes with an entry. Named so since all these are messages."""

    consumer_id: int = field(1, "uint64")
    message_id: MessageIdData = field(2, MessageIdData)
    redelivery_count: int = field(3, "uint32", default=0)


class Ack(WireMessage):
    consumer_id: int = field(1, "uint64")
    ack_type: int = field(2, "int32")
    message_ids: tuple[MessageIdData, ...] = field(3, MessageIdData, default=())
    request_id: int | None = field(8, "uint64", default=None)


class AckResponse(WireMessage):
    """The answer to an ACK with a request id."""

    consumer_id: int = field(1, "uint64")
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")
    request_id: int | None = field(6, "uint64", default=None)


class Flow(WireMessage):
    """The broker may deliver so many messages more. It counts messages, not entries."""

    consumer_id: int = field(1, "uint64")
    permits: int = field(2, "uint32")


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
    """The last entry that will be delivered: no marker, below every open transaction."""

    last_message_id: MessageIdData = field(1, MessageIdData)
    request_id: int = field(2, "uint64")
