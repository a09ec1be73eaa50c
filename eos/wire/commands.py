"""The commands of Pulsar's binary protocol that we speak, as typed objects.

Numbers from ``pulsar-common/src/main/proto/PulsarApi.proto`` of apache/pulsar. What consumers need
is in ``consuming``, the table of all of them in ``envelope``. Ids: ``request_id`` pairs a request
with its answer, ``producer_id`` names a producer on one connection. Names of fields are ours where
Pulsar's would mislead: ``ttl_ms`` is called seconds there and holds milliseconds.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from eos.ids import MessageId
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

    def message_id(self) -> MessageId:
        """The same as others know it. Numbers are unsigned on the wire: -1 comes as 2^64 - 1."""
        if max(self.ledger, self.entry) >= 2**63:
            return MessageId(-1, -1)
        return MessageId(self.ledger, self.entry, self.partition, self.batch_index)

    @classmethod
    def of_entry(cls, message_id: MessageId) -> MessageIdData:
        """The entry that ``message_id`` is in."""
        return cls(ledger=message_id.ledger, entry=message_id.entry)


class EncryptionKeys(Message):
    key: str = field(1, "string")


class MessageMetadata(Message):
    """Goes with each entry; both halves of the transaction's id stand here *and* in SEND."""

    producer_name: str = field(1, "string")
    sequence_id: int = field(2, "uint64")
    publish_time: int = field(3, "uint64")
    properties: tuple[KeyValue, ...] = field(4, KeyValue, default=())
    replicated_from: str | None = field(5, "string", default=None)
    partition_key: str | None = field(6, "string", default=None)
    compression: int | None = field(8, "int32", default=None)
    uncompressed_size: int | None = field(9, "uint32", default=None)
    num_messages_in_batch: int | None = field(11, "int32", default=None)
    event_time: int | None = field(12, "uint64", default=None)
    encryption_keys: tuple[EncryptionKeys, ...] = field(13, EncryptionKeys, default=())
    schema_version: bytes | None = field(16, "bytes", default=None)
    partition_key_b64_encoded: bool | None = field(17, "bool", default=None)
    ordering_key: bytes | None = field(18, "bytes", default=None)
    marker_type: int | None = field(20, "int32", default=None)
    txnid_least: int | None = field(22, "uint64", default=None)
    txnid_most: int | None = field(23, "uint64", default=None)
    highest_sequence_id: int | None = field(24, "uint64", default=None)
    null_value: bool | None = field(25, "bool", default=None)
    num_chunks_from_msg: int | None = field(27, "int32", default=None)
    chunk_id: int | None = field(29, "int32", default=None)


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
