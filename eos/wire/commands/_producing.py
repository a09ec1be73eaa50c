"""The commands of producers. A ``producer_id`` is unique on its connection."""

from __future__ import annotations

from eos.wire.commands._common import MessageIdData, SchemaInfo
from eos.wire.messages import WireMessage, field


class Producer(WireMessage):
    topic: str = field(1, "string")
    producer_id: int = field(2, "uint64")
    request_id: int = field(3, "uint64")
    producer_name: str | None = field(4, "string", default=None)
    schema: SchemaInfo | None = field(7, SchemaInfo, default=None)
    epoch: int | None = field(8, "uint64", default=None)
    user_provided_producer_name: bool | None = field(9, "bool", default=None)
    txn_enabled: bool | None = field(12, "bool", default=None)


class ProducerSuccess(WireMessage):
    request_id: int = field(1, "uint64")
    producer_name: str = field(2, "string")
    last_sequence_id: int = field(3, "int64", default=-1)
    schema_version: bytes | None = field(4, "bytes", default=None)
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
    """Sent by both sides: the broker sends it when a topic is unloaded or deleted. "The TCP
    connection is not affected." """

    producer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")
