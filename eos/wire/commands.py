"""The commands of Pulsar's binary protocol that we speak, as typed objects.

Numbers from ``pulsar-common/src/main/proto/PulsarApi.proto`` of apache/pulsar. In a BaseCommand
each command sits in the field whose number equals its type; ``COMMANDS`` is that table. Ids:
``request_id`` pairs a request with its answer, ``producer_id`` names a producer on one connection.
Names of fields are ours where Pulsar's would mislead: ``ttl_ms`` is called seconds there and holds
milliseconds.
"""

from __future__ import annotations

from dataclasses import fields
from enum import IntEnum
from typing import Final

from eos.wire.messages import Message, field

PROTOCOL_VERSION: Final = 21


class LookupType(IntEnum):
    """What the answer to LOOKUP asks the client to do."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


class TxnAction(IntEnum):
    """What END_TXN does."""

    COMMIT = 0
    ABORT = 1


class KeyValue(Message):
    key: str = field(1, "string")
    value: str = field(2, "string")


class MessageIdData(Message):
    ledger: int = field(1, "uint64")
    entry: int = field(2, "uint64")
    partition: int = field(3, "int32", default=-1)
    batch_index: int = field(4, "int32", default=-1)
    batch_size: int = field(6, "int32", default=0)


class MessageMetadata(Message):
    """Goes with each entry; both halves of the transaction's id stand here *and* in SEND."""

    producer_name: str = field(1, "string")
    sequence_id: int = field(2, "uint64")
    publish_time: int = field(3, "uint64")
    properties: tuple[KeyValue, ...] = field(4, KeyValue, default=())
    partition_key: str | None = field(6, "string", default=None)
    compression: int | None = field(8, "int32", default=None)
    uncompressed_size: int | None = field(9, "uint32", default=None)
    num_messages_in_batch: int | None = field(11, "int32", default=None)
    event_time: int | None = field(12, "uint64", default=None)
    txnid_least: int | None = field(22, "uint64", default=None)
    txnid_most: int | None = field(23, "uint64", default=None)


class FeatureFlags(Message):
    supports_auth_refresh: bool | None = field(1, "bool", default=None)
    supports_partial_producer: bool | None = field(3, "bool", default=None)
    supports_metadata_without_auto_creation: bool | None = field(5, "bool", default=None)


class Connect(Message):
    client_version: str = field(1, "string")
    auth_data: bytes | None = field(3, "bytes", default=None)
    protocol_version: int | None = field(4, "int32", default=None)
    auth_method_name: str | None = field(5, "string", default=None)
    proxy_to_broker_url: str | None = field(6, "string", default=None)
    feature_flags: FeatureFlags | None = field(10, FeatureFlags, default=None)

    def __repr__(self) -> str:
        """Without ``auth_data``: it is a secret."""
        return f"Connect(auth_method_name={self.auth_method_name!r})"


class Connected(Message):
    server_version: str = field(1, "string")
    protocol_version: int = field(2, "int32", default=0)
    max_message_size: int = field(3, "int32", default=5 * 1024 * 1024)


class Producer(Message):
    topic: str = field(1, "string")
    producer_id: int = field(2, "uint64")
    request_id: int = field(3, "uint64")
    producer_name: str | None = field(4, "string", default=None)
    epoch: int | None = field(8, "uint64", default=None)
    user_provided_producer_name: bool | None = field(9, "bool", default=None)
    txn_enabled: bool | None = field(12, "bool", default=None)


class ProducerSuccess(Message):
    request_id: int = field(1, "uint64")
    producer_name: str = field(2, "string")
    last_sequence_id: int = field(3, "int64", default=-1)
    schema_version: bytes | None = field(4, "bytes", default=None)
    producer_ready: bool = field(6, "bool", default=True)


class Send(Message):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    num_messages: int | None = field(3, "int32", default=None)
    txnid_least: int | None = field(4, "uint64", default=None)
    txnid_most: int | None = field(5, "uint64", default=None)


class SendReceipt(Message):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    message_id: MessageIdData | None = field(3, MessageIdData, default=None)


class SendError(Message):
    producer_id: int = field(1, "uint64")
    sequence_id: int = field(2, "uint64")
    error: int = field(3, "int32")
    message: str = field(4, "string", default="")


class Success(Message):
    request_id: int = field(1, "uint64")


class Error(Message):
    request_id: int = field(1, "uint64")
    error: int = field(2, "int32")
    message: str = field(3, "string", default="")


class CloseProducer(Message):
    """Travels both ways: the broker sends it when a topic is unloaded or deleted."""

    producer_id: int = field(1, "uint64")
    request_id: int = field(2, "uint64")


class Ping(Message):
    pass


class Pong(Message):
    pass


class PartitionedMetadata(Message):
    topic: str = field(1, "string")
    request_id: int = field(2, "uint64")
    metadata_auto_creation_enabled: bool | None = field(6, "bool", default=None)


