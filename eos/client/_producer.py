"""A producer that sends messages in batches, to the partitions of their keys."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Literal, Self

import numpy as np

from eos.client._accumulator import (
    MessageFuture,
    PendingBatch,
    check_delivery_time,
    checked_message,
    complete_all,
    fail_all,
)
from eos.client._entry_producer import EntryProducer
from eos.client._timer import Timer
from eos.client._transaction import Transaction, poisoning, reason_of
from eos.errors import ConfigurationError, EosError, Fatal
from eos.forking import process
from eos.ids import MessageId, TopicName
from eos.transport.message_keys import MessageKeys
from eos.wire.batch import (
    EncodedBatch,
    Hashing,
    Rows,
    encode_batches,
    longest_key_bytes,
    partitions_for_keys,
    rows_from_messages,
)


@dataclass(frozen=True)
class BatchLimits:
    """The options of batching; see ``PulsarClient.producer``.

    Raises:
        ConfigurationError: an option is out of range.
    """

    linger_ms: float
    max_messages: int
    max_bytes: int
    hashing: Literal["java", "murmur3"]
    batching: Literal["by_size", "by_key"]

    def __post_init__(self) -> None:
        if not 0 <= self.linger_ms <= 60_000:
            raise ConfigurationError(f"linger_ms must be 0 to 60000, not {self.linger_ms!r}.")
        for name in ("max_messages", "max_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(
                    f"{name.replace('max_', 'max_batch_')} must be above zero, "
                    f"not {getattr(self, name)!r}."
                )
        if self.hashing not in list(Hashing):
            raise ConfigurationError(f"hashing must be java or murmur3, not {self.hashing!r}.")
        if self.batching not in ("by_size", "by_key"):
            raise ConfigurationError(f"batching must be by_size or by_key, not {self.batching!r}.")


class Producer:
    """Made by ``PulsarClient.producer``. Safe for several threads.

    Messages of one key arrive in the order in which they were sent. With several partitions,
    messages without a key arrive in any order: each batch of them goes to the next partition.
    Partitions that are added later get nothing. A failed producer stays failed; create a new one.

    A callback of a future must not block: it runs in the thread that reads acknowledgements.
    """

    def __init__(
        self,
        topic: str,
        producers: Sequence[EntryProducer],
        limits: BatchLimits,
        timer: Timer,
        keys: MessageKeys | None = None,
    ) -> None:
        self.topic = topic
        self._producers = producers
        self._partitions = [_partition(one) for one in producers]
        self._limits = limits
        self._timer = timer
        # The limits of an entry, times the partitions: a batch is spread over them by key.
        self._max_messages = limits.max_messages * len(producers)
        self._keys = keys
        encryptor = None if keys is None else keys.encryptor()
        self._max_message_bytes = min(one.max_batch_bytes for one in producers)
        self._max_message_bytes -= encryptor.overhead_bytes if encryptor else 0
        self._max_entry_bytes = min(limits.max_bytes, self._max_message_bytes)
        self._max_bytes = self._max_entry_bytes * len(producers)
        self._turn = 0
        # One thread sends at a time. Reentrant: failing futures run users' callbacks.
        self._sending = threading.RLock()
        self._wanted = -1  # under it: the number of the last batch to send
        self._is_in_loop = False  # under it
        self._lock = threading.Lock()
        self.made_in_process = process.pid
        self._numbers = itertools.count()
        self._pending: deque[PendingBatch] = deque()  # only the last one accepts messages
        self._open: PendingBatch | None = None
        self._closed = False

    def send(
        self,
        value: bytes | None,
        *,
        txn: Transaction | None = None,
        key: str | bytes | None = None,
        event_time_ms: int | None = None,
        properties: Mapping[str, str] | None = None,
        deliver_at_ms: int | None = None,
    ) -> Future[MessageId]:
        """Send one message, in a batch. The future has its id once the broker has stored it.

        ``deliver_at_ms`` (since 1970): consumers of the types shared and key_shared get it then.

        It waits while too many bytes are in flight. In a transaction the future may be ignored:
        ``commit`` sends pending messages and waits for all of them; ``abort`` drops them.

        Raises:
            InputError: the message can't be written.
            MessageTooLarge: it exceeds the broker's limit.
            EosError: the producer or the transaction is unusable. The transaction is poisoned, as
                it lacks this message.
        """
        future, send_full = self.enqueue(
            *(value, txn, key, event_time_ms, properties, deliver_at_ms)
        )
        if send_full is not None:
            send_full()
        return future

    @property
    def is_usable(self) -> bool:
        """Whether it can still send: neither failed nor closed."""
        return not self._closed and all(one.is_usable for one in self._producers)

    def enqueue(
        self,
        value: bytes | None,
        txn: Transaction | None,
        key: str | bytes | None,
        event_time_ms: int | None,
        properties: Mapping[str, str] | None,
        deliver_at_ms: int | None = None,
    ) -> tuple[MessageFuture, Callable[[], None] | None]:
        """``send`` that never waits: the caller must call the function that it returns, if any.

        The function sends full batches and may wait.

        Raises:
            EosError: as ``send``.
        """
        if self.made_in_process != process.pid:
            raise process.refusal(self)
        try:
            return self._enqueue(value, txn, key, event_time_ms, properties, deliver_at_ms)
        except EosError:
            raise  # it has poisoned the transaction, unless that is ending
        except BaseException as error:  # Ctrl-C as well
            if txn is not None:
                txn.poison(reason_of(error, "Sending"))
            raise

    def _enqueue(
        self,
        value: bytes | None,
        txn: Transaction | None,
        key: str | bytes | None,
        event_time_ms: int | None,
        properties: Mapping[str, str] | None,
        deliver_at_ms: int | None,
    ) -> tuple[MessageFuture, Callable[[], None] | None]:
        try:
            message, size_bytes = checked_message(
                *(value, key, event_time_ms, properties, self._max_message_bytes),
                by_key=self._limits.batching == "by_key",
            )
            if deliver_at_ms is not None:
                check_delivery_time(deliver_at_ms)
        except EosError as error:
            if txn is not None:
                txn.poison(error)
            raise
        with self._lock:
            batch = self._open
            is_first = batch is None or not batch.accepts(txn, key, deliver_at_ms)
            self._check(txn, is_first=is_first)
            if batch is None or is_first:
                batch = self._open = PendingBatch(next(self._numbers), txn, deliver_at_ms)
                self._pending.append(batch)
            if key is not None:
                batch.key_type = type(key)
            future = MessageFuture(batch.shared)
            del batch.futures[len(batch.messages) :]  # Ctrl-C may have left one here
            batch.futures.append(future)
            batch.messages.append(message)
            batch.size_bytes += size_bytes
            is_full = (
                len(batch.messages) >= self._max_messages or batch.size_bytes >= self._max_bytes
            )
            if is_full:
                self._open = None
        send_it = partial(self._send_pending, batch)
        if not batch.is_scheduled:  # also if it is full: its caller may be interrupted here
            try:
                self._timer.call_after(self._limits.linger_ms / 1000, send_it, self)
            except BaseException as error:  # a call that raises must have sent nothing
                dropped = self._drop(lambda one: one is batch)
                for one in dropped:
                    _fail(one, error)
                if dropped or not isinstance(error, Exception):
                    raise  # otherwise another thread sends it already
            batch.is_scheduled = True
        return future, send_it if is_full else None

    def _check(self, txn: Transaction | None, *, is_first: bool) -> None:
        # Under the lock, which a commit takes after it has marked the transaction as ending: it
        # finds this message pending, or the message is refused.
        if txn is not None:
            txn.admit_lingering(self)
        if self._closed or is_first:
            with poisoning(txn):
                for producer in self._producers:
                    producer.check()
                if self._closed:
                    raise Fatal(f"The producer on {self.topic} is closed.")

    def send_lingering(self) -> None:
        """Send all pending messages now; a failure is set in their futures and transactions."""
        with self._lock:
            last = self._pending[-1] if self._pending else None
        if last is not None:
            self._send_pending(last)
        with self._sending:
            pass  # batches that another thread has taken are sent

    def drop_lingering(self, txn: Transaction, reason: EosError) -> None:
        """Drop the pending messages of ``txn``, which is being aborted."""
        for batch in self._drop(lambda one: one.txn is txn):
            batch.fail(reason)

    def _drop(self, chosen: Callable[[PendingBatch], bool]) -> list[PendingBatch]:
        with self._lock:
            dropped = [one for one in self._pending if chosen(one) and not one.is_sending]
            self._pending = deque(one for one in self._pending if one not in dropped)
            if self._open in dropped:
                self._open = None
        return dropped

    def _send_pending(self, last: PendingBatch) -> None:
        """Send pending batches in order, up to ``last``, unless another thread has done so."""
        with self._sending:  # one batch after the other: the messages of a key stay in order
            self._wanted = max(self._wanted, last.number)
            if self._is_in_loop:  # a callback in ``_send`` sends more: the loop goes there later
                return
            self._is_in_loop = True
            try:
                while (batch := self._first_wanted()) is not None:
                    self._send_first(batch)
            finally:
                self._is_in_loop = False

    def _send_first(self, batch: PendingBatch) -> None:
        try:
            self._send(batch)
        except BaseException as error:  # Ctrl-C as well: nothing else will send it
            _fail(batch, error)
            if not isinstance(error, Exception):
                raise
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._pending.remove(batch)

    def _first_wanted(self) -> PendingBatch | None:
        with self._lock:
            # By its number: an abort may have dropped the last wanted one itself.
            if not self._pending or self._pending[0].number > self._wanted:
                return None
            # The oldest first: if a full batch overtook it, a key's order would be lost.
            batch = self._pending[0]
            if batch is self._open:
                self._open = None
            batch.is_sending = True
            return batch

    def _send(self, batch: PendingBatch) -> None:
        rows = rows_from_messages(batch.messages)
        partitions = self._routed(rows)
        used = np.unique(partitions)
        if batch.txn is not None:
            batch.txn.register([self._producers[number].topic for number in used])
        for number in used:
            chosen = np.flatnonzero(partitions == number)
            for encoded, futures in self._entries(batch, rows, chosen):
                try:
                    entry = self._producers[number].send_batch(
                        encoded, txn=batch.txn, deliver_at_ms=batch.deliver_at_ms
                    )
                except EosError as error:  # other partitions may work
                    fail_all(futures, error)
                else:
                    entry.add_done_callback(
                        partial(complete_all, futures, self._partitions[number])
                    )

    def _routed(self, rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        count = len(self._producers)
        self._turn = (self._turn + 1) % count
        if rows.key is None or count == 1:
            return np.full(len(rows), self._turn, np.int32)
        hashing = Hashing(self._limits.hashing)
        return partitions_for_keys(rows.key, count, keyless_partition=self._turn, hashing=hashing)

    def _entries(
        self, batch: PendingBatch, rows: Rows, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> Iterator[tuple[EncodedBatch, list[MessageFuture]]]:
        """Yield the entries of the rows ``chosen``, with their messages' futures in order."""
        by_key = self._limits.batching == "by_key"
        # In the order of the entries: each future belongs to its own message.
        order = _grouped_by_key(batch, chosen.tolist()) if by_key else chosen.tolist()
        is_all = len(order) == len(rows) and not by_key
        taken = rows if is_all else rows.take(np.array(order, np.int64))
        limit = self._max_entry_bytes
        if by_key:  # the entry repeats the key
            limit = min(limit, self._max_message_bytes - longest_key_bytes(taken))
        start = 0
        encryptor = None if self._keys is None else self._keys.encryptor()
        for encoded in encode_batches(taken, limit, self._limits.max_messages, by_key=by_key):
            stop = start + encoded.num_messages
            entry = encryptor.encrypt(encoded) if encryptor else encoded
            yield entry, [batch.futures[row] for row in order[start:stop]]
            start = stop

    def flush(self) -> None:
        """Send pending messages, and wait until the broker has acknowledged all sent messages.

        Raises:
            RequestTimeout: acknowledgements stopped; transactions are poisoned.
            EosError: the producer failed.
        """
        self.send_lingering()
        for producer in self._producers:
            producer.flush()

    def close(self) -> None:
        """Flush, then close. May be called twice.

        Raises:
            EosError: an acknowledgement is missing, or the broker did not confirm the close.
        """
        with self._lock:
            self._closed = True
        self.send_lingering()
        with contextlib.ExitStack() as closing:  # all of them, also if one fails
            for producer in self._producers:
                closing.callback(producer.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _partition(producer: EntryProducer) -> int:
    index = TopicName.parse(producer.topic).partition_index
    return -1 if index is None else index


def _grouped_by_key(batch: PendingBatch, rows: list[int]) -> list[int]:
    """Return ``rows`` in the order of an encoding by key."""
    groups: dict[str | bytes | None, list[int]] = {}
    for row in rows:
        groups.setdefault(batch.messages[row].key, []).append(row)
    return [row for group in groups.values() for row in group]


def _fail(batch: PendingBatch, error: BaseException) -> None:
    reason = reason_of(error, "Sending a batch")
    if batch.txn is not None:
        batch.txn.poison(reason)
    batch.fail(reason)
