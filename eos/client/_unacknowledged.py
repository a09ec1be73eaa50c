"""What a consumer has given out and what of it is not acknowledged yet.

A broker keeps acknowledgements of whole entries. So an entry is acknowledged when the last of its
messages is; until then it stands here which of them are.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from eos.errors import InputError, Retriable
from eos.ids import EntryPlace, MessageId, TxnId
from eos.wire.batch import Entry
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


@dataclass
class GivenEntry:
    """An entry of which some messages are not acknowledged.

    Attributes:
        remaining: their batch indexes; -1 in an entry that is no batch.
        owner: in which transaction others were; None: in none.
        num_messages: how many the entry has.
        of_others: those that others had acknowledged before it came.
    """

    place: EntryPlace
    remaining: frozenset[int]
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


AckStep = tuple[GivenEntry, frozenset[int]]
"""An entry, and what remains of it."""


class Unacknowledged:
    """Locked by the consumer that has it."""

    def __init__(self) -> None:
        self._entries: dict[EntryPlace, GivenEntry] = {}

    @property
    def places(self) -> list[EntryPlace]:
        """Of all entries that were given and are not acknowledged."""
        return list(self._entries)

    def add(self, place: EntryPlace, indexes: Iterable[int], num_messages: int = 1) -> None:
        """An entry was given, with the messages of these indexes, of so many that it has."""
        given = frozenset(indexes)
        others = frozenset(range(num_messages)) - given if num_messages > 1 else frozenset()
        self._entries[place] = GivenEntry(place, given, num_messages=num_messages, of_others=others)

    def clear(self) -> None:
        """All of it will be delivered again."""
        self._entries.clear()

    def forget(self, places: Iterable[EntryPlace]) -> None:
        """These will be delivered again."""
        for place in places:
            self._entries.pop(place, None)

    def steps(self, ids: Iterable[MessageId], owner: TxnId | None) -> list[AckStep]:
        """What remains of which entries once ``ids`` are acknowledged. Changes nothing.

        Raises:
            Retriable: one of them is not waiting for an acknowledgement.
            InputError: the rest of its entry is acknowledged in another transaction.
        """
        remaining: dict[EntryPlace, frozenset[int]] = {}
        for message_id in ids:
            entry = self._entry(message_id, owner)
            left = remaining.get(entry.place, entry.remaining)
            named = left if message_id.batch_index < 0 else {message_id.batch_index}
            if not left or not named <= left:
                raise _not_waiting(message_id)
            remaining[entry.place] = left - named
        return [(self._entries[place], left) for place, left in remaining.items()]

    def steps_up_to(self, message_id: MessageId, owner: TxnId | None) -> list[AckStep]:
        """The same for all messages up to ``message_id``.

        Raises:
            Retriable, InputError: as ``steps``.
        """
        (last,) = self.steps([message_id], owner)
        index = message_id.batch_index
        left = frozenset(n for n in last[0].remaining if index >= 0 and n > index)
        before = [place for place in self._entries if place < message_id.place]
        entries = [self._entry(MessageId(*place), owner) for place in before]
        return [*((entry, frozenset()) for entry in entries), (last[0], left)]

    def _entry(self, message_id: MessageId, owner: TxnId | None) -> GivenEntry:
        entry = self._entries.get(message_id.place)
        if entry is None:
            raise _not_waiting(message_id)
        if entry.is_begun and entry.owner != owner:
            raise InputError(
                f"{message_id} lies in an entry of which other messages were acknowledged "
                f"{f'in transaction {entry.owner}' if entry.owner else 'outside of transactions'}.",
                hint="Acknowledge all messages of an entry in one transaction: receive_batch "
                "gives whole entries.",
            )
        return entry

    def take(self, steps: Iterable[AckStep], owner: TxnId | None) -> None:
        """The acknowledgements of ``steps`` hold."""
        for entry, left in steps:
            entry.remaining, entry.owner, entry.is_begun = left, owner, True
            if not left and self._entries.get(entry.place) is entry:
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
    """The messages in ``entry``, which came with ``delivery``, at the indexes ``wanted``."""
    is_batch = entry.metadata.num_messages_in_batch is not None
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
        for index, message in enumerate(entry.messages())
        if index in wanted
    ]