class PartitionedMetadataResponse(Message):
    partitions: int = field(1, "uint32", default=0)
    request_id: int = field(2, "uint64")
    response: int = field(3, "int32", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class Lookup(Message):
    topic: str = field(1, "string")
    request_id: int = field(2, "uint64")
    authoritative: bool | None = field(3, "bool", default=None)


class LookupResponse(Message):
    broker_url: str | None = field(1, "string", default=None)
    broker_url_tls: str | None = field(2, "string", default=None)
    response: int = field(3, "int32", default=int(LookupType.FAILED))
    request_id: int = field(4, "uint64")
    authoritative: bool = field(5, "bool", default=False)
    error: int | None = field(6, "int32", default=None)
    message: str = field(7, "string", default="")
    proxy_through_service_url: bool = field(8, "bool", default=False)


class AuthData(Message):
    auth_method_name: str | None = field(1, "string", default=None)
    auth_data: bytes | None = field(2, "bytes", default=None)

    def __repr__(self) -> str:
        """Without ``auth_data``: it is a secret."""
        return f"AuthData(auth_method_name={self.auth_method_name!r})"


class AuthChallenge(Message):
    server_version: str | None = field(1, "string", default=None)
    challenge: AuthData | None = field(2, AuthData, default=None)
    protocol_version: int | None = field(3, "int32", default=None)


class AuthResponse(Message):
    client_version: str | None = field(1, "string", default=None)
    response: AuthData | None = field(2, AuthData, default=None)
    protocol_version: int | None = field(3, "int32", default=None)


class NewTxn(Message):
    request_id: int = field(1, "uint64")
    ttl_ms: int | None = field(2, "uint64", default=None)
    tc_id: int | None = field(3, "uint64", default=None)


class NewTxnResponse(Message):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class AddPartitionToTxn(Message):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    partitions: tuple[str, ...] = field(4, "string", default=())


class AddPartitionToTxnResponse(Message):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class EndTxn(Message):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    action: int | None = field(4, "int32", default=None)


class EndTxnResponse(Message):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class TcClientConnectRequest(Message):
    request_id: int = field(1, "uint64")
    tc_id: int = field(2, "uint64")


class TcClientConnectResponse(Message):
    request_id: int = field(1, "uint64")
    error: int | None = field(2, "int32", default=None)
    message: str = field(3, "string", default="")


class BaseCommand(Message):
    """The envelope: ``type``, and the command in the field whose number equals it."""

    type: int = field(1, "int32")
    connect: Connect | None = field(2, Connect, default=None)
    connected: Connected | None = field(3, Connected, default=None)
    producer: Producer | None = field(5, Producer, default=None)
    send: Send | None = field(6, Send, default=None)
    send_receipt: SendReceipt | None = field(7, SendReceipt, default=None)
    send_error: SendError | None = field(8, SendError, default=None)
    success: Success | None = field(13, Success, default=None)
    error: Error | None = field(14, Error, default=None)
    close_producer: CloseProducer | None = field(15, CloseProducer, default=None)
    producer_success: ProducerSuccess | None = field(17, ProducerSuccess, default=None)
    ping: Ping | None = field(18, Ping, default=None)
    pong: Pong | None = field(19, Pong, default=None)
    partitioned_metadata: PartitionedMetadata | None = field(21, PartitionedMetadata, default=None)
    partitioned_metadata_response: PartitionedMetadataResponse | None = field(
        22, PartitionedMetadataResponse, default=None
    )
    lookup: Lookup | None = field(23, Lookup, default=None)
    lookup_response: LookupResponse | None = field(24, LookupResponse, default=None)
    auth_challenge: AuthChallenge | None = field(36, AuthChallenge, default=None)
    auth_response: AuthResponse | None = field(37, AuthResponse, default=None)
    new_txn: NewTxn | None = field(50, NewTxn, default=None)
    new_txn_response: NewTxnResponse | None = field(51, NewTxnResponse, default=None)
    add_partition_to_txn: AddPartitionToTxn | None = field(52, AddPartitionToTxn, default=None)
    add_partition_to_txn_response: AddPartitionToTxnResponse | None = field(
        53, AddPartitionToTxnResponse, default=None
    )
    end_txn: EndTxn | None = field(56, EndTxn, default=None)
    end_txn_response: EndTxnResponse | None = field(57, EndTxnResponse, default=None)
    tc_client_connect_request: TcClientConnectRequest | None = field(
        62, TcClientConnectRequest, default=None
    )
    tc_client_connect_response: TcClientConnectResponse | None = field(
        63, TcClientConnectResponse, default=None
    )


FIELD_NAMES: Final[dict[type[Message], str]] = {
    spec.metadata["kind"]: spec.name for spec in fields(BaseCommand) if spec.name != "type"
}
"""Command -> its field in BaseCommand."""

TYPE_NUMBERS: Final[dict[type[Message], int]] = {
    spec.metadata["kind"]: spec.metadata["number"]
    for spec in fields(BaseCommand)
    if spec.name != "type"
}
"""Command -> BaseCommand's ``type``."""

COMMANDS: Final[dict[int, type[Message]]] = {
    number: command for command, number in TYPE_NUMBERS.items()
}
"""BaseCommand's ``type`` -> command; a type that is not here is one that we do not speak."""
