"""Batches of messages to be sent together, and the futures of their senders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from dataclasses import dataclass, field
from typing import Any, Final

from eos.client._transaction import Transaction
from eos.errors import EosError, Fatal, InputError
from eos.ids import MessageId
from eos.waiting import Monitor
from eos.wire.batch import Message, check_rows, longest_key_bytes, rows_from_messages

_OVERHEAD_BYTES: Final = 48
_PAIR_OVERHEAD_BYTES: Final = 18
_TIME_END: Final = 2**63


class _LazyList:
    """An attribute that becomes a list at its first use."""

    # It is rarely used, and each unused list would cost the garbage collector as much as its owner.

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: MessageFuture, owner: type) -> list[Any]:
        made: list[Any] = []
        setattr(future, self._name, made)  # hides this descriptor from now on
        future.is_watched = True
        return made


class MessageFuture(Future[MessageId]):
    """The future of one message. All futures of a batch share one lock and complete together."""

    # A ``Future`` with its own lock would cost more than all other work for a small message, also
    # in the garbage collector, which scans living objects repeatedly.

    _waiters = _LazyList()
    _done_callbacks = _LazyList()
    is_watched = False  # by callbacks or waiters (``concurrent.futures.wait``)
    _condition: Monitor  # type: ignore[assignment]

    def __init__(self, shared: Monitor) -> None:
        self._condition = shared
        self._state = RUNNING  # a sent message can't be cancelled
        self._entry: MessageId | None = None
        self._exception = None

    @property
    def shared(self) -> Monitor:
        """The lock of the batch."""
        return self._condition

    def result(self, timeout: float | None = None) -> MessageId:
        """As ``Future.result``."""
        self._await(timeout)
        return super().result(0)

    @property
    def _result(self) -> MessageId | None:  # type: ignore[override]
        # Not only ``result`` reads it: since Python 3.14 asyncio copies it itself.
        # The broker acknowledges the entry: without its index, each future names the first message.
        return self._entry and self._entry._replace(batch_index=self._batch_index)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As ``Future.exception``."""
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if self._state != FINISHED:
            with self._condition:  # a notification may be for other futures
                self._condition.wait_for(lambda: self._state == FINISHED, timeout)

    def complete_locked(self, entry: MessageId | None, index: int, reason: EosError | None) -> None:
        """Set the result, under the shared lock: ``index`` in ``entry``, or the reason."""
        self._batch_index = index
        self._entry, self._exception, self._state = entry, reason, FINISHED
        if self.is_watched:
            for waiter in self._waiters:
                if reason is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def invoke_callbacks(self) -> None:
        """Call users' callbacks, without the lock."""
        if self.is_watched:
            self._invoke_callbacks()  # type: ignore[attr-defined]


@dataclass(eq=False)
class PendingBatch:
    """Messages to be sent together, all in one transaction or in none, for the same time."""

    number: int  # of its producer's batches, in the order in which they are sent
    txn: Transaction | None
    deliver_at_ms: int | None = None
    key_type: type | None = None  # str and bytes can't share a column; None: no key yet
    is_sending: bool = False  # it can't be dropped any more
    is_scheduled: bool = False  # the timer will send it
    size_bytes: int = 0  # an upper bound
    messages: list[Message] = field(default_factory=list)
    futures: list[MessageFuture] = field(default_factory=list)
    shared: Monitor = field(default_factory=Monitor)

    def accepts(
        self, txn: Transaction | None, key: str | bytes | None, deliver_at_ms: int | None
    ) -> bool:
        """Whether such a message fits into the batch."""
        is_of_key_type = key is None or self.key_type is None or self.key_type is type(key)
        return self.txn is txn and is_of_key_type and self.deliver_at_ms == deliver_at_ms

    def fail(self, reason: EosError) -> None:
        """Fail the futures that are not done."""
        fail_all(self.futures, reason)


def fail_all(futures: Sequence[MessageFuture], reason: EosError) -> None:
    """Fail those of ``futures`` that are not done."""
    _complete([one for one in futures if not one.done()], None, reason)


