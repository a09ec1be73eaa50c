"""What a consumer has given out and what of it is not acknowledged yet.

A broker keeps acknowledgements of whole entries. So an entry is acknowledged when the last of its
messages is; until then it stands here which of them are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eos.errors import InputError, ProtocolError, Retriable
from eos.ids import EntryPlace, MessageId, TxnId
from eos.wire.batch import Entry, object_bytes
from eos.wire.commands import MessageIdData
from eos.wire.frames import Delivery


@dataclass(frozen=True)
class ReceivedMessage:
    """A message as a consumer gives it.

    Attributes:
        id: names it when it is acknowledged. In a batch the index in the batch is part of it.
        value: None for a tombstone.
        key: bytes when it travelled in base64.
        event_time_ms: None when its producer set none.
        redelivery_count: how often the broker has delivered it before; 0 where only one consumer
            gets messages, since the broker does not count there.
    """

    id: MessageId
    value: bytes | None
    key: str | bytes | None
    properties: Mapping[str, str]
    event_time_ms: int | None
    publish_time_ms: int
    redelivery_count: int

    @property
    def size(self) -> int:
        """How much memory it takes, about."""
        return object_bytes(self.value, self.key, self.properties.items())


@dataclass
class UnackedEntry:
    """An entry of which some messages are not acknowledged.

    Attributes:
        remaining: their batch indexes; -1 in an entry that is no batch.
        first: no index below it remains.
        owner: in which transaction others were; None: in none.
        num_messages: how many the entry has.
        of_others: those that others had acknowledged before it came.
    """

    place: EntryPlace
    remaining: set[int]
    first: int = 0
    owner: TxnId | None = None
    is_begun: bool = False
    num_messages: int = 1
    of_others: frozenset[int] = frozenset()

    def as_acknowledged(self, *, in_transaction: bool) -> MessageIdData:
        """How an ACK names it. In a transaction it conflicts with what others have acknowledged
        unless that is left out: a bit for each message, set in those that are not meant.
        """
        ledger, number = self.place
        if not (in_transaction and self.of_others):
            return MessageIdData(ledger=ledger, entry=number)
        bits = sum(1 << index for index in self.of_others)
        size = 8 * (max(self.of_others) // 64 + 1)
        words = struct.unpack(f"<{size // 8}q", bits.to_bytes(size, "little"))
        return MessageIdData(
            ledger=ledger, entry=number, ack_set=words, batch_size=self.num_messages
        )


class AckStep(NamedTuple):
    """An entry, and which of the messages that remain of it are acknowledged now."""

    entry: UnackedEntry
    indexes: set[int]

    @property
    def is_last(self) -> bool:
        """Whether none remains."""
        return len(self.indexes) == len(self.entry.remaining)


class AckTracker:
    """Locked by the consumer that has it."""

    def __init__(self) -> None:
        self._entries: dict[EntryPlace, UnackedEntry] = {}

    @property
    def places(self) -> list[EntryPlace]:
        """Of all entries that were given and are not acknowledged."""
        return list(self._entries)

    def add(self, place: EntryPlace, indexes: Iterable[int], num_messages: int = 1) -> None:
        """An entry was given, with the messages of these indexes, of so many that it has."""
        given = set(indexes)
        others = frozenset(range(num_messages)) - given if num_messages > 1 else frozenset()
        self._entries[place] = UnackedEntry(
            place, given, num_messages=num_messages, of_others=others
        )

    def clear(self) -> None:
        """All of it will be delivered again."""
        self._entries.clear()

    def forget(self, places: Iterable[EntryPlace]) -> None:
        """These will be delivered again."""
        for place in places:
            self._entries.pop(place, None)

    def steps(self, ids: Iterable[MessageId], owner: TxnId | None) -> list[AckStep]:
        """Which messages of which entries ``ids`` name. Changes nothing.

        Raises:
            Retriable: one of them is not waiting for an acknowledgement.
            InputError: the rest of its entry is acknowledged in another transaction.
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
        """The same for all messages up to ``message_id``.

        Raises:
            Retriable, InputError: as ``steps``.
        """
        (last,) = self.steps([message_id], owner)
        entry = last.entry
        upto = range(entry.first, message_id.batch_index)
        last.indexes.update(index for index in upto if index in entry.remaining)
        before = [place for place in self._entries if place < message_id.place]
        entries = [self._entry(MessageId(*place), owner) for place in before]
        return [*(AckStep(one, set(one.remaining)) for one in entries), last]

    def _entry(self, message_id: MessageId, owner: TxnId | None) -> UnackedEntry:
        entry = self._entries.get(message_id.place)
        if entry is None:
            raise _not_waiting(message_id)
        if entry.is_begun and entry.owner != owner:
            raise InputError(
                f"{message_id} is in an entry of which other messages were acknowledged "
                f"{f'in transaction {entry.owner}' if entry.owner else 'outside of transactions'}.",
                hint="Acknowledge all messages of an entry in one transaction: receive_batch "
                "gives whole entries.",
            )
        return entry

    def take(self, steps: Iterable[AckStep], owner: TxnId | None) -> None:
        """The acknowledgements of ``steps`` hold."""
        for entry, indexes in steps:
            entry.remaining -= indexes
            entry.owner, entry.is_begun = owner, True
            # An entry may have 250,000: each index is looked at once, whoever acknowledges how.
            while entry.remaining and entry.first not in entry.remaining:
                entry.first += 1
            if not entry.remaining and self._entries.get(entry.place) is entry:
                del self._entries[entry.place]


def _not_waiting(message_id: MessageId) -> Retriable:
    return Retriable(
        f"{message_id} is not waiting for an acknowledgement: it was acknowledged before, or the "
        "broker delivers it again.",
        hint="Receive again, and work on what comes.",
    )


def wanted_of(entry: Entry, delivery: Delivery) -> Collection[int]:
    """The indexes of the messages of ``entry`` that nobody has acknowledged.

    Others may have, by index in the batch (``acknowledgmentAtBatchIndexLevelEnabled``). The broker
    does not count what is acknowledged for permits (``Consumer.sendMessages``).
    """
    words = delivery.command.ack_set
    if not words:
        return range(entry.num_messages)
    count = min(entry.num_messages, 64 * len(words))
    return {index for index in range(count) if words[index // 64] >> (index % 64) & 1}


def messages_of(entry: Entry, delivery: Delivery, wanted: Collection[int]) -> list[ReceivedMessage]:
    """The messages in ``entry``, which came with ``delivery``, at the indexes ``wanted``.

    Raises:
        ProtocolError: it is malformed, or has too many to be objects.
    """
    is_batch = entry.metadata.num_messages_in_batch is not None
    try:
        return [
            ReceivedMessage(
                id=entry.id._replace(batch_index=index if is_batch else -1),
                value=message.value,
                key=message.key,
                properties=dict(message.properties),
                event_time_ms=message.event_time_ms,
                publish_time_ms=entry.metadata.publish_time,
                redelivery_count=delivery.command.redelivery_count,
            )
            for index, message in enumerate(entry.bounded_messages())
            if index in wanted
        ]
    except ProtocolError as error:
        # Its traceback holds what was made of the entry as long as it is referred to, which with
        # asyncio is until the next garbage collection (120 MiB each, measured).
        raise error.with_traceback(None) from None
