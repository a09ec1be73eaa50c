"""BaseCommand, the envelope of all commands: a command is in the field whose number is its type."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from eos.wire.commands import _common as common
from eos.wire.commands import _connecting as connecting
from eos.wire.commands import _consuming as consuming
from eos.wire.commands import _producing as producing
from eos.wire.messages import WireMessage, field


class BaseCommand(WireMessage):
    """The envelope: ``type``, and the command in the field whose number equals it."""

    type: int = field(1, "int32")
    connect: connecting.Connect | None = field(2, connecting.Connect, default=None)
    connected: connecting.Connected | None = field(3, connecting.Connected, default=None)
    subscribe: consuming.Subscribe | None = field(4, consuming.Subscribe, default=None)
    producer: producing.Producer | None = field(5, producing.Producer, default=None)
    send: producing.Send | None = field(6, producing.Send, default=None)
    send_receipt: producing.SendReceipt | None = field(7, producing.SendReceipt, default=None)
    send_error: producing.SendError | None = field(8, producing.SendError, default=None)
    deliver: consuming.Deliver | None = field(9, consuming.Deliver, default=None)
    ack: consuming.Ack | None = field(10, consuming.Ack, default=None)
    flow: consuming.Flow | None = field(11, consuming.Flow, default=None)
    success: common.Success | None = field(13, common.Success, default=None)
    error: common.Error | None = field(14, common.Error, default=None)
    close_producer: producing.CloseProducer | None = field(
        15, producing.CloseProducer, default=None
    )
    close_consumer: consuming.CloseConsumer | None = field(
        16, consuming.CloseConsumer, default=None
    )
    producer_success: producing.ProducerSuccess | None = field(
        17, producing.ProducerSuccess, default=None
    )
    ping: connecting.Ping | None = field(18, connecting.Ping, default=None)
    pong: connecting.Pong | None = field(19, connecting.Pong, default=None)
    redeliver_unacknowledged: consuming.RedeliverUnacknowledged | None = field(
        20, consuming.RedeliverUnacknowledged, default=None
    )
    partitioned_metadata: connecting.PartitionedMetadata | None = field(
        21, connecting.PartitionedMetadata, default=None
    )
    partitioned_metadata_response: connecting.PartitionedMetadataResponse | None = field(
        22, connecting.PartitionedMetadataResponse, default=None
    )
    lookup: connecting.Lookup | None = field(23, connecting.Lookup, default=None)
    lookup_response: connecting.LookupResponse | None = field(
        24, connecting.LookupResponse, default=None
    )
    reached_end_of_topic: consuming.ReachedEndOfTopic | None = field(
        27, consuming.ReachedEndOfTopic, default=None
    )
    seek: consuming.Seek | None = field(28, consuming.Seek, default=None)
    get_last_message_id: consuming.GetLastMessageId | None = field(
        29, consuming.GetLastMessageId, default=None
    )
    get_last_message_id_response: consuming.GetLastMessageIdResponse | None = field(
        30, consuming.GetLastMessageIdResponse, default=None
    )
    get_topics: connecting.GetTopics | None = field(32, connecting.GetTopics, default=None)
    get_topics_response: connecting.GetTopicsResponse | None = field(
        33, connecting.GetTopicsResponse, default=None
    )
    get_schema: connecting.GetSchema | None = field(34, connecting.GetSchema, default=None)
    get_schema_response: connecting.GetSchemaResponse | None = field(
        35, connecting.GetSchemaResponse, default=None
    )
    auth_challenge: connecting.AuthChallenge | None = field(
        36, connecting.AuthChallenge, default=None
    )
    auth_response: connecting.AuthResponse | None = field(37, connecting.AuthResponse, default=None)
    ack_response: consuming.AckResponse | None = field(38, consuming.AckResponse, default=None)
    new_txn: producing.NewTxn | None = field(50, producing.NewTxn, default=None)
    new_txn_response: producing.NewTxnResponse | None = field(
        51, producing.NewTxnResponse, default=None
    )
    add_partition_to_txn: producing.AddPartitionToTxn | None = field(
        52, producing.AddPartitionToTxn, default=None
    )
    add_partition_to_txn_response: producing.AddPartitionToTxnResponse | None = field(
        53, producing.AddPartitionToTxnResponse, default=None
    )
    add_subscription_to_txn: producing.AddSubscriptionToTxn | None = field(
        54, producing.AddSubscriptionToTxn, default=None
    )
    add_subscription_to_txn_response: producing.AddSubscriptionToTxnResponse | None = field(
        55, producing.AddSubscriptionToTxnResponse, default=None
    )
    end_txn: producing.EndTxn | None = field(56, producing.EndTxn, default=None)
    end_txn_response: producing.EndTxnResponse | None = field(
        57, producing.EndTxnResponse, default=None
    )
    tc_client_connect_request: producing.TcClientConnectRequest | None = field(
        62, producing.TcClientConnectRequest, default=None
    )
    tc_client_connect_response: producing.TcClientConnectResponse | None = field(
        63, producing.TcClientConnectResponse, default=None
    )

    @classmethod
    def around(cls, command: WireMessage) -> bytes:
        """Return the bytes of the envelope of ``command``."""
        kind = type(command)
        # An object of this class, whose many other fields are empty, would take most of the time.
        message = cls._protobuf()
        message.type = TYPE_NUMBERS[kind]
        getattr(message, FIELD_NAMES[kind]).CopyFrom(command.to_protobuf())
        return bytes(message.SerializeToString())


_COMMANDS: Final = [spec for spec in fields(BaseCommand) if spec.name != "type"]
# Command -> its field in BaseCommand.
FIELD_NAMES: Final[dict[type[WireMessage], str]] = {
    spec.metadata["kind"]: spec.name for spec in _COMMANDS
}
# Command -> BaseCommand's ``type``.
TYPE_NUMBERS: Final[dict[type[WireMessage], int]] = {
    spec.metadata["kind"]: spec.metadata["number"] for spec in _COMMANDS
}
# BaseCommand's ``type`` -> command; only the types that eos uses.
COMMANDS: Final[dict[int, type[WireMessage]]] = {
    number: command for command, number in TYPE_NUMBERS.items()
}