def complete_all(
    futures: Sequence[MessageFuture], partition: int, entry: Future[MessageId]
) -> None:
    """Complete the ``futures`` of one entry's messages with the result of ``entry``."""
    reason = entry.exception()
    if reason is None:
        _complete(futures, entry.result()._replace(partition=partition), None)
    else:
        _complete(futures, None, reason if isinstance(reason, EosError) else Fatal(str(reason)))


def _complete(
    futures: Sequence[MessageFuture], entry: MessageId | None, reason: EosError | None
) -> None:
    if not futures:
        return
    with futures[0].shared:
        for index, future in enumerate(futures):
            future.complete_locked(entry, index, reason)
        futures[0].shared.notify_all()
    for future in futures:
        future.invoke_callbacks()


def checked_message(
    value: bytes | None,
    key: str | bytes | None,
    event_time_ms: int | None,
    properties: Mapping[str, str] | None,
    max_bytes: int,
    *,
    by_key: bool = False,
) -> tuple[Message, int]:
    """Return a copy of the message, and an upper bound of its size in bytes.

    ``by_key``: its entry repeats the key.

    Raises:
        InputError: it can't be written.
        MessageTooLarge: it exceeds ``max_bytes``.
    """
    # Checked now, because its sender no longer waits when it is encoded.
    message = _copied(value, key, event_time_ms, properties)
    if not _is_plain(message):
        # The slow path, for rare messages: the encoder's checks raise the precise error.
        _check(message, max_bytes, by_key=by_key)
    key_bytes = 4 * len(message.key or b"") * (1 + by_key)
    size_bytes = _OVERHEAD_BYTES + len(message.value or b"") + key_bytes
    if properties:
        for name, text in properties.items():
            size_bytes += _PAIR_OVERHEAD_BYTES + 4 * (len(name) + len(text))
    if size_bytes > max_bytes:
        _check(message, max_bytes, by_key=by_key)
    return message, size_bytes


def _check(message: Message, max_bytes: int, *, by_key: bool) -> None:
    rows = rows_from_messages([message])
    check_rows(rows, max_bytes - (longest_key_bytes(rows) if by_key else 0))


def check_delivery_time(deliver_at_ms: int) -> None:
    """Check that the time can be sent.

    Raises:
        InputError: it can't.
    """
    if type(deliver_at_ms) is not int or not 0 <= deliver_at_ms < _TIME_END:
        raise InputError(
            f"deliver_at_ms={deliver_at_ms!r:.50}: expected milliseconds since 1970, as an int."
        )


def _copied(
    value: bytes | None,
    key: str | bytes | None,
    event_time_ms: int | None,
    properties: Mapping[str, str] | None,
) -> Message:
    """Copy values that the sender may change later."""
    if type(value) is bytes and properties is None:
        return Message(value, key, event_time_ms)
    if not isinstance(value, bytes | bytearray | memoryview | None):
        raise InputError(
            f"A message's value must be bytes, not {type(value).__name__}.",
            hint='Encode it, for example text.encode("utf-8").',
        )
    own = None if value is None else bytes(value)
    return Message(own, key, event_time_ms, own_properties(properties))


def own_properties(properties: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return a copy of a message's properties; None if it is empty.

    Raises:
        InputError: they are not a mapping.
    """
    if not isinstance(properties, Mapping | None):
        raise InputError(
            f"A message's properties must be a mapping, not {type(properties).__name__}."
        )
    return dict(properties) if properties else None


def _is_plain(message: Message) -> bool:
    """Whether the message is valid except for its size, by a fast check."""
    key, time_ms, properties = message.key, message.event_time_ms, message.properties
    if message.value is not None and key is None and time_ms is None and properties is None:
        return True
    return (
        message.value is not None
        and (key is None or type(key) is bytes or (type(key) is str and key.isascii()))
        and (time_ms is None or (type(time_ms) is int and 0 <= time_ms < _TIME_END))
        and (
            properties is None
            or all(
                type(text) is str and text.isascii() for pair in properties.items() for text in pair
            )
        )
    )
