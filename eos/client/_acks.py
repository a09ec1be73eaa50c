"""The messages that a consumer has delivered, and their acknowledgements, also in transactions."""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from eos.client._transaction import Transaction
from eos.errors import ConnectionLost, EosError, InputError, Retriable, broker_error
from eos.ids import EntryPlace, MessageId, TxnId
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.batch import Entry
from eos.wire.commands import MessageIdData

logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000
EXPIRY_MS = 600_000  # Java's consumers wait a minute by default, since a part's delivery


@dataclass
class UnackedEntry:
    """An entry with messages that are not acknowledged.

    Attributes:
        remaining: their batch indexes; -1 in an entry that is not a batch.
        first: no index below it remains.
        owner: the transaction in which the other messages were acknowledged; None: in none.
        num_messages: the number of messages in the entry.
        of_others: indexes that other consumers had acknowledged before the delivery.
        chunks: entries before it that are parts of the same message.
    """

    place: EntryPlace
    remaining: set[int]
    first: int = 0
    owner: TxnId | None = None
    is_begun: bool = False
    num_messages: int = 1
    of_others: frozenset[int] = frozenset()
    chunks: tuple[EntryPlace, ...] = ()

    def as_acknowledged(self, *, in_transaction: bool) -> list[MessageIdData]:
        """Return the ids for an ACK: its own, and those of its chunks."""
        chunks = [MessageIdData(ledger=place[0], entry=place[1]) for place in self.chunks]
        return [*chunks, self._own_id(in_transaction=in_transaction)]

    def _own_id(self, *, in_transaction: bool) -> MessageIdData:
        ledger, number = self.place
        if not (in_transaction and self.of_others):
            return MessageIdData(ledger=ledger, entry=number)
        # In a transaction the ACK must exclude messages that others have acknowledged, or it
        # conflicts with them: it has one bit per message, set for excluded ones.
        bits = sum(1 << index for index in self.of_others)
        size = 8 * (max(self.of_others) // 64 + 1)
        words = struct.unpack(f"<{size // 8}q", bits.to_bytes(size, "little"))
        return MessageIdData(
            ledger=ledger, entry=number, ack_set=words, batch_size=self.num_messages
        )


class AckStep(NamedTuple):
    """An entry, and the remaining messages of it to be acknowledged now."""

    entry: UnackedEntry
    indexes: set[int]

    @property
    def is_last(self) -> bool:
        """Whether no message remains then."""
        return len(self.indexes) == len(self.entry.remaining)


class AckTracker:
    """The unacknowledged entries of one consumer, protected by the consumer's lock."""

    # The broker stores acknowledgements of whole entries: until then, a message's is recorded here.
    def __init__(self) -> None:
        self._entries: dict[EntryPlace, UnackedEntry] = {}
        # Of messages that are not complete: when published, and delivered; whose; whether the last.
        self._parts: dict[EntryPlace, tuple[int, float, tuple[str, str | None], bool]] = {}
        self._expires_at = 0.0
        # Not read, and dropped from memory: each may begin the message of parts that come later.
        self.unreadable: set[EntryPlace] = set()
        self.dropped: set[EntryPlace] = set()
        # Of entries that come again: the messages that were acknowledged, in no transaction.
        self._acknowledged: dict[EntryPlace, set[int]] = {}
        # After a seek: earlier messages of this one's batch count as acknowledged.
        self.sought: MessageId | None = None

    @property
    def places(self) -> list[EntryPlace]:
        """The positions of all unacknowledged entries."""
        return self.with_chunks(self._entries)

    def find(self, places: Iterable[EntryPlace]) -> list[UnackedEntry]:
        """Return the unacknowledged entries at ``places``."""
        return [self._entries[place] for place in places if place in self._entries]

    def is_current(self, entry: UnackedEntry) -> bool:
        """Whether ``entry`` is unacknowledged, and was not delivered again since."""
        return self._entries.get(entry.place) is entry

    def with_chunks(self, places: Iterable[EntryPlace]) -> list[EntryPlace]:
        """Return ``places`` with all other parts of their messages."""
        found: set[EntryPlace] = set(places)
        for place in list(found):
            if (entry := self._entries.get(place)) is not None:
                found.update(entry.chunks)
        return sorted(found)

    def add(
        self,
        place: EntryPlace,
        indexes: Iterable[int],
        num_messages: int = 1,
        chunks: tuple[EntryPlace, ...] = (),
    ) -> None:
        """Record the delivery of the messages ``indexes`` of an entry with ``num_messages``."""
        self.remember([place])  # the broker has begun again, after an aborted transaction
        self.forget((place, *chunks))  # from now on they are parts of this one
        given = set(indexes)
        others = frozenset(range(num_messages)) - given if num_messages > 1 else frozenset()
        others -= self._acknowledged.get(place, set())
        self._entries[place] = UnackedEntry(
            place, given, num_messages=num_messages, of_others=others, chunks=chunks
        )

    def add_unread(self, place: EntryPlace) -> UnackedEntry:
        """Record the delivery of an entry before it is read."""
        self.add(place, (-1,))
        self.unreadable.add(place)
        return self._entries[place]

    def remember(self, places: Iterable[EntryPlace]) -> None:
        """Leave acknowledged messages of these entries out when they come again."""
        for one in self.find(places):
            if one.is_begun and one.owner is None:
                given = set(range(one.num_messages)) - one.of_others
                self._acknowledged[one.place] = given - one.remaining
        while len(self._acknowledged) > _MAX_REMEMBERED:
            del self._acknowledged[next(iter(self._acknowledged))]

    def left(self, place: EntryPlace, indexes: Collection[int]) -> Collection[int]:
        """Return those of the messages of an entry that were not acknowledged before."""
        if (to := self.sought) is not None and to.place == place:
            self._acknowledged[place] = {index for index in indexes if index < to.batch_index}
            self.sought = None
        before = self._acknowledged.get(place)
        return indexes if before is None else set(indexes) - before

    def hold(self, entry: Entry) -> None:
        """The entry is a part of a message whose last part has not come."""
        meta = entry.metadata
        is_last = (meta.chunk_id or 0) + 1 == meta.num_chunks_from_msg
        whose = meta.producer_name, meta.uuid
        self._parts[entry.id.place] = meta.publish_time, time.monotonic(), whose, is_last

    def expired_parts(self, entry: Entry) -> list[EntryPlace]:
        """Return the parts to which no more will come, as ``entry`` is much later."""
        # By publish times, as the caller may have paused, with the other parts on their way; and by
        # the time since delivery, as clocks differ. Not if its last part has come: it was dropped.
        now, published = time.monotonic(), entry.metadata.publish_time
        if now < self._expires_at:
            return []
        # Any writer can leave very many behind: they must not be looked at with each entry.
        self._expires_at = now + len(self._parts) // 1000
        ended = {whose for _, _, whose, is_last in self._parts.values() if is_last}
        expired = [
            place
            for place, (published_before, at, whose, _) in self._parts.items()
            if published - published_before > EXPIRY_MS
            and now - at > EXPIRY_MS / 1000
            and whose not in ended
            and not any(one < place for one in self.unreadable)
        ]
        if expired:
            logger.warning(
                "Entry %d:%d begins a message in chunks that was never completed. It is left out.",
                *expired[0],
            )
        return expired

    def is_behind_unread(self, place: EntryPlace) -> bool:
        """Whether an entry before ``place`` could not be read, or was dropped."""
        return any(one < place for one in (*self.unreadable, *self.dropped))

    def has_parts_before(self, place: EntryPlace) -> bool:
        """Whether a message that ends after ``place``, or has not ended, has parts before it."""
        return any(
            (one.place in self._parts and one.place < place)
            or (one.place > place and any(chunk < place for chunk in one.chunks))
            for one in self._entries.values()
        )

    def begin_again(self) -> None:
        """``remember`` and forget all entries: they will be delivered again."""
        self.remember(self._entries)
        self._entries.clear()
        self._parts.clear()
        self.unreadable.clear()
        self.dropped.clear()

    def clear(self) -> None:
        """Forget all entries, and which of their messages were acknowledged."""
        self.begin_again()
        self._acknowledged.clear()

    def forget(self, places: Iterable[EntryPlace]) -> None:
        """Forget these entries: they will be delivered again."""
        for place in places:
            self._entries.pop(place, None)
            self._parts.pop(place, None)
            self.unreadable.discard(place)
            self.dropped.discard(place)

    def steps(self, ids: Iterable[MessageId], owner: TxnId | None) -> list[AckStep]:
        """Return the acknowledgements of the messages ``ids``, by entry. Changes nothing.

        Raises:
            Retriable: a message is not waiting for an acknowledgement.
            InputError: other messages of its entry were acknowledged in another transaction.
        """
        steps: dict[EntryPlace, AckStep] = {}
        for message_id in ids:
            entry = self._entry(message_id, owner)
            step = steps.setdefault(entry.place, AckStep(entry, set()))
            index = message_id.batch_index
            if step.is_last or index in step.indexes:
                raise _not_waiting(message_id)
            if index < 0:
                step.indexes.update(entry.remaining)
            elif index in entry.remaining:
                step.indexes.add(index)
            else:
                raise _not_waiting(message_id)
        return list(steps.values())

    def steps_up_to(self, message_id: MessageId, owner: TxnId | None) -> list[AckStep]:
        """As ``steps``, for all messages up to ``message_id``."""
        (last,) = self.steps([message_id], owner)
        entry = last.entry
        upto = range(entry.first, message_id.batch_index)
        last.indexes.update(index for index in upto if index in entry.remaining)
        before = [
            one.place
            for one in self._entries.values()
            if one.place < message_id.place and one.place not in self._parts
        ]
        entries = [self._entry(MessageId(*place), owner) for place in before]
        return [*(AckStep(one, set(one.remaining)) for one in entries), last]

    def _entry(self, message_id: MessageId, owner: TxnId | None) -> UnackedEntry:
        entry = self._entries.get(message_id.place)
        if entry is None:
            raise _not_waiting(message_id)
        if entry.is_begun and entry.owner != owner:
            raise InputError(
                f"Other messages of the entry of {message_id} were acknowledged "
                f"{f'in transaction {entry.owner}' if entry.owner else 'outside of transactions'}.",
                hint="Acknowledge all messages of an entry in one transaction: receive_batch "
                "gives whole entries.",
            )
        return entry

    def apply(self, steps: Iterable[AckStep], owner: TxnId | None) -> None:
        """Record the acknowledgements of ``steps``."""
        for entry, indexes in steps:
            entry.remaining -= indexes
            entry.owner, entry.is_begun = owner, True
            # An entry may have 250,000 messages: each index is visited once, in any order of acks.
            while entry.remaining and entry.first not in entry.remaining:
                entry.first += 1
            if not entry.remaining and self.is_current(entry):
                self.forget([entry.place])


def _not_waiting(message_id: MessageId) -> Retriable:
    return Retriable(
        f"{message_id} is not waiting for an acknowledgement: it was acknowledged before, or the "
        "broker delivers it again.",
        hint="Receive again, and process the messages that come.",
    )


def ack_of(consumer_id: int, places: Iterable[EntryPlace]) -> commands.Ack:
    """Return the acknowledgement of whole entries."""
    ids = tuple(MessageIdData(ledger=place[0], entry=place[1]) for place in places)
    kind = commands.AckType.INDIVIDUAL
    return commands.Ack(consumer_id=consumer_id, ack_type=kind, message_ids=ids)


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
        # Entries with messages acknowledged in this transaction and unacknowledged ones.
        self.begun: set[EntryPlace] = set()
        # The reason why it is unknown whether the broker has an acknowledgement.
        self.failure: EosError | None = None

    def flush(self, deadline: float = 0.0) -> None:  # noqa: ARG002
        """Wait for the acknowledgement in flight, which has a timeout."""
        with self._sending:
            if self.failure is not None:
                raise self.failure
            if self.begun:
                # The broker does not know of their acknowledged messages: a commit would lose them.
                place = min(self.begun)
                self._txn.poison(
                    InputError(
                        f"Only some messages of the entry {place[0]}:{place[1]} of {self.topic} "
                        "were acknowledged in the transaction.",
                        hint="Acknowledge all messages of an entry in one transaction: "
                        "receive_batch gives whole entries.",
                    )
                )

    def record(self, steps: Iterable[AckStep]) -> None:
        """Note which entries have been acknowledged in part, or now as a whole."""
        for entry, _ in steps:
            (self.begun.add if entry.remaining else self.begun.discard)(entry.place)

    def close_failed(self, deadline: float) -> None:
        """Close the consumer: afterwards the broker accepts no pending acknowledgement."""
        self._close(deadline)

    def release(self, txn: Transaction) -> None:  # noqa: ARG002
        """The transaction has ended: request redelivery of incomplete entries."""
        self.has_ended = True
        if self.begun:  # the broker knows of no acknowledgement, and would not redeliver them
            self._redeliver(tuple(self.begun))
            self.begun.clear()


def send_ack(
    connection: Connection | None,
    consumer_id: int,
    entries: Iterable[UnackedEntry],
    how: commands.AckType,
    txn: Transaction | None,
    *,
    timeout_s: float,
    doing: str,
) -> None:
    """Send ACK of whole ``entries``, in ``txn`` or in none, and wait for the answer.

    Raises:
        ConnectionLost: there is no connection.
        EosError: the broker refuses, or does not answer.
    """
    if connection is None:
        raise ConnectionLost(f"{doing}: the consumer has lost its connection.")
    is_in_txn = txn is not None
    ids = tuple(id_ for one in entries for id_ in one.as_acknowledged(in_transaction=is_in_txn))
    if how is commands.AckType.CUMULATIVE:
        ids = ids[-1:]  # brokers ignore one with several ids, and answer well (measured)
    answer = connection.request(
        lambda request_id: commands.Ack(
            consumer_id=consumer_id,
            ack_type=how,
            message_ids=ids,
            txnid_least=None if txn is None else txn.id.least,
            txnid_most=None if txn is None else txn.id.most,
            request_id=request_id,
        ),
        commands.AckResponse,
        timeout_s=timeout_s,
        doing=doing,
    )
    if answer.error is not None:
        raise broker_error(answer.error, answer.message, doing=doing)
