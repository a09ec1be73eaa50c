"""A producer on one exact topic: sends, acknowledgements, and what becomes of doubt.

Nothing is ever sent twice. Whatever leaves it open whether the broker has an entry (connection
lost, SEND_ERROR, a missing acknowledgement, an id of -1:-1, the producer closed by the broker) ends
the producer and poisons every transaction that it has written in (I4).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from eos.client._transaction import Transaction, poisoning
from eos.client._window import Budget, Window
from eos.errors import (
    BrokerNotReady,
    ConnectionLost,
    EosError,
    MessageTooLarge,
    ProtocolError,
    broker_error,
)
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.batch import (
    EncodedBatch,
    Message,
    StickyKey,
    check_rows,
    encode_batches,
    rows_from_messages,
)

METADATA_ROOM_BYTES: Final = 1024
"""Kept free below the broker's limit for the entry's metadata, which the limit covers too."""
_MAX_NAME_CHARS: Final = 256


class EntryProducer:
    """Made by ``PulsarClient.entry_producer``. Safe for several threads.

    ``name`` is the broker's: a name of our own, used again after an abort, would make a broker
    with deduplication drop what it takes for repeats. ``topic`` is the exact name. A failed
    producer stays failed; make a new one.
    """

    def __init__(
        self, connection: Connection, topic: str, producer_id: int, timeout_s: float, budget: Budget
    ) -> None:
        self.topic = topic
        self.name = ""
        self._schema_version: bytes | None = None
        self._connection = connection
        self._id = producer_id
        self._timeout_s = timeout_s
        self._budget = budget
        # Reentrant: a send that fails runs users' callbacks, and these may send.
        self._send_lock = threading.RLock()
        self._transactions: set[Transaction] = set()  # under the window's lock
        self._window = Window(topic, budget, timeout_s=timeout_s, on_failure=self._poison_all)

    @property
    def max_batch_bytes(self) -> int:
        """The longest batch payload that the broker takes."""
        return self._connection.max_message_bytes - METADATA_ROOM_BYTES

    @property
    def is_usable(self) -> bool:
        """Whether it can still send: neither failed nor closed."""
        return self._window.is_open

    def check(self) -> None:
        """Raise why it is not usable; nothing when it is.

        Raises:
            EosError: what made it fail; ``Fatal`` when it is closed.
        """
        with self._window.lock:
            self._window.check()

    @property
    def schema_version(self) -> bytes | None:
        """Of the schema that entries name; None: it was opened without one."""
        return self._schema_version

    def open(self, schema: commands.SchemaInfo | None = None) -> None:
        """PRODUCER; the broker chooses the name.

        Args:
            schema: of what is sent: registered with the topic, unless it is there; all entries
                name its version.

        Raises:
            IncompatibleSchema: the topic's schemas do not admit it.
            EosError: the broker refuses, or does not answer.
        """
        doing = f"Opening a producer on {self.topic}"
        self._connection.add_producer(self._id, self)
        try:
            answer = self._connection.request(
                lambda request_id: commands.Producer(
                    topic=self.topic,
                    producer_id=self._id,
                    request_id=request_id,
                    schema=schema,
                    user_provided_producer_name=False,
                    txn_enabled=True,
                ),
                commands.ProducerSuccess,
                timeout_s=self._timeout_s,
                doing=doing,
            )
            if not answer.producer_ready:
                raise BrokerNotReady(f"{doing}: another one has it to itself.")
            if not 0 < len(answer.producer_name) <= _MAX_NAME_CHARS:
                raise ProtocolError(f"{doing}: a name of {len(answer.producer_name)} characters.")
        except BaseException:
            self._take_back()  # the broker may have opened it
            raise
        self.name = answer.producer_name
        self._schema_version = None if schema is None else answer.schema_version

    def send(
        self,
        value: bytes | None,
        *,
        txn: Transaction | None = None,
        key: str | bytes | None = None,
        event_time_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Future[MessageId]:
        """Send one message. The future ends with its id once the broker has stored it.

        A value that is None is a tombstone: a compacted topic drops the key.

        Inside a transaction the future may be ignored: ``commit`` waits for all of them. A callback
        of the future must not block: it runs where acknowledgements are read.

        Raises:
            MessageTooLarge: it exceeds the broker's limit.
            EosError: the producer or the transaction is unusable. Whatever it was, the
                transaction lacks this message now, and is poisoned.
        """
        message = Message(value, key, event_time_ms, dict(properties) if properties else None)
        (acknowledgement,) = self.send_many([message], txn=txn)
        return acknowledgement

    def send_many(
        self, messages: Iterable[Message], *, txn: Transaction | None = None
    ) -> list[Future[MessageId]]:
        """Send messages as few entries as their size allows; one future for each entry."""
        with poisoning(txn):
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
            RequestTimeout: acknowledgements stopped coming.
            EosError: the producer or the transaction is unusable.
        """
        size_bytes = len(batch.payload)
        if txn is not None:
            txn.enlist(self)
        with poisoning(txn):
            if size_bytes > self.max_batch_bytes:
                raise MessageTooLarge(
                    f"An entry of {size_bytes} bytes; {self.topic} takes {self.max_batch_bytes}."
                )
        with self._send_lock:
            # One lock from numbering to sending: entries leave in the order of their numbers.
            entry = self._window.entry(size_bytes)
            try:
                sequence_id = self._window.admit(
                    entry, batch.num_messages, lambda: self._check_admission(txn)
                )
                self._send(sequence_id, batch, txn)
            except BaseException as error:  # Ctrl-C as well: part of it may be on its way
                if self._window.is_in_flight(entry):
                    self._window.fail(self._reason_of(error))
                raise
        return entry.acknowledgement

    def _reason_of(self, error: BaseException) -> EosError:
        if isinstance(error, EosError):
            return error
        return ConnectionLost(f"Sending to {self.topic} ended by {type(error).__name__}.")

    def _check_admission(self, txn: Transaction | None) -> None:
        # Under the window's lock, which flush() takes: whoever commits either finds this entry in
        # flight, or is found by this check. So nothing is sent once a commit has begun (I3).
        if txn is not None:
            txn.check()
        with poisoning(txn):
            self._window.check()
        if txn is not None:
            self._transactions.add(txn)

    def _send(self, sequence_id: int, batch: EncodedBatch, txn: Transaction | None) -> None:
        most, least = (txn.id.most, txn.id.least) if txn else (None, None)
        sticky = batch.sticky or StickyKey()
        self._connection.send(
            commands.Send(
                producer_id=self._id,
                sequence_id=sequence_id,
                num_messages=batch.num_messages,
                txnid_most=most,
                txnid_least=least,
            ),
            commands.MessageMetadata(
                producer_name=self.name,
                sequence_id=sequence_id,
                publish_time=time.time_ns() // 1_000_000,
                compression=batch.compression or None,
                uncompressed_size=batch.uncompressed_bytes,
                num_messages_in_batch=batch.num_messages,
                partition_key=sticky.partition_key,
                partition_key_b64_encoded=sticky.is_base64 or None,
                ordering_key=sticky.ordering_key,
                schema_version=self._schema_version,
                txnid_most=most,
                txnid_least=least,
            ),
            batch.payload,
        )

    def flush(self, deadline: float = math.inf) -> None:
        """Wait until the broker has acknowledged everything that was sent before this call.

        ``deadline``: not longer than that, on the clock of ``time.monotonic``.

        Raises:
            RequestTimeout: no acknowledgement came for a whole time-out; transactions are poisoned.
            EosError: the producer failed.
        """
        self._window.flush(deadline)

    def close_failed(self, deadline: float) -> None:
        """Wait until ``deadline`` for the broker to close one that failed; silent if it does not.

        The broker answers when all that it took before is stored.
        """
        with contextlib.suppress(EosError):
            self._connection.request(
                self._close_command,
                commands.Success,
                timeout_s=max(0.0, min(self._timeout_s, deadline - time.monotonic())),
                doing=f"Closing the failed producer on {self.topic}",
            )

    def abandon(self) -> None:
        """Close one of which nothing is under way; does not wait for the broker's answer."""
        if self._window.close():
            self._take_back()

    def release(self, txn: Transaction) -> None:
        """``txn`` has ended: what happens to this producer is no longer its business."""
        with self._window.lock:
            self._transactions.discard(txn)

    def close(self) -> None:
        """Flush, then CLOSE_PRODUCER: afterwards no entry of this producer is under way.

        The second time it does nothing.

        Raises:
            EosError: an acknowledgement is missing, or the broker did not confirm the closing.
        """
        if not self._window.close():  # from here on nothing is admitted
            return
        try:
            self.flush()
        except EosError:
            self._take_back()
            raise
        self._connection.request(
            self._close_command,
            commands.Success,
            timeout_s=self._timeout_s,
            doing=f"Closing the producer on {self.topic}",
        )
        self._connection.remove_producer(self._id)
        with self._window.lock:
            self._transactions.clear()

    def transfer(self) -> EntryProducer:
        """``close``, but the broker's end stays open: the producer that is returned has it.

        That one has sent nothing, and its numbers go on where these have ended: with deduplication
        a broker drops what comes with an earlier one. This one sends nothing any more.

        Raises:
            EosError: an acknowledgement is missing, or the connection is gone.
        """
        self._window.close()
        try:
            self.flush()
            successor = EntryProducer(
                self._connection, self.topic, self._id, self._timeout_s, self._budget
            )
            successor.name, successor._schema_version = self.name, self._schema_version
            successor._window = self._window.successor(successor._poison_all)
            self._connection.replace_producer(self._id, self, successor)
        except EosError:
            self._take_back()
            raise
        with self._window.lock:
            self._transactions.clear()
        return successor

    def _take_back(self) -> None:
        self._connection.remove_producer(self._id)
        self._connection.notify(self._close_command)

    def _close_command(self, request_id: int) -> commands.CloseProducer:
        return commands.CloseProducer(producer_id=self._id, request_id=request_id)

    # --- ProducerListener: called by the connection's reading thread ------------------------

    def on_send_receipt(self, answer: commands.SendReceipt) -> None:
        """Settle the entry that ``answer`` acknowledges."""
        message_id = None if answer.message_id is None else answer.message_id.message_id()
        if message_id is None:
            self._window.fail(ProtocolError(f"An acknowledgement without an id on {self.topic}."))
        elif message_id.is_dropped:
            self._window.fail(
                ProtocolError(f"The broker dropped an entry on {self.topic} as a duplicate.")
            )
        elif not self._window.acknowledge(answer.sequence_id, message_id):
            self._window.fail(ProtocolError(f"An acknowledgement out of turn on {self.topic}."))

    def on_send_error(self, error: commands.SendError) -> None:
        """The broker rejected an entry."""
        self.on_closed(broker_error(error.error, error.message, doing=f"Sending to {self.topic}"))

    def on_closed(self, reason: EosError) -> None:
        """The producer or its connection ended without our doing."""
        self._window.fail(reason)

    def _poison_all(self, reason: EosError) -> None:
        for txn in self._transactions:
            txn.poison(reason)
