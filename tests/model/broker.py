"""Model of the broker's transactions, as measured: a value and functions on it.

A transaction is open, committed, aborted (or expired), or half committed. Half committed means
decided, but the markers of some partitions are missing until END_TXN is repeated or the
coordinator reloads. The coordinator forgets an ended transaction: the answer to END_TXN does not
depend on how it ended.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Status(IntEnum):
    """Status of one transaction."""

    OPEN = 0
    COMMITTED = 1
    ABORTED = 2
    HALF = 3
    """Committed; the data's markers are written, the receipt's marker is not."""


class Receipt(IntEnum):
    """Whether and how the receipt was sent."""

    NONE = 0
    INSIDE = 1
    OUTSIDE = 2
    """As a plain message: readable however the transaction ends. Only a mutant does this."""


class Row(NamedTuple):
    """One row: epoch and task; ``copy`` distinguishes a second send from the first."""

    epoch: int
    task: int
    copy: int = 0


class Txn(NamedTuple):
    """A transaction. ``is_ours`` is False if another application got our id on a wiped cluster."""

    status: Status = Status.OPEN
    rows: tuple[Row, ...] = ()
    receipt: Receipt = Receipt.NONE
    mark: int = -1
    is_ours: bool = True


class Broker(NamedTuple):
    """State of the broker.

    ``is_trimmed``: the receipt topic has lost its history. ``is_wiped``: this is another cluster
    at the old address. ``hazard``: a violation that must never happen.
    """

    txns: tuple[Txn, ...] = ()
    is_trimmed: bool = False
    is_wiped: bool = False
    hazard: str = ""
    marks: int = 0


def begin(broker: Broker) -> tuple[Broker, int]:
    """Write a mark and send NEW_TXN; return the broker afterwards and the transaction's id."""
    txn = Txn(mark=broker.marks)
    return broker._replace(txns=(*broker.txns, txn), marks=broker.marks + 1), len(broker.txns)


def put(broker: Broker, number: int, txn: Txn) -> Broker:
    """Return the broker with one transaction replaced."""
    txns = (*broker.txns[:number], txn, *broker.txns[number + 1 :])
    return broker._replace(txns=txns)


def is_same(broker: Broker, number: int, mark: int) -> bool:
    """Whether ``number`` is still the transaction that had this mark."""
    return number < len(broker.txns) and broker.txns[number].mark == mark


def land(broker: Broker, number: int, mark: int, row: Row) -> Broker:
    """Deliver a SEND.

    A late one into an aborted transaction is filtered. A late one into a committed transaction
    takes effect later: all that the transaction had committed becomes unreadable.
    """
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
    """Whether the mark of a transaction is at the position that the log has."""
    return not broker.is_trimmed and is_same(broker, number, mark)


def sees_sentinel(broker: Broker) -> bool:
    """Whether a reader of the receipt topic reaches its end: no transaction is open in it."""
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
    """Whether the rows of this very transaction are readable."""
    if not is_same(broker, number, mark):
        return False
    return broker.txns[number].status in (Status.COMMITTED, Status.HALF)


def wipe(broker: Broker) -> Broker:
    """Replace the cluster at this address: ids restart, other applications have the first ones."""
    strangers = (Txn(is_ours=False), Txn(is_ours=False))
    return Broker(txns=strangers, is_wiped=True, hazard=broker.hazard, marks=broker.marks)


def readable(broker: Broker) -> list[Row]:
    """Every row that a new reader gets after coordinators have finished decided transactions."""
    ended = (Status.COMMITTED, Status.HALF)
    return sorted(row for txn in broker.txns if txn.status in ended for row in txn.rows)
