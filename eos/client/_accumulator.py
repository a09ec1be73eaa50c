"""Messages that wait to be sent together, and the futures that their senders have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures._base import FINISHED, RUNNING
from dataclasses import dataclass, field
from typing import Any, Final

from eos._waiting import Monitor
from eos.client._transaction import Transaction
from eos.errors import EosError, Fatal, InputError
from eos.ids import MessageId
from eos.wire.batch import Message, check_rows, rows_from_messages

_OVERHEAD_BYTES: Final = 48
_PAIR_OVERHEAD_BYTES: Final = 18
_TIME_END: Final = 2**63


class _ListWhenAsked:
    """An attribute that is a list of its own from when it is first asked for.

    Hardly anybody asks, and a list that waits costs the garbage collector as much as its owner.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, future: MessageFuture, owner: type) -> list[Any]:
        made: list[Any] = []
        setattr(future, self._name, made)  # found first from now on
        future.is_watched = True
        return made


class MessageFuture(Future[MessageId]):
    """Of one message among many: those that go out together share one lock, and end together.

    A ``Future`` has a lock of its own, which costs more than all else about a small message, and
    behind it the garbage collector, which looks at all that is kept again and again.

    Attributes:
        is_watched: there are callbacks, or others wait (``concurrent.futures.wait``).
    """

    _waiters = _ListWhenAsked()
    _done_callbacks = _ListWhenAsked()
    is_watched = False

    _condition: Monitor  # type: ignore[assignment]

    def __init__(self, shared: Monitor) -> None:
        self._condition = shared
        self._state = RUNNING  # nobody can call back what is sent
        self._result = None
        self._exception = None

    @property
    def shared(self) -> Monitor:
        """The lock."""
        return self._condition

    def result(self, timeout: float | None = None) -> MessageId:
        """As any ``Future``."""
        self._await(timeout)
        return super().result(0)._replace(batch_index=self._batch_index)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As any ``Future``."""
        self._await(timeout)
        return super().exception(0)

    def _await(self, timeout: float | None) -> None:
        if self._state != FINISHED:
            with self._condition:  # others that share it may end first
                self._condition.wait_for(lambda: self._state == FINISHED, timeout)

    def end_locked(self, entry: MessageId | None, index: int, reason: EosError | None) -> None:
        """Under the shared lock, whose waiters are woken behind it.

        Args:
            entry: which it is stored in; None when it failed.
            index: its place there.
        """
        self._batch_index = index
        self._result, self._exception, self._state = entry, reason, FINISHED
        if self.is_watched:
            for waiter in self._waiters:
                if reason is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)

    def call_back(self) -> None:
        """Behind the lock: users' callbacks."""
        if self.is_watched:
            self._invoke_callbacks()  # type: ignore[attr-defined]


@dataclass(eq=False)
class PendingBatch:
    """What goes out together: of one transaction, or of none.

    Attributes:
        key_type: of its keys; text and bytes can't stand in one column. None: no key yet.
        is_leaving: it is being sent, and can't be dropped any more.
        size_bytes: an upper bound of what the messages take.
    """

    txn: Transaction | None
    key_type: type | None = None
    is_leaving: bool = False
    size_bytes: int = 0
    messages: list[Message] = field(default_factory=list)
    futures: list[MessageFuture] = field(default_factory=list)
    shared: Monitor = field(default_factory=Monitor)

    def takes(self, txn: Transaction | None, key: str | bytes | None) -> bool:
        """Whether such a message may go with the others."""
        return self.txn is txn and (
            key is None or self.key_type is None or self.key_type is type(key)
        )

    def fail(self, reason: EosError) -> None:
        """End the futures that have not ended."""
        fail_all(self.futures, reason)


def fail_all(futures: Sequence[MessageFuture], reason: EosError) -> None:
    """End those of ``futures`` that have not ended."""
    _end([one for one in futures if not one.done()], None, reason)


def settle(futures: Sequence[MessageFuture], partition: int, entry: Future[MessageId]) -> None:
    """End the ``futures`` of one entry's messages as the entry's own has ended."""
    reason = entry.exception()
    if reason is None:
        _end(futures, entry.result()._replace(partition=partition), None)
    else:
        _end(futures, None, reason if isinstance(reason, EosError) else Fatal(str(reason)))


def _end(
    futures: Sequence[MessageFuture], entry: MessageId | None, reason: EosError | None
) -> None:
    """Of one batch, all at once."""
    if not futures:
        return
    with futures[0].shared:
        for index, future in enumerate(futures):
            future.end_locked(entry, index, reason)
        futures[0].shared.notify_all()
    for future in futures:
        future.call_back()


def checked(
    value: bytes | None,
    key: str | bytes | None,
    event_time_ms: int | None,
    properties: Mapping[str, str] | None,
    max_bytes: int,
) -> tuple[Message, int]:
    """A message of the sender's own, and an upper bound of its size in bytes.

    It is looked at now because nobody waits any more when it is encoded.

    Raises:
        InputError: it can't be written.
        MessageTooLarge: it exceeds ``max_bytes``.
    """
    message = _copied(value, key, event_time_ms, properties)
    if not _is_plain(message):
        # The slow way, for what is seldom: the encoder's own checks say what is wrong.
        check_rows(rows_from_messages([message]), max_bytes)
    size_bytes = _OVERHEAD_BYTES + len(message.value or b"") + 4 * len(message.key or b"")
    if properties:
        for name, text in properties.items():
            size_bytes += _PAIR_OVERHEAD_BYTES + 4 * (len(name) + len(text))
    if size_bytes > max_bytes:
        check_rows(rows_from_messages([message]), max_bytes)
    return message, size_bytes


def _copied(
    value: bytes | None,
    key: str | bytes | None,
    event_time_ms: int | None,
    properties: Mapping[str, str] | None,
) -> Message:
    """What the sender may change later is copied."""
    if type(value) is bytes and properties is None:
        return Message(value, key, event_time_ms)
    if not isinstance(value, bytes | bytearray | memoryview | None):
        raise InputError(
            f"a message's value is of type {type(value).__name__}: it must be bytes.",
            hint='Encode it, for example text.encode("utf-8").',
        )
    own = None if value is None else bytes(value)
    return Message(own, key, event_time_ms, dict(properties) if properties else None)


def _is_plain(message: Message) -> bool:
    """Whether nothing of it can be wrong but its size."""
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
