"""The acknowledgements of one consumer in one transaction, as the transaction sees them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from eos.client._ack_tracker import UnackedEntry
from eos.client._transaction import Transaction
from eos.errors import ConnectionLost, EosError, InputError, broker_error
from eos.ids import EntryPlace
from eos.transport.connection import Connection
from eos.wire import commands


class TransactionAcks:
    """What a transaction waits for and what it is told, in the place of a producer.

    Args:
        sending: held from the check of the transaction to the broker's answer.
        redeliver: have entries delivered again; does not wait.
        close: close the consumer at the broker, at most until a deadline; silent.
    """

    def __init__(
        self,
        txn: Transaction,
        topic: str,
        sending: threading.Lock,
        redeliver: Callable[[Iterable[EntryPlace]], None],
        close: Callable[[float], None],
    ) -> None:
        self.topic = topic
        self._txn = txn
        self._sending = sending
        self._redeliver = redeliver
        self._close = close
        self.has_ended = False
        self.begun: set[EntryPlace] = set()
        """Entries of which some messages are acknowledged here and others are not at all."""
        self.failure: EosError | None = None
        """Why it is not known whether the broker has an acknowledgement."""

    def flush(self, deadline: float = 0.0) -> None:  # noqa: ARG002
        """Wait for the acknowledgement that is under way, which ends by itself.

        The broker was never told of an entry that is not complete: a commit would lose that.
        """
        with self._sending:
            if self.failure is not None:
                raise self.failure
            if self.begun:
                place = min(self.begun)
                self._txn.poison(
                    InputError(
                        f"Only some messages of the entry {place[0]}:{place[1]} of {self.topic} "
                        "were acknowledged in it.",
                        hint="Acknowledge all messages of an entry in one transaction: "
                        "receive_batch gives whole entries.",
                    )
                )

    def close_failed(self, deadline: float) -> None:
        """The broker may still take an acknowledgement: not behind this."""
        self._close(deadline)

    def release(self, txn: Transaction) -> None:  # noqa: ARG002
        """It has ended. What the broker was never told of is not delivered again by itself."""
        self.has_ended = True
        if self.begun:
            self._redeliver(tuple(self.begun))
            self.begun.clear()


def ids_of(places: Iterable[EntryPlace]) -> tuple[commands.MessageIdData, ...]:
    """Whole entries, as the broker names them."""
    return tuple(commands.MessageIdData(ledger=ledger, entry=entry) for ledger, entry in places)


def ack_of(
    consumer_id: int,
    entries: Iterable[UnackedEntry],
    how: commands.AckType,
    txn: Transaction | None,
    request_id: int,
) -> commands.Ack:
    """ACK of whole entries, in ``txn`` or in none."""
    return commands.Ack(
        consumer_id=consumer_id,
        ack_type=how,
        message_ids=tuple(one.as_acknowledged(in_transaction=txn is not None) for one in entries),
        txnid_least=None if txn is None else txn.id.least,
        txnid_most=None if txn is None else txn.id.most,
        request_id=request_id,
    )


def send_ack(
    connection: Connection | None,
    make: Callable[[int], commands.Ack],
    *,
    timeout_s: float,
    doing: str,
) -> None:
    """ACK, and wait for the answer.

    Raises:
        ConnectionLost: there is no connection.
        EosError: the broker refuses, or does not answer.
    """
    if connection is None:
        raise ConnectionLost(f"{doing}: the consumer has lost its connection.")
    answer = connection.request(make, commands.AckResponse, timeout_s=timeout_s, doing=doing)
    if answer.error is not None:
        raise broker_error(answer.error, answer.message, doing=doing)
