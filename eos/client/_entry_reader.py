"""A reader on one exact topic: its entries as they are stored, one after the other.

It sees what a consumer's library hides: each entry's transaction and its producer's name. The
broker decides what is readable: nothing of an aborted transaction, nothing at or behind the first
entry of one that is open.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from eos._waiting import Monitor
from eos.client._subscriptions import closing, subscribe
from eos.errors import ConfigurationError, ConnectionLost, EosError, Fatal, ProtocolError
from eos.ids import MessageId
from eos.transport.connection import Connection
from eos.transport.rules import ClusterRules
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.commands import MessageIdData
from eos.wire.frames import Delivery

PERMITS: Final = 1000
"""How many messages the broker may have under way to us. It counts messages, and reads at most as
many entries as it has permits, so no more entries than that ever wait here. It gets none before
somebody reads: one that has permits and nothing to send looks for more every 10 ms only, when an
entry has come at the wrong moment (measured)."""

ONE_PERMIT: Final = 1
"""Permits of a reader that must not miss an entry. What a broker has read at once it drops without
a word where the numbers of messages that its entries claim add up to 0 (``Consumer.sendMessages``;
measured): a single entry takes no other with it."""

MAX_WAITING_BYTES: Final = 64 * 1024 * 1024
"""How much may wait here before it is read. Permits can't keep to it, as entries differ in size."""

_LONGEST_WAIT_S: Final = 3600.0
_MOST_GRANTED: Final = 2**31 - 1
"""In one FLOW: an entry may claim to hold as many messages as it likes."""


def new_subscription(rules: ClusterRules) -> str:
    """Return a unique subscription name for a reader."""
    return rules.subscription(f"eos-reader-{uuid.uuid4().hex}")


def checked_start(start: MessageId | None) -> MessageId | None:
    """Check that a reader can begin at ``start``, and return it.

    Raises:
        ConfigurationError: it is neither None nor a ``MessageId``.
    """
    if start is None or isinstance(start, MessageId):
        return start
    raise ConfigurationError(
        f"start must be an eos.ids.MessageId or None, not {start!r}.",
        hint="None begins at the topic's first entry, MessageId(ledger, entry) at that one; "
        "client.topic_bounds(topic) has the topic's end, and the entry of a publish time.",
    )


