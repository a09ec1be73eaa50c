"""A producer on one exact topic: it sends entries and handles their acknowledgements.

Nothing is ever sent twice. If it is unknown whether the broker has an entry, the producer fails and
poisons all transactions in which it has written (I4).
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Final

from eos.client._accumulator import own_properties
from eos.client._transaction import Transaction, poisoning, reason_of
from eos.client._window import Budget, Window
from eos.errors import (
    BrokerNotReady,
    EosError,
    MessageTooLarge,
    ProtocolError,
    broker_error,
)
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.transport.message_keys import MessageKeys
from eos.wire import commands
from eos.wire.batch import (
    EncodedBatch,
    Message,
    StickyKey,
    check_rows,
    encode_batches,
    rows_from_messages,
)
from eos.wire.commands import ProducerAccessMode
from eos.wire.encryption import encryption_bytes

METADATA_ROOM_BYTES: Final = 1024  # of the entry, which count towards the broker's limit
_MAX_NAME_CHARS: Final = 256


class EntryProducer:
    """Made by ``PulsarClient.entry_producer``. Safe for several threads.

    ``topic`` is the exact name, ``name`` the broker's. A failed one stays failed: open another.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        producer_id: int,
        timeout_s: float,
        budget: Budget,
        keys: MessageKeys | None = None,
        *,
        owns_connection: bool = False,
    ) -> None:
        self.topic = topic
        self.name = ""
        self.topic_epoch: int | None = None  # counts the topic's exclusive producers
        self._schema_version: bytes | None = None
        self._connection = connection
        self._owns_connection = owns_connection
        self._id = producer_id
        self._timeout_s = timeout_s
        self._budget = budget
        self._keys = keys
        # Reentrant: a failing send runs users' callbacks, which may send.
        self._send_lock = threading.RLock()
        self._transactions: set[Transaction] = set()  # under the window's lock
        self._window = Window(topic, budget, timeout_s=timeout_s, on_failure=self._poison_all)

    @property
    def max_batch_bytes(self) -> int:
        """The maximum batch payload that the broker accepts."""
        return self._connection.max_message_bytes - METADATA_ROOM_BYTES

    @property
    def is_usable(self) -> bool:
        """Whether it can still send: neither failed nor closed."""
        return self._window.is_open

    def check(self) -> None:
        """Check that it is usable.

        Raises:
            EosError: the reason of its failure; ``Fatal`` if it is closed.
        """
        with self._window.lock:
            self._window.check()

    @property
    def schema_version(self) -> bytes | None:
        """The schema version in the entries; None if it was opened without a schema."""
        return self._schema_version

    def open(
        self,
        schema: commands.SchemaInfo | None = None,
        *,
        encrypted: bool = False,
        access: ProducerAccessMode = ProducerAccessMode.SHARED,
        topic_epoch: int | None = None,
    ) -> None:
        """Open it at the broker, which chooses its name.

        Args:
            schema: of the messages: registered with the topic if it is missing; all entries have
                its version.
            encrypted: only encrypted entries will be sent.
            access: whether others may have producers on the topic.
            topic_epoch: of an earlier exclusive producer: refused if there was another one since.

        Raises:
            IncompatibleSchema: it is incompatible with the topic's schemas.
            EosError: the broker refuses, or does not answer.
        """
        doing = f"Opening a producer on {self.topic}"
        self._connection.listeners.add_producer(self._id, self)
        try:
            answer = self._connection.request(
                lambda request_id: commands.Producer(
                    topic=self.topic,
                    producer_id=self._id,
                    request_id=request_id,
                    encrypted=encrypted or None,
                    schema=schema,
                    # With a name that is reused after an abort, a broker with deduplication would
                    # drop entries as duplicates.
                    user_provided_producer_name=False,
                    access_mode=int(access) or None,
                    topic_epoch=topic_epoch,
                    txn_enabled=True,
                ),
                commands.ProducerSuccess,
                timeout_s=self._timeout_s,
                doing=doing,
            )
            if not answer.producer_ready:
                raise BrokerNotReady(f"{doing}: another producer has exclusive access.")
            if not 0 < len(answer.producer_name) <= _MAX_NAME_CHARS:
                raise ProtocolError(f"{doing}: a name of {len(answer.producer_name)} characters.")
        except BaseException:
            self._forget()  # the broker may have opened it
            raise
        self.name = answer.producer_name
        self.topic_epoch = answer.topic_epoch
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
        """Send one message. The future has its id once the broker has stored it.

        A value of None is a tombstone: a compacted topic drops the key. In a transaction the future
        may be ignored: ``commit`` waits for all. Its callbacks must not block: they run in the
        thread that reads acknowledgements.

        Raises:
            MessageTooLarge: it exceeds the broker's limit.
            EosError: the producer or the transaction is unusable. On any error the transaction is
                poisoned, as it lacks this message.
        """
        with poisoning(txn):
            message = Message(value, key, event_time_ms, own_properties(properties))
        (acknowledgement,) = self.send_many([message], txn=txn)
        return acknowledgement

    def send_many(
        self, messages: Iterable[Message], *, txn: Transaction | None = None
    ) -> list[Future[MessageId]]:
        """Send messages in as few entries as their size allows; return a future per entry."""
        with poisoning(txn):
            rows = rows_from_messages(list(messages))
            encryptor = None if self._keys is None else self._keys.encryptor()
            limit = self.max_batch_bytes - (encryptor.overhead_bytes if encryptor else 0)
            check_rows(rows, limit)
        with poisoning(txn, by_ours=False):
            return [
                self.send_batch(encryptor.encrypt(batch) if encryptor else batch, txn=txn)
                for batch in encode_batches(rows, limit)
            ]

    def send_batch(
        self,
        batch: EncodedBatch,
        *,
        txn: Transaction | None = None,
        deliver_at_ms: int | None = None,
    ) -> Future[MessageId]:
        """Send one encoded batch, as it is, as one entry; wait while too many bytes are in flight.

        ``deliver_at_ms``: see ``Producer.send``.

        Raises:
            RequestTimeout: acknowledgements stopped.
            EosError: the producer or the transaction is unusable.
        """
        size_bytes = len(batch.payload) + encryption_bytes(batch.encryption_keys)
        size_bytes += batch.sticky.size_bytes if batch.sticky else 0
        with poisoning(txn, by_ours=False):
            if txn is not None:
                txn.enlist(self)
        with poisoning(txn):
            if size_bytes > self.max_batch_bytes:
                raise MessageTooLarge(
                    f"An entry has {size_bytes} bytes; {self.topic} takes {self.max_batch_bytes}."
                )
        with poisoning(txn, by_ours=False), self._send_lock:
            # One lock from numbering to sending: entries are sent in the order of their numbers.
            entry = self._window.entry(size_bytes)
            try:
                sequence_id = self._window.admit(
                    entry, batch.num_messages, lambda: self._check_admission(txn)
                )
                self._send(sequence_id, batch, txn, deliver_at_ms)
            except BaseException as error:  # Ctrl-C as well: a part may have been sent
                if self._window.is_in_flight(entry):
                    self._window.fail(reason_of(error, f"Sending to {self.topic}"))
                raise
        return entry.acknowledgement

    def _check_admission(self, txn: Transaction | None) -> None:
        # Under the window's lock, which flush() takes: a commit either finds this entry in flight,
        # or this check finds the commit. So nothing is sent once a commit has begun (I3).
        if txn is not None:
            txn.check()
        with poisoning(txn):
            self._window.check()
        if txn is not None:
            self._transactions.add(txn)

    def _send(
        self,
        sequence_id: int,
        batch: EncodedBatch,
        txn: Transaction | None,
        deliver_at_ms: int | None,
    ) -> None:
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
                encryption_keys=batch.encryption_keys,
                encryption_param=batch.encryption_param,
                schema_version=self._schema_version,
                deliver_at_time=deliver_at_ms,
                txnid_most=most,
                txnid_least=least,
            ),
            batch.payload,
        )

    def flush(self, deadline: float = math.inf) -> None:
        """Wait until all entries sent before are acknowledged, or until ``deadline`` (monotonic).

        Raises:
            RequestTimeout: no acknowledgement came within the timeout; transactions are poisoned.
            EosError: the producer failed.
        """
        self._window.flush(deadline)

    def close_failed(self, deadline: float) -> None:
        """After a failure: wait until the broker has closed it, or until ``deadline``.

        Then it has stored all earlier entries. Raises nothing.
        """
        with contextlib.suppress(EosError):
            self._connection.request(
                self._close_command,
                commands.Success,
                timeout_s=max(0.0, min(self._timeout_s, deadline - time.monotonic())),
                doing=f"Closing the failed producer on {self.topic}",
            )

    def abandon(self) -> None:
        """Close it without waiting for the broker's answer. It must have nothing in flight."""
        if self._window.close():
            self._forget()

    def release(self, txn: Transaction) -> None:
        """``txn`` has ended: later failures of this producer do not concern it."""
        with self._window.lock:
            self._transactions.discard(txn)

    def close(self) -> None:
        """Flush, then close: afterwards no entry is in flight. May be called twice.

        Raises:
            EosError: an acknowledgement is missing, or the broker did not confirm the close.
        """
        if not self._window.close():  # from now on nothing is admitted
            return
        try:
            self.flush()
        except EosError:
            self._forget()
            raise
        self._connection.listeners.remove_producer(self._id)
        if self._owns_connection:
            self._connection.close()
        else:
            doing, timeout_s = f"Closing the producer on {self.topic}", self._timeout_s
            self._connection.request(
                self._close_command, commands.Success, timeout_s=timeout_s, doing=doing
            )
        with self._window.lock:
            self._transactions.clear()

    def transfer(self) -> EntryProducer:
        """Flush and close this object, and return a successor that keeps the broker's producer.

        The successor has sent nothing. This object sends nothing any more.

        Raises:
            EosError: an acknowledgement is missing, or the connection is lost.
        """
        self._window.close()
        try:
            self.flush()
            successor = EntryProducer(
                self._connection, self.topic, self._id, self._timeout_s, self._budget, self._keys
            )
            successor.name, successor._schema_version = self.name, self._schema_version
            # The sequence ids continue: a broker with deduplication drops entries with lower ones.
            successor._window = self._window.successor(successor._poison_all)
            self._connection.listeners.replace_producer(self._id, self, successor)
        except EosError:
            self._forget()
            raise
        with self._window.lock:
            self._transactions.clear()
        return successor

    def _forget(self) -> None:
        if self._owns_connection:
            # CLOSE_PRODUCER beside an open that fences it can stop the broker for good (measured).
            self._connection.close()
        else:
            self._connection.listeners.remove_producer(self._id)
            self._connection.notify(self._close_command)

    def _close_command(self, request_id: int) -> commands.CloseProducer:
        return commands.CloseProducer(producer_id=self._id, request_id=request_id)

    # --- ProducerListener: called by the connection's reading thread ------------------------

    def on_send_receipt(self, answer: commands.SendReceipt) -> None:
        """Complete the entry that ``answer`` acknowledges."""
        message_id = None if answer.message_id is None else answer.message_id.message_id()
        if message_id is None:
            self._window.fail(ProtocolError(f"An acknowledgement on {self.topic} has no id."))
        # I4: a message that the broker dropped as a duplicate does not count as sent.
        elif message_id.is_dropped:
            self._window.fail(
                ProtocolError(f"The broker dropped an entry on {self.topic} as a duplicate.")
            )
        elif not self._window.acknowledge(answer.sequence_id, message_id):
            self._window.fail(ProtocolError(f"An acknowledgement on {self.topic} was unexpected."))

    def on_send_error(self, error: commands.SendError) -> None:
        """The broker rejected an entry."""
        self.on_closed(broker_error(error.error, error.message, doing=f"Sending to {self.topic}"))

    def on_closed(self, reason: EosError) -> None:
        """The broker closed the producer, or the connection ended."""
        self._window.fail(reason)

    def _poison_all(self, reason: EosError) -> None:
        for txn in self._transactions:
            # I4: a send in doubt must keep its transaction from being committed.
            txn.poison(reason)
