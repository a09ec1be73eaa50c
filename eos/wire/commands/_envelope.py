"""BaseCommand, the envelope of all commands: a command is in the field whose number is its type."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from eos.wire.commands import _common as common
from eos.wire.commands import _connecting as connecting
from eos.wire.commands import _consuming as consuming
from eos.wire.commands import _producing as producing
from eos.wire.messages import WireMessage, field


def _command(number: int, kind: type[WireMessage]) -> Any:
    return field(number, kind, default=None)


class BaseCommand(WireMessage):
    """The envelope: ``type``, and the command in the field whose number equals it."""

    type: int = field(1, "int32")
    # Untyped, because a command is taken from the parsed message by its type (``COMMANDS``).
    connect: Any = _command(2, connecting.Connect)
    connected: Any = _command(3, connecting.Connected)
    subscribe: Any = _command(4, consuming.Subscribe)
    producer: Any = _command(5, producing.Producer)
    send: Any = _command(6, producing.Send)
    send_receipt: Any = _command(7, producing.SendReceipt)
    send_error: Any = _command(8, producing.SendError)
    deliver: Any = _command(9, consuming.Deliver)
    ack: Any = _command(10, consuming.Ack)
    flow: Any = _command(11, consuming.Flow)
    success: Any = _command(13, common.Success)
    error: Any = _command(14, common.Error)
    close_producer: Any = _command(15, producing.CloseProducer)
    close_consumer: Any = _command(16, consuming.CloseConsumer)
    producer_success: Any = _command(17, producing.ProducerSuccess)
    ping: Any = _command(18, connecting.Ping)
    pong: Any = _command(19, connecting.Pong)
    redeliver_unacknowledged: Any = _command(20, consuming.RedeliverUnacknowledged)
    partitioned_metadata: Any = _command(21, connecting.PartitionedMetadata)
    partitioned_metadata_response: Any = _command(22, connecting.PartitionedMetadataResponse)
    lookup: Any = _command(23, connecting.Lookup)
    lookup_response: Any = _command(24, connecting.LookupResponse)
    reached_end_of_topic: Any = _command(27, consuming.ReachedEndOfTopic)
    seek: Any = _command(28, consuming.Seek)
    get_last_message_id: Any = _command(29, consuming.GetLastMessageId)
    get_last_message_id_response: Any = _command(30, consuming.GetLastMessageIdResponse)
    get_topics: Any = _command(32, connecting.GetTopics)
    get_topics_response: Any = _command(33, connecting.GetTopicsResponse)
    get_schema: Any = _command(34, connecting.GetSchema)
    get_schema_response: Any = _command(35, connecting.GetSchemaResponse)
    auth_challenge: Any = _command(36, connecting.AuthChallenge)
    auth_response: Any = _command(37, connecting.AuthResponse)
    ack_response: Any = _command(38, consuming.AckResponse)
    new_txn: Any = _command(50, producing.NewTxn)
    new_txn_response: Any = _command(51, producing.NewTxnResponse)
    add_partition_to_txn: Any = _command(52, producing.AddPartitionToTxn)
    add_partition_to_txn_response: Any = _command(53, producing.AddPartitionToTxnResponse)
    add_subscription_to_txn: Any = _command(54, producing.AddSubscriptionToTxn)
    add_subscription_to_txn_response: Any = _command(55, producing.AddSubscriptionToTxnResponse)
    end_txn: Any = _command(56, producing.EndTxn)
    end_txn_response: Any = _command(57, producing.EndTxnResponse)
    tc_client_connect_request: Any = _command(62, producing.TcClientConnectRequest)
    tc_client_connect_response: Any = _command(63, producing.TcClientConnectResponse)

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
