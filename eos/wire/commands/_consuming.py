"""The commands of consumers. A ``consumer_id`` is unique on its connection."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire.commands._common import MessageIdData
from eos.wire.messages import WireMessage, field


class SubscriptionType(IntEnum):
    """How the messages of a subscription are distributed to its consumers."""

    EXCLUSIVE = 0
    SHARED = 1
    FAILOVER = 2
    KEY_SHARED = 3


class InitialPosition(IntEnum):
    """The start of a new subscription."""

    LATEST = 0
    EARLIEST = 1


class AckType(IntEnum):
    """Whether ACK acknowledges one message, or all up to it."""

    INDIVIDUAL = 0
    CUMULATIVE = 1


class KeySharedMode(IntEnum):
    """Whether the broker or the consumers choose the keys of a consumer."""

    AUTO_SPLIT = 0


class KeySharedMeta(WireMessage):
    # The broker requires it for a subscription of type KEY_SHARED.
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
    replicate_subscription_state: bool | None = field(14, "bool", default=None)
    force_topic_creation: bool | None = field(15, "bool", default=None)
    key_shared_meta: KeySharedMeta | None = field(17, KeySharedMeta, default=None)
    consumer_epoch: int | None = field(19, "uint64", default=None)


class Deliver(WireMessage):
    """The protocol's MESSAGE, which delivers an entry."""

    consumer_id: int = field(1, "uint64")
    message_id: MessageIdData = field(2, MessageIdData)
    redelivery_count: int = field(3, "uint32", default=0)
    ack_set: tuple[int, ...] = field(4, "int64", default=())
    consumer_epoch: int | None = field(5, "uint64", default=None)

    @classmethod
    def entry_of(cls, parsed: Any) -> MessageId:
        """Return the id of the entry of a parsed MESSAGE.

        Raises:
            ProtocolError: the id is missing.
        """
        # A typed object of the command would cost more than all other work for a small entry.
        place = parsed.message_id
        if not (place.HasField("ledger") and place.HasField("entry")):
            raise ProtocolError(f"{cls.__name__} has no entry id.")
        ledger, entry = place.ledger, place.entry
        # -1, which is no entry, is 2^64 - 1 on the wire.
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
    consumer_id: int = field(1, "uint64")
    # Added to earlier permits. Permits count messages, not entries.
    permits: int = field(2, "uint32")


class RedeliverUnacknowledged(WireMessage):
    consumer_id: int = field(1, "uint64")
    # None: all unacknowledged messages. For an exclusive subscription it is always all of them,
    # with the epoch in each delivery.
    message_ids: tuple[MessageIdData, ...] = field(2, MessageIdData, default=())
    consumer_epoch: int | None = field(3, "uint64", default=None)


class CloseConsumer(WireMessage):
    # Sent by both sides: the broker sends it when a topic is unloaded or deleted.
    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class ReachedEndOfTopic(WireMessage):
    """The topic was terminated, and all its messages have been delivered."""

    consumer_id: int = field(1, "uint64")


class GetLastMessageId(WireMessage):
    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class GetLastMessageIdResponse(WireMessage):
    # The last entry that will be delivered: not a marker, and before all open transactions.
    last_message_id: MessageIdData = field(1, MessageIdData)
    request_id: int = field(2, "uint64")
    # Before the next entry that this consumer may get.
    consumer_mark_delete_position: MessageIdData | None = field(3, MessageIdData, default=None)


class Seek(WireMessage):
    # The broker answers SUCCESS and closes the consumer; the subscription's next one starts there.
    consumer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")
    message_id: MessageIdData | None = field(3, MessageIdData, default=None)
    message_publish_time: int | None = field(4, "uint64", default=None)