class EntryReader:
    """Made by ``PulsarClient.reader``; for one thread at a time.

    A failed reader stays failed; make a new one that begins behind the last entry that was read.

    Args:
        consumer_ids: numbers that nobody uses again on ``connection``.
        start: the first entry that is wanted; None: the topic's first.
        permits: how many messages the broker may have under way; for one entry only, 1.
        rules: for names at the broker.
        subscription: the one there; None: of a name that nobody else has.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        consumer_ids: Iterator[int],
        start: MessageId | None,
        rules: ClusterRules,
        *,
        timeout_s: float,
        permits: int = PERMITS,
        subscription: str | None = None,
    ) -> None:
        self.topic = topic
        self._connection = connection
        self._consumer_ids = consumer_ids
        self._timeout_s = timeout_s
        self._next = None if start is None else MessageId(start.ledger, start.entry)
        self._permits = permits
        self._rules = rules
        self._subscription = subscription or new_subscription(rules)
        self._last: MessageId | None = None  # the last one that is wanted; None: all that come
        self._closed = False
        self._changed = Monitor()
        # Under the condition:
        self._id = next(consumer_ids)
        self._credit = 0  # what the broker has of the permits that it was given
        self._may_come = 0  # entries: each takes a permit at least
        self._queue: deque[Delivery] = deque()
        self._waiting_bytes = 0
        self._is_out_of_step = False
        self._failure: EosError | None = None

    @property
    def next_id(self) -> MessageId | None:
        """Behind the last entry that was read; None: the topic's first."""
        return self._next

    @property
    def is_usable(self) -> bool:
        """Whether it can go on: neither failed nor closed."""
        with self._changed:
            return self._failure is None and self._connection.is_alive

    def open(self) -> None:
        """SUBSCRIBE without a durable cursor.

        Raises:
            TopicNotFound: there is no such topic.
            EosError: the broker refuses, or does not answer.
        """
        self._connection.add_consumer(self._id, self)
        try:
            subscribe(
                self._connection,
                self._subscribe_command,
                timeout_s=self._timeout_s,
                doing=f"Opening a reader on {self.topic}",
            )
        except BaseException:
            self._connection.remove_consumer(self._id)
            raise

    def _subscribe_command(self, request_id: int) -> commands.Subscribe:
        return commands.Subscribe(
            topic=self.topic,
            subscription=self._subscription,
            subscription_type=commands.SubscriptionType.EXCLUSIVE,
            consumer_id=self._id,
            request_id=request_id,
            durable=False,
            start_message_id=None if self._next is None else MessageIdData.of_entry(self._next),
            initial_position=commands.InitialPosition.EARLIEST,
            force_topic_creation=False,
        )

    def read(self, deadline: float) -> Iterator[Entry]:
        """The entries from where the last reading stopped, as they become readable.

        Ends when ``deadline`` passes, on the clock of ``time.monotonic``, and not before: a pause
        says nothing about what will become readable.

        Raises:
            ConnectionLost: the connection is gone, or the broker closed the reader.
            ProtocolError: an entry is malformed.
            Fatal: the reader is closed.
        """
        self._last = None
        yield from self._read(deadline)

    def read_to(self, last: MessageId, deadline: float) -> Iterator[Entry]:
        """``read`` for who wants nothing behind ``last``, which is stored: the broker may send no
        more than that, in the same ledger. To stop there is the caller's business.

        Raises:
            EosError: as ``read``.
        """
        self._last = last
        yield from self._read(deadline)

    def _read(self, deadline: float) -> Iterator[Entry]:
        while (delivery := self._take(deadline)) is not None:
            try:
                entry = Entry.of(delivery)
            except ProtocolError as error:
                self._end(error)  # going on behind it would lose it without a word
                raise
            with self._changed:
                self._credit -= entry.num_messages
                # The broker subtracts what an entry says that it has: a negative count adds
                # permits, and enough of them overflow, so that nothing comes any more (measured).
                self._is_out_of_step |= (entry.metadata.num_messages_in_batch or 1) < 0
            # With a start past its end the broker delivers the whole topic again (measured).
            at = MessageId(entry.id.ledger, entry.id.entry)
            if self._next is None or at >= self._next:
                self._next = MessageId(at.ledger, at.entry + 1)
                yield entry

    def _take(self, deadline: float) -> Delivery | None:
        self._permit()
        while (left_s := deadline - time.monotonic()) > 0:
            with self._changed:
                if self._queue:
                    delivery = self._queue.popleft()
                    self._waiting_bytes -= len(delivery.body)
                    return delivery
                if self._failure is not None:
                    raise copy.copy(self._failure)
                is_out_of_step = self._is_out_of_step
                if not is_out_of_step:
                    self._changed.wait(min(left_s, _LONGEST_WAIT_S))
            if is_out_of_step:
                self._open_again()
                self._permit()
        return None

    def _permit(self) -> None:
        """Let the broker send more, once it has half of what is wanted or less."""
        wanted, at, last = self._permits, self._next, self._last
        if at is not None and last is not None and at.ledger == last.ledger:
            wanted = min(wanted, last.entry - at.entry + 1)
        with self._changed:
            missing = wanted - self._credit
            if missing <= 0 or missing < wanted / 2:
                return
            missing = min(missing, _MOST_GRANTED)
            self._credit += missing
            self._may_come = self._credit - len(self._queue)
        self._connection.notify(lambda _: commands.Flow(consumer_id=self._id, permits=missing))

    def _open_again(self) -> None:
        """Subscribe anew behind what was read: what there was no room for comes again, and fewer at
        once."""
        self._connection.remove_consumer(self._id)
        self._connection.notify(closing(self._id))
        self._subscription = new_subscription(self._rules)  # the old one may not be closed yet
        with self._changed:
            self._id = next(self._consumer_ids)  # what is still under way to the old one is dropped
            self._is_out_of_step = False
            self._credit = self._may_come = 0
        try:
            self.open()
        except BaseException:  # Ctrl-C as well: nothing would ever come, and nobody would say so
            self._end(ConnectionLost(f"The reader on {self.topic} could not go on."))
            raise

    def acknowledge(self) -> None:
        """Acknowledge what was read, for who looks at the topic's subscriptions: one that never
        moves looks stuck. Does not wait for an answer."""
        if self._next is not None and self._next.entry:
            last = MessageIdData.of_entry(MessageId(self._next.ledger, self._next.entry - 1))
            kind = commands.AckType.CUMULATIVE
            self._connection.notify(
                lambda _: commands.Ack(consumer_id=self._id, ack_type=kind, message_ids=(last,))
            )

    def last_id(self, timeout_s: float) -> MessageId | None:
        """The last entry that is readable now; None when there is none.

        Never a marker, never an aborted entry, below every open transaction (measured).

        Raises:
            EosError: the broker refuses, or does not answer in ``timeout_s``.
        """
        answer = self._connection.request(
            lambda request_id: commands.GetLastMessageId(
                consumer_id=self._id, request_id=request_id
            ),
            commands.GetLastMessageIdResponse,
            timeout_s=timeout_s,
            doing=f"Asking for the last entry of {self.topic}",
        )
        last = answer.last_message_id.message_id()
        return None if last.ledger < 0 else last._replace(batch_index=-1)

    def close(self) -> None:
        """End it; does not wait for the broker's answer. The second time it does nothing."""
        if not self._closed:
            self._closed = True
            self._end(Fatal(f"The reader on {self.topic} is closed."))
            self._connection.remove_consumer(self._id)
            self._connection.notify(closing(self._id))

    def _end(self, reason: EosError) -> None:
        """Fail; what waits is not read any more."""
        with self._changed:
            self._queue.clear()
            self._waiting_bytes = 0
            self._failure = reason
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- ConsumerListener: called by the connection's reading thread ------------------------

    def on_delivery(self, delivery: Delivery) -> None:
        """Keep the entry until it is read."""
        with self._changed:
            is_late = delivery.command.consumer_id != self._id
            if is_late or self._is_out_of_step or self._failure is not None:
                return
            if self._may_come <= 0:
                self._is_out_of_step = True  # who knows what it has left out before this one
            elif self._queue and self._waiting_bytes + len(delivery.body) > MAX_WAITING_BYTES:
                self._is_out_of_step = True
                self._permits = max(1, len(self._queue) // 2)
            else:
                self._may_come -= 1
                self._queue.append(delivery)
                self._waiting_bytes += len(delivery.body)
            self._changed.notify_all()

    def on_closed(self, reason: EosError) -> None:
        """The reader or its connection ended without our doing; what came before can be read."""
        with self._changed:
            self._failure = self._failure or reason
            self._changed.notify_all()
