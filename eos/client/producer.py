"""A producer on one exact topic: sends, receipts, and what becomes of doubt.

Nothing is ever sent twice. Whatever leaves it open whether the broker has an entry (connection
lost, SEND_ERROR, a missing receipt, an id of -1:-1, the producer closed by the broker) ends the
producer and poisons every transaction that it has written in (I4).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from eos.client.transaction import Transaction
from eos.errors import EosError, MessageTooLarge, ProtocolError, RequestTimeout, broker_error
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.batch import EncodedBatch, Message, check_rows, encode_batches, rows_from_messages

METADATA_ROOM_BYTES: Final = 1024
"""Kept free below the broker's limit for the entry's metadata, which the limit covers too."""


@dataclass(frozen=True)
class _Pending:
    size_bytes: int
    txn: Transaction | None
    receipt: Future[MessageId]


class Producer:
    """Made by ``PulsarClient.producer``. Safe for several threads.

    ``name`` is the broker's: a name of our own, used again after an abort, would make a broker
    with deduplication drop what it takes for repeats. ``topic`` is the exact name.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        producer_id: int,
        *,
        timeout_s: float,
        max_pending_bytes: int,
    ) -> None:
        self.topic = topic
        self.name = ""
        self._connection = connection
        self._id = producer_id
        self._timeout_s = timeout_s
        self._max_pending_bytes = max_pending_bytes
        self._changed = threading.Condition()
        self._send_lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._pending_bytes = 0
        self._next_sequence_id = 0
        self._transactions: set[Transaction] = set()
        self._failed: EosError | None = None

    @property
    def max_batch_bytes(self) -> int:
        """The longest batch payload that the broker takes."""
        return self._connection.max_message_bytes - METADATA_ROOM_BYTES

    @property
    def is_usable(self) -> bool:
        """Whether it can still send: neither failed nor closed."""
        return self._failed is None

    def open(self) -> None:
        """PRODUCER; the broker chooses the name.

        Raises:
            EosError: the broker refuses, or does not answer.
        """
        self._connection.listen(self._id, self)
        try:
            answer = self._connection.request(
                lambda request_id: commands.Producer(
                    topic=self.topic,
                    producer_id=self._id,
                    request_id=request_id,
                    user_provided_producer_name=False,
                    txn_enabled=True,
                ),
                commands.ProducerSuccess,
                timeout_s=self._timeout_s,
            )
        except BaseException:
            self._connection.forget(self._id)
            raise
        self.name = answer.producer_name

    def send(
        self,
        value: bytes,
        *,
        txn: Transaction | None = None,
        key: str | bytes | None = None,
        event_time_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Future[MessageId]:
        """Send one message. The future ends with its id once the broker has stored it.

        Inside a transaction the future may be ignored: ``commit`` waits for every receipt.

        Raises:
            MessageTooLarge: it exceeds the broker's limit.
            EosError: the producer or the transaction is unusable.
        """
        message = Message(value, key, event_time_ms, dict(properties or {}))
        (receipt,) = self.send_many([message], txn=txn)
        return receipt

    def send_many(
        self, messages: Iterable[Message], *, txn: Transaction | None = None
    ) -> list[Future[MessageId]]:
        """Send messages as few entries as their size allows; one future for each entry."""
        rows = rows_from_messages(list(messages))
        check_rows(rows, self.max_batch_bytes)
        return [
            self.send_batch(batch, txn=txn) for batch in encode_batches(rows, self.max_batch_bytes)
        ]

    def send_batch(
        self, batch: EncodedBatch, *, txn: Transaction | None = None
    ) -> Future[MessageId]:
        """Send one encoded batch as one entry; waits while too many bytes are in flight.

        Raises:
            RequestTimeout: receipts stopped coming.
            EosError: the producer or the transaction is unusable.
        """
        size_bytes = len(batch.payload)
        if size_bytes > self.max_batch_bytes:
            raise MessageTooLarge(
                f"An entry of {size_bytes} bytes; {self.topic} takes {self.max_batch_bytes}."
            )
        if txn is not None:
            txn.enlist(self)
        with self._send_lock:
            # One lock from numbering to sending: entries leave in the order of their numbers.
            self._await_room(size_bytes)
            sequence_id, pending = self._admit(size_bytes, batch.num_messages, txn)
            self._connection.send(
                commands.Send(
                    producer_id=self._id,
                    sequence_id=sequence_id,
                    num_messages=batch.num_messages,
                    txnid_most=txn.id.most if txn else None,
                    txnid_least=txn.id.least if txn else None,
                ),
                commands.MessageMetadata(
                    producer_name=self.name,
                    sequence_id=sequence_id,
                    publish_time=time.time_ns() // 1_000_000,
                    num_messages_in_batch=batch.num_messages,
                    txnid_most=txn.id.most if txn else None,
                    txnid_least=txn.id.least if txn else None,
                ),
                batch.payload,
            )
        return pending.receipt

    def _await_room(self, size_bytes: int) -> None:
        def has_room() -> bool:
            fits = self._pending_bytes + size_bytes <= self._max_pending_bytes
            return self._failed is not None or not self._pending or fits

        with self._changed:
            if not self._changed.wait_for(has_room, self._timeout_s):
                self._fail_locked(self._stalled())

    def _admit(
        self, size_bytes: int, num_messages: int, txn: Transaction | None
    ) -> tuple[int, _Pending]:
        with self._changed:
            if self._failed is not None:
                raise self._failed
            if txn is not None:
                txn.check()
                self._transactions.add(txn)
            sequence_id = self._next_sequence_id
            self._next_sequence_id += num_messages
            pending = _Pending(size_bytes, txn, Future())
            self._pending[sequence_id] = pending
            self._pending_bytes += size_bytes
            return sequence_id, pending

    def flush(self) -> None:
        """Wait until the broker has acknowledged everything that was sent.

        Raises:
            RequestTimeout: no receipt came for a whole time-out; transactions are poisoned.
            EosError: the producer failed.
        """
        with self._changed:
            while self._pending and self._failed is None:
                before = len(self._pending)
                if not self._changed.wait(self._timeout_s) and len(self._pending) == before:
                    self._fail_locked(self._stalled())
            if self._failed is not None:
                raise self._failed

    def release(self, txn: Transaction) -> None:
        """``txn`` has ended: what happens to this producer is no longer its business."""
        with self._changed:
            self._transactions.discard(txn)

    def close(self) -> None:
        """Flush, then CLOSE_PRODUCER: afterwards no entry of this producer is under way.

        Raises:
            EosError: a receipt is missing, or the broker did not confirm the closing.
        """
        self.flush()
        self._connection.request(
            lambda request_id: commands.CloseProducer(producer_id=self._id, request_id=request_id),
            commands.Success,
            timeout_s=self._timeout_s,
        )
        self._connection.forget(self._id)
        with self._changed:
            self._failed = self._failed or ProtocolError("The producer is closed.")
            self._transactions.clear()

    # --- ProducerListener: called by the connection's reading thread ------------------------

    def on_receipt(self, receipt: commands.SendReceipt) -> None:
        """Settle the entry that ``receipt`` acknowledges."""
        with self._changed:
            pending = self._pending.get(receipt.sequence_id)
            stored = receipt.message_id
            if pending is None or stored is None:
                self._fail_locked(ProtocolError(f"A receipt out of turn on {self.topic}."))
                return
            message_id = _message_id(stored)
            if message_id.is_dropped:
                self._fail_locked(
                    ProtocolError(f"The broker dropped an entry on {self.topic} as a duplicate.")
                )
                return
            del self._pending[receipt.sequence_id]
            self._pending_bytes -= pending.size_bytes
            self._changed.notify_all()
        pending.receipt.set_result(message_id)

    def on_send_error(self, error: commands.SendError) -> None:
        """The broker rejected an entry."""
        self.on_closed(broker_error(error.error, error.message, doing=f"Sending to {self.topic}"))

    def on_closed(self, reason: EosError) -> None:
        """The producer or its connection ended without our doing."""
        with self._changed:
            self._fail_locked(reason)

    def _fail_locked(self, reason: EosError) -> None:
        if self._failed is not None:
            return
        self._failed = reason
        lost = list(self._pending.values())
        self._pending.clear()
        self._pending_bytes = 0
        for txn in self._transactions:
            txn.poison(reason)
        for pending in lost:
            with contextlib.suppress(Exception):
                pending.receipt.set_exception(reason)
        self._changed.notify_all()

    def _stalled(self) -> RequestTimeout:
        return RequestTimeout(f"No receipt from {self.topic} within {self._timeout_s:g} s.")


def _message_id(data: commands.MessageIdData) -> MessageId:
    # The id's numbers are unsigned on the wire; a dropped duplicate comes as 2^64 - 1.
    ledger, entry = (n - 2**64 if n >= 2**63 else n for n in (data.ledger, data.entry))
    return MessageId(ledger, entry, data.partition, data.batch_index)
