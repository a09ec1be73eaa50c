"""One entry as a reader sees it: where it sits, who sent it in which transaction, what is in it."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from eos.errors import ProtocolError
from eos.ids import MessageId, TxnId
from eos.wire.batch._compression import decompress
from eos.wire.batch._reader import DecodedMessage, decode_batch, decode_first, decode_key
from eos.wire.checksum import entry_checksum
from eos.wire.commands import MessageMetadata
from eos.wire.frames import Delivery, unreadable_entry


@dataclass(frozen=True)
class EntryFigures:
    """What the writer of an entry counted, computed again from what was stored.

    Attributes:
        num_messages: how many messages it holds.
        value_and_key_bytes: the sum of the values' and keys' lengths.
        checksum: as ``entry_checksum``.
    """

    num_messages: int
    value_and_key_bytes: int
    checksum: int


@dataclass(frozen=True)
class Entry:
    """What the broker stored for one SEND: one message, or a batch of them.

    Attributes:
        id: its ledger, entry and partition (-1 for a topic that is no partition).
        metadata: what the producer sent with it, the name that the broker gave it included.
        payload: as it is stored, compressed or not.
    """

    id: MessageId
    metadata: MessageMetadata
    payload: bytes

    def __repr__(self) -> str:
        """Without the rows and their properties."""
        return f"Entry(id={self.id}, txn={self.txn}, num_messages={self.num_messages})"

    @classmethod
    def of(cls, delivery: Delivery) -> Entry:
        """The entry in ``delivery``.

        Raises:
            ProtocolError: it is malformed, or its checksum is wrong; the error names it.
        """
        at = delivery.command.message_id.message_id()
        try:
            return cls(at, *delivery.open())
        except ProtocolError as error:
            raise unreadable_entry(at, error) from None

    @property
    def txn(self) -> TxnId | None:
        """The transaction that it was sent in, if any."""
        most, least = self.metadata.txnid_most, self.metadata.txnid_least
        return None if most is None or least is None else TxnId(most, least)

    @property
    def num_messages(self) -> int:
        """How many messages it holds, as its metadata says; 1 where that says fewer: whoever may
        write to a topic may say anything, and must not end its readers."""
        return max(1, self.metadata.num_messages_in_batch or 1)

    @property
    def properties(self) -> dict[str, str]:
        """The entry's own; those of a batch's messages stand with each message."""
        return {pair.key: pair.value for pair in self.metadata.properties}

    @property
    def first_properties(self) -> dict[str, str]:
        """The properties of its first message, whether it is a batch or not.

        Raises:
            ProtocolError: as ``messages``.
        """
        if self.metadata.num_messages_in_batch is None:
            return self.properties
        return dict(decode_first(self._uncompressed()).properties)

    def messages(self) -> list[DecodedMessage]:
        """The messages, in order.

        Raises:
            ProtocolError: the payload is malformed, encrypted, or one chunk of a message, or its
                metadata says that there are fewer than one. The error names the entry.
        """
        try:
            return self._messages()
        except ProtocolError as error:
            raise unreadable_entry(self.id, error) from None

    def _messages(self) -> list[DecodedMessage]:
        payload = self._uncompressed()
        if self.metadata.num_messages_in_batch is not None:
            return decode_batch(payload, self.metadata.num_messages_in_batch)
        key, is_base64 = self.metadata.partition_key, bool(self.metadata.partition_key_b64_encoded)
        message = DecodedMessage(
            value=None if self.metadata.null_value else payload,
            key=None if key is None else decode_key(key.encode(), is_base64=is_base64),
            event_time_ms=self.metadata.event_time,
            properties=tuple((pair.key, pair.value) for pair in self.metadata.properties),
            ordering_key=self.metadata.ordering_key,
            sequence_id=self.metadata.sequence_id,
        )
        return [message]

    def figures(self) -> EntryFigures:
        """Count the messages again; the sums over a partition's entries are its summary.

        Raises:
            ProtocolError: as ``messages``.
        """
        messages = self.messages()
        values = b"".join(message.value or b"" for message in messages)
        keys = b"".join(_key_text(message.key) for message in messages)
        return EntryFigures(len(messages), len(values) + len(keys), entry_checksum(values, keys))

    def _uncompressed(self) -> bytes:
        metadata = self.metadata
        if metadata.num_messages_in_batch is not None and metadata.num_messages_in_batch < 1:
            raise ProtocolError(f"it says that it has {metadata.num_messages_in_batch} messages.")
        if metadata.encryption_keys:
            raise ProtocolError("it is encrypted.")
        if (metadata.num_chunks_from_msg or 1) > 1:
            raise ProtocolError("it is one chunk of a message.")
        return decompress(self.payload, metadata.compression or 0, metadata.uncompressed_size or 0)


def _key_text(key: str | bytes | None) -> bytes:
    """The key as readers get it; bytes travel in base64."""
    if key is None:
        return b""
    return base64.b64encode(key) if isinstance(key, bytes) else key.encode()
