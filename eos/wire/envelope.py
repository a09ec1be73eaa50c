"""The envelope of all commands: in a BaseCommand each sits in the field whose number is its type.

``COMMANDS`` is that table. Source: PulsarApi.proto, as for the commands themselves.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from eos.wire import commands, consuming
from eos.wire.messages import Message, field


class BaseCommand(Message):
    """The envelope: ``type``, and the command in the field whose number equals it."""

    type: int = field(1, "int32")
    connect: commands.Connect | None = field(2, commands.Connect, default=None)
    connected: commands.Connected | None = field(3, commands.Connected, default=None)
    subscribe: consuming.Subscribe | None = field(4, consuming.Subscribe, default=None)
    producer: commands.Producer | None = field(5, commands.Producer, default=None)
    send: commands.Send | None = field(6, commands.Send, default=None)
    send_receipt: commands.SendReceipt | None = field(7, commands.SendReceipt, default=None)
    send_error: commands.SendError | None = field(8, commands.SendError, default=None)
    deliver: consuming.Deliver | None = field(9, consuming.Deliver, default=None)
    ack: consuming.Ack | None = field(10, consuming.Ack, default=None)
    flow: consuming.Flow | None = field(11, consuming.Flow, default=None)
    success: commands.Success | None = field(13, commands.Success, default=None)
    error: commands.Error | None = field(14, commands.Error, default=None)
    close_producer: commands.CloseProducer | None = field(15, commands.CloseProducer, default=None)
    close_consumer: consuming.CloseConsumer | None = field(
        16, consuming.CloseConsumer, default=None
    )
    producer_success: commands.ProducerSuccess | None = field(
        17, commands.ProducerSuccess, default=None
    )
    ping: commands.Ping | None = field(18, commands.Ping, default=None)
    pong: commands.Pong | None = field(19, commands.Pong, default=None)
    partitioned_metadata: commands.PartitionedMetadata | None = field(
        21, commands.PartitionedMetadata, default=None
    )
    partitioned_metadata_response: commands.PartitionedMetadataResponse | None = field(
        22, commands.PartitionedMetadataResponse, default=None
    )
    lookup: commands.Lookup | None = field(23, commands.Lookup, default=None)
    lookup_response: commands.LookupResponse | None = field(
        24, commands.LookupResponse, default=None
    )
    get_last_message_id: consuming.GetLastMessageId | None = field(
        29, consuming.GetLastMessageId, default=None
    )
    get_last_message_id_response: consuming.GetLastMessageIdResponse | None = field(
        30, consuming.GetLastMessageIdResponse, default=None
    )
    get_topics: consuming.GetTopics | None = field(32, consuming.GetTopics, default=None)
    get_topics_response: consuming.GetTopicsResponse | None = field(
        33, consuming.GetTopicsResponse, default=None
    )
    auth_challenge: commands.AuthChallenge | None = field(36, commands.AuthChallenge, default=None)
    auth_response: commands.AuthResponse | None = field(37, commands.AuthResponse, default=None)
    ack_response: consuming.AckResponse | None = field(38, consuming.AckResponse, default=None)
    new_txn: commands.NewTxn | None = field(50, commands.NewTxn, default=None)
    new_txn_response: commands.NewTxnResponse | None = field(
        51, commands.NewTxnResponse, default=None
    )
    add_partition_to_txn: commands.AddPartitionToTxn | None = field(
        52, commands.AddPartitionToTxn, default=None
    )
    add_partition_to_txn_response: commands.AddPartitionToTxnResponse | None = field(
        53, commands.AddPartitionToTxnResponse, default=None
    )
    end_txn: commands.EndTxn | None = field(56, commands.EndTxn, default=None)
    end_txn_response: commands.EndTxnResponse | None = field(
        57, commands.EndTxnResponse, default=None
    )
    tc_client_connect_request: commands.TcClientConnectRequest | None = field(
        62, commands.TcClientConnectRequest, default=None
    )
    tc_client_connect_response: commands.TcClientConnectResponse | None = field(
        63, commands.TcClientConnectResponse, default=None
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
