"""Parts of commands, the general answers SUCCESS and ERROR, and the metadata of entries."""

from __future__ import annotations

from enum import IntEnum

from eos.ids import EntryPlace, MessageId
from eos.wire.messages import WireMessage, field


class KeyValue(WireMessage):
    key: str = field(1, "any_text")
    value: str = field(2, "any_text")


class SchemaType(IntEnum):
    """The type of a schema; numbers of ``Schema.Type``."""

    NONE = 0
    STRING = 1
    JSON = 2
    PROTOBUF = 3
    AVRO = 4
    BOOLEAN = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    FLOAT = 10
    DOUBLE = 11
    DATE = 12
    TIME = 13
    TIMESTAMP = 14
    KEY_VALUE = 15
    INSTANT = 16
    LOCAL_DATE = 17
    LOCAL_TIME = 18
    LOCAL_DATE_TIME = 19
    PROTOBUF_NATIVE = 20
    EXTERNAL = 22  # in a registry outside of Pulsar


class SchemaInfo(WireMessage):
    """A schema in the broker's registry; ``Schema`` in PulsarApi.proto."""

    name: str = field(1, "string", default="")
    data: bytes = field(3, "bytes", default=b"")
    type: int = field(4, "int32", default=0)
    properties: tuple[KeyValue, ...] = field(5, KeyValue, default=())


class Success(WireMessage):
    request_id: int = field(1, "uint64")


class Error(WireMessage):
    request_id: int = field(1, "uint64")
    error: int = field(2, "int32")
    message: str = field(3, "string", default="")


class MessageIdData(WireMessage):
    ledger: int = field(1, "uint64")
    entry: int = field(2, "uint64")
    partition: int = field(3, "int32", default=-1)
    batch_index: int = field(4, "int32", default=-1)
    ack_set: tuple[int, ...] = field(5, "int64", default=())
    batch_size: int = field(6, "int32", default=0)

    def message_id(self) -> MessageId:
        """Return the ``MessageId``; -1 and -1 for one that is not of an entry."""
        # Numbers are unsigned on the wire: -1 arrives as 2^64 - 1.
        if max(self.ledger, self.entry) >= 2**63:
            return MessageId(-1, -1)
        return MessageId(self.ledger, self.entry, self.partition, self.batch_index)

    def signed_place(self) -> EntryPlace:
        """Return ledger and entry, either of which may be -1: before a ledger's first entry."""
        ledger, entry = (v - 2**64 if v >= 2**63 else v for v in (self.ledger, self.entry))
        return ledger, entry

    @classmethod
    def of_entry(cls, message_id: MessageId) -> MessageIdData:
        """Return the id of the entry that contains ``message_id``."""
        return cls(ledger=message_id.ledger, entry=message_id.entry)


class EncryptionKeys(WireMessage):
    key: str = field(1, "any_text")
    value: bytes = field(2, "bytes", default=b"")
    metadata: tuple[KeyValue, ...] = field(3, KeyValue, default=())


class MessageMetadata(WireMessage):
    """The metadata of an entry."""

    producer_name: str = field(1, "any_text")
    sequence_id: int = field(2, "uint64")
    publish_time: int = field(3, "uint64")
    properties: tuple[KeyValue, ...] = field(4, KeyValue, default=())
    replicated_from: str | None = field(5, "any_text", default=None)
    partition_key: bytes | None = field(6, "bytes", default=None)  # some clients send any bytes
    compression: int | None = field(8, "int32", default=None)
    uncompressed_size: int | None = field(9, "uint32", default=None)
    num_messages_in_batch: int | None = field(11, "int32", default=None)
    event_time: int | None = field(12, "uint64", default=None)
    encryption_keys: tuple[EncryptionKeys, ...] = field(13, EncryptionKeys, default=())
    encryption_param: bytes | None = field(15, "bytes", default=None)
    schema_version: bytes | None = field(16, "bytes", default=None)
    partition_key_b64_encoded: bool | None = field(17, "bool", default=None)
    ordering_key: bytes | None = field(18, "bytes", default=None)
    deliver_at_time: int | None = field(19, "int64", default=None)
    marker_type: int | None = field(20, "int32", default=None)
    # Both halves of the transaction's id are here *and* in SEND.
    txnid_least: int | None = field(22, "uint64", default=None)
    txnid_most: int | None = field(23, "uint64", default=None)
    highest_sequence_id: int | None = field(24, "uint64", default=None)
    null_value: bool | None = field(25, "bool", default=None)
    uuid: str | None = field(26, "any_text", default=None)
    num_chunks_from_msg: int | None = field(27, "int32", default=None)
    chunk_id: int | None = field(29, "int32", default=None)
