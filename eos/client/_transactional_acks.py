"""The acknowledgements of one consumer in one transaction."""

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
    """Makes a transaction wait for acknowledgements, with the interface of a producer.

    Args:
        sending: held from the check of the transaction to the broker's answer.
        redeliver: requests redelivery of entries; does not wait.
        close: closes the consumer at the broker, until a deadline; raises nothing.
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
        """Entries with messages acknowledged in this transaction and unacknowledged ones."""
        self.failure: EosError | None = None
        """The reason why it is unknown whether the broker has an acknowledgement."""

    def flush(self, deadline: float = 0.0) -> None:  # noqa: ARG002
        """Wait for the acknowledgement in flight, which has a timeout.

        Poison the transaction if an entry is incomplete: the broker does not know of its
        acknowledged messages, so a commit would lose them.
        """
        with self._sending:
            if self.failure is not None:
                raise self.failure
            if self.begun:
                place = min(self.begun)
                self._txn.poison(
                    InputError(
                        f"Only some messages of the entry {place[0]}:{place[1]} of {self.topic} "
                        "were acknowledged in the transaction.",
                        hint="Acknowledge all messages of an entry in one transaction: "
                        "receive_batch gives whole entries.",
                    )
                )

    def close_failed(self, deadline: float) -> None:
        """Close the consumer: afterwards the broker accepts no pending acknowledgement."""
        self._close(deadline)

    def release(self, txn: Transaction) -> None:  # noqa: ARG002
        """The transaction has ended: request redelivery of incomplete entries.

        The broker does not redeliver them, as it knows of no acknowledgement.
        """
        self.has_ended = True
        if self.begun:
            self._redeliver(tuple(self.begun))
            self.begun.clear()


def ids_of(places: Iterable[EntryPlace]) -> tuple[commands.MessageIdData, ...]:
    """Return the broker's ids of whole entries."""
    return tuple(commands.MessageIdData(ledger=ledger, entry=entry) for ledger, entry in places)


def ack_of(
    consumer_id: int,
    entries: Iterable[UnackedEntry],
    how: commands.AckType,
    txn: Transaction | None,
    request_id: int,
) -> commands.Ack:
    """Return ACK of whole entries, in ``txn`` or in none."""
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
    """Send ACK and wait for the answer.

    Raises:
        ConnectionLost: there is no connection.
        EosError: the broker refuses, or does not answer.
    """
    if connection is None:
        raise ConnectionLost(f"{doing}: the consumer has lost its connection.")
    answer = connection.request(make, commands.AckResponse, timeout_s=timeout_s, doing=doing)
    if answer.error is not None:
        raise broker_error(answer.error, answer.message, doing=doing)
