"""The broker, as far as transactions go, and as it was measured: a value and functions on it.

A transaction is open, committed, aborted (expired counts as that), or half committed: decided, with
the markers of some partitions missing until somebody repeats END_TXN or the coordinator loads anew.
After its end the coordinator has forgotten it: END_TXN answers the same, however it ended.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """Of one transaction."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2
    HALF = 3
    """Committed; the data's markers are written, the receipt's is not."""


class Receipt(IntEnum):
    """Where the receipt was sent, if it was."""

    NONE = 0
    INSIDE = 1
    OUTSIDE = 2
    """As a plain message: readable whatever becomes of the transaction. For a mutant."""


class Row(NamedTuple):
    """One row: epoch and task; ``copy`` tells a second sending from the first."""

    epoch: int
    task: int
    copy: int = 0


class Txn(NamedTuple):
    """``is_ours`` is False for a stranger's, that came to our number on a wiped cluster."""

    status: Status = Status.OPEN
    rows: tuple[Row, ...] = ()
    receipt: Receipt = Receipt.NONE
    mark: int = -1
    is_ours: bool = True


class Broker(NamedTuple):
    """``is_trimmed``: the receipt topic has lost its history. ``is_wiped``: this is another cluster
    at the old address. ``hazard``: what must never be."""

    txns: tuple[Txn, ...] = ()
    is_trimmed: bool = False
    is_wiped: bool = False
    hazard: str = ""
    marks: int = 0


def begin(broker: Broker) -> tuple[Broker, int]:
    """Mark and NEW_TXN: the broker afterwards, and the transaction's number."""
    txn = Txn(mark=broker.marks)
    return broker._replace(txns=(*broker.txns, txn), marks=broker.marks + 1), len(broker.txns)


def put(broker: Broker, number: int, txn: Txn) -> Broker:
    """The broker with another state of one transaction."""
    txns = (*broker.txns[:number], txn, *broker.txns[number + 1 :])
    return broker._replace(txns=txns)


def is_same(broker: Broker, number: int, mark: int) -> bool:
    """Whether ``number`` is still the transaction that had this mark."""
    return number < len(broker.txns) and broker.txns[number].mark == mark


def land(broker: Broker, number: int, mark: int, row: Row) -> Broker:
    """A SEND arrives. Late ones into an aborted transaction are filtered; into a committed one they
    take effect later: everything that it had committed becomes unreadable."""
    if not is_same(broker, number, mark):
        return broker
    txn = broker.txns[number]
    if txn.status is Status.OPEN:
        rows = tuple(sorted((*txn.rows, row)))
        return put(broker, number, txn._replace(rows=rows))
    if txn.status in (Status.COMMITTED, Status.HALF):
        return broker._replace(hazard="a late send into a committed transaction")
    return broker


def finds_mark(broker: Broker, number: int, mark: int) -> bool:
    """Whether the mark of a transaction is where the log says."""
    return not broker.is_trimmed and is_same(broker, number, mark)


def sees_sentinel(broker: Broker) -> bool:
    """Whether a reader of the receipt topic gets to its end: no transaction open in it."""
    return not any(
        txn.receipt is Receipt.INSIDE and txn.status in (Status.OPEN, Status.HALF)
        for txn in broker.txns
    )


def reads_receipt(broker: Broker, number: int) -> bool:
    """Whether the receipt is readable."""
    txn = broker.txns[number]
    is_there = txn.receipt is Receipt.OUTSIDE or (
        txn.receipt is Receipt.INSIDE and txn.status is Status.COMMITTED
    )
    return is_there and not broker.is_trimmed


def reads_data(broker: Broker, number: int, mark: int) -> bool:
    """Whether what a transaction wrote is readable, as its own."""
    if not is_same(broker, number, mark):
        return False
    return broker.txns[number].status in (Status.COMMITTED, Status.HALF)


def wipe(broker: Broker) -> Broker:
    """Another cluster at the old address: numbers start again, the first ones are strangers'."""
    strangers = (Txn(is_ours=False), Txn(is_ours=False))
    return Broker(txns=strangers, is_wiped=True, hazard=broker.hazard, marks=broker.marks)


def readable(broker: Broker) -> list[Row]:
    """Every row that a fresh reader gets, once coordinators have finished what was decided."""
    ended = (Status.COMMITTED, Status.HALF)
    return sorted(row for txn in broker.txns if txn.status in ended for row in txn.rows)
