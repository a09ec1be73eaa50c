"""The commands of producers, and those to a transaction coordinator. A ``producer_id`` is unique on
its connection."""

from __future__ import annotations

from enum import IntEnum

from eos.wire.commands._common import MessageIdData, SchemaInfo
from eos.wire.messages import WireMessage, field


class ProducerAccessMode(IntEnum):
    """Whether a topic may have other producers."""

    SHARED = 0
    EXCLUSIVE = 1
    EXCLUSIVE_WITH_FENCING = 3  # closes all others


class Producer(WireMessage):
    topic: str = field(1, "string")
    producer_id: int = field(2, "uint64")
    request_id: int = field(3, "uint64")
    producer_name: str | None = field(4, "string", default=None)
    encrypted: bool | None = field(5, "bool", default=None)
    schema: SchemaInfo | None = field(7, SchemaInfo, default=None)
    epoch: int | None = field(8, "uint64", default=None)
    user_provided_producer_name: bool | None = field(9, "bool", default=None)
    access_mode: int | None = field(10, "int32", default=None)
    topic_epoch: int | None = field(11, "uint64", default=None)
    txn_enabled: bool | None = field(12, "bool", default=None)


class ProducerSuccess(WireMessage):
    request_id: int = field(1, "uint64")
    producer_name: str = field(2, "string")
    last_sequence_id: int = field(3, "int64", default=-1)
    schema_version: bytes | None = field(4, "bytes", default=None)
    topic_epoch: int | None = field(5, "uint64", default=None)
    producer_ready: bool = field(6, "bool", default=True)


class Send(WireMessage):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    num_messages: int | None = field(3, "int32", default=None)
    txnid_least: int | None = field(4, "uint64", default=None)
    txnid_most: int | None = field(5, "uint64", default=None)


class SendReceipt(WireMessage):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    message_id: MessageIdData | None = field(3, MessageIdData, default=None)


class SendError(WireMessage):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    error: int = field(3, "int32")
    message: str = field(4, "string", default="")


class CloseProducer(WireMessage):
    # Sent by both sides: the broker sends it when a topic is unloaded or deleted. "The TCP
    # connection is not affected."
    producer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class TxnAction(IntEnum):
    """The action of END_TXN."""

    COMMIT = 0
    ABORT = 1


class NewTxn(WireMessage):
    request_id: int = field(1, "uint64")
    # The protocol's ``txn_ttl_seconds``, which is in milliseconds.
    ttl_ms: int | None = field(2, "uint64", default=None)
    tc_id: int | None = field(3, "uint64", default=None)


class NewTxnResponse(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class _TxnAnswer(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class AddPartitionToTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    partitions: tuple[str, ...] = field(4, "string", default=())


class AddPartitionToTxnResponse(_TxnAnswer):
    """The answer to ADD_PARTITION_TO_TXN."""


class Subscription(WireMessage):
    topic: str = field(1, "string")  # exact: not a partitioned topic
    subscription: str = field(2, "string")


class AddSubscriptionToTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    subscriptions: tuple[Subscription, ...] = field(4, Subscription, default=())


class AddSubscriptionToTxnResponse(_TxnAnswer):
    """The answer to ADD_SUBSCRIPTION_TO_TXN."""


class EndTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    action: int | None = field(4, "int32", default=None)


class EndTxnResponse(_TxnAnswer):
    """The answer to END_TXN."""


class TcClientConnectRequest(WireMessage):
    request_id: int = field(1, "uint64")
    tc_id: int = field(2, "uint64")


class TcClientConnectResponse(WireMessage):
    request_id: int = field(1, "uint64")
    error: int | None = field(2, "int32", default=None)
    message: str = field(3, "string", default="")
