"""The commands to a transaction coordinator. ``ttl_ms`` is in milliseconds, although the protocol
calls it ``txn_ttl_seconds``."""

from __future__ import annotations

from enum import IntEnum

from eos.wire.messages import WireMessage, field


class TxnAction(IntEnum):
    """The action of END_TXN."""

    COMMIT = 0
    ABORT = 1


class NewTxn(WireMessage):
    request_id: int = field(1, "uint64")
    ttl_ms: int | None = field(2, "uint64", default=None)
    tc_id: int | None = field(3, "uint64", default=None)


class NewTxnResponse(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class AddPartitionToTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    partitions: tuple[str, ...] = field(4, "string", default=())


class AddPartitionToTxnResponse(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class Subscription(WireMessage):
    """A subscription of an exact topic whose messages are acknowledged in a transaction."""

    topic: str = field(1, "string")
    subscription: str = field(2, "string")


class AddSubscriptionToTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    subscriptions: tuple[Subscription, ...] = field(4, Subscription, default=())


class AddSubscriptionToTxnResponse(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class EndTxn(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int | None = field(2, "uint64", default=None)
    txnid_most: int | None = field(3, "uint64", default=None)
    action: int | None = field(4, "int32", default=None)


class EndTxnResponse(WireMessage):
    request_id: int = field(1, "uint64")
    txnid_least: int = field(2, "uint64", default=0)
    txnid_most: int = field(3, "uint64", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class TcClientConnectRequest(WireMessage):
    request_id: int = field(1, "uint64")
    tc_id: int = field(2, "uint64")


class TcClientConnectResponse(WireMessage):
    request_id: int = field(1, "uint64")
    error: int | None = field(2, "int32", default=None)
    message: str = field(3, "string", default="")
