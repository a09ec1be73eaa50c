"""One entry as a reader gets it: its id, producer, transaction and messages."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from eos.errors import DecryptionFailed, ProtocolError
from eos.ids import MessageId, TxnId
from eos.wire.batch._batch_reader import DecodedMessage, decode_first, decode_key, iter_batch
from eos.wire.batch._compression import decompress
from eos.wire.checksum import crc32c
from eos.wire.commands import MessageMetadata
from eos.wire.frames import Delivery, unreadable_entry

# Per entry, as objects, which take some 600 bytes each. Java's producers put 1,000 messages into an
# entry by default; eos fewer than 175,000 into its 1 MiB.
MAX_MESSAGES: Final = 250_000
MAX_PROPERTIES: Final = 500_000  # per entry, as objects, which take some 200 bytes each

# Approximate sizes of the objects, without their strings and bytes.
_MESSAGE_BYTES: Final = 500
_PROPERTY_BYTES: Final = 250


@dataclass(frozen=True)
class EntryFigures:
    """The writer's figures of an entry, recomputed from the stored data.

    Attributes:
        num_messages: the number of messages.
        value_and_key_bytes: the sum of the values' and keys' lengths.
        checksum: as ``entry_checksum``.
    """

    num_messages: int
    value_and_key_bytes: int
    checksum: int


@dataclass(frozen=True)
class Entry:
    """The stored data of one SEND: a message, or a batch of messages.

    Attributes:
        id: its ledger, entry and partition (-1 for a topic that is not a partition).
        metadata: of the producer, including the name that the broker gave it.
        payload: as stored, compressed or not.
    """

    id: MessageId
    metadata: MessageMetadata
    payload: bytes

    def __repr__(self) -> str:
        """Return a text without data and properties."""
        return f"Entry(id={self.id}, txn={self.txn}, num_messages={self.num_messages})"

    @classmethod
    def of(cls, delivery: Delivery) -> Entry:
        """Return the entry in ``delivery``.

        Raises:
            ProtocolError: the entry is malformed, or its checksum is wrong; the error names it.
        """
        at = delivery.command.message_id.message_id()
        try:
            return cls(at, *delivery.open())
        except ProtocolError as error:
            unreadable = error
        raise unreadable_entry(at, unreadable)

    @property
    def txn(self) -> TxnId | None:
        """The transaction in which it was sent, if any."""
        most, least = self.metadata.txnid_most, self.metadata.txnid_least
        return None if most is None or least is None else TxnId(most, least)

    @property
    def num_messages(self) -> int:
        """The number of messages in its metadata, or 1 if that is less."""
        # Any producer of the topic can set it, and must not be able to crash its readers.
        return max(1, self.metadata.num_messages_in_batch or 1)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the entry; the messages of a batch have their own."""
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
        """Return the messages, in order.

        Raises:
            ProtocolError: the payload is malformed, encrypted, or a chunk of a message; or the
                number of messages is below 1 or above ``MAX_MESSAGES``; or they have more than
                ``MAX_PROPERTIES``. The error names the entry.
        """
        return list(self.bounded_messages())

    def bounded_messages(self) -> Iterator[DecodedMessage]:
        """Yield the messages, in order.

        Raises:
            ProtocolError: as ``messages``, after yielding the messages before the error.
        """
        if self.num_messages > MAX_MESSAGES:
            raise self._too_many(f"{self.num_messages} messages", MAX_MESSAGES)
        properties = 0
        for message in self.iter_messages():
            properties += len(message.properties)
            if properties > MAX_PROPERTIES:
                raise self._too_many("more properties", MAX_PROPERTIES)
            yield message

    def _too_many(self, found: str, most: int) -> ProtocolError:
        reason = ProtocolError(f"it has {found}; at most {most} can be read as objects.")
        reason.hint = "Read it as columns, with PulsarClient.reader or the Spark source."
        return unreadable_entry(self.id, reason)

    def iter_messages(self) -> Iterator[DecodedMessage]:
        """Yield the messages, in order, without a limit on their number.

        Raises:
            ProtocolError: the entry can't be read, after yielding the messages before the error.
        """
        try:
            yield from self._messages()
            return
        except ProtocolError as error:
            unreadable = unreadable_entry(self.id, error)
        raise unreadable  # outside of "except": the other error, as context, holds the payload

    def uncompressed(self) -> bytes:
        """Return the uncompressed payload.

        Raises:
            ProtocolError: as ``messages``.
        """
        try:
            return self._uncompressed()
        except ProtocolError as error:
            raise unreadable_entry(self.id, error) from None

    def _messages(self) -> Iterator[DecodedMessage]:
        payload = self._uncompressed()
        if self.metadata.num_messages_in_batch is not None:
            yield from iter_batch(payload, self.metadata.num_messages_in_batch)
            return
        text, is_base64 = self.metadata.partition_key, bool(self.metadata.partition_key_b64_encoded)
        key = None if text is None else decode_key(text, is_base64=is_base64)
        yield DecodedMessage(
            value=None if self.metadata.null_value else payload,
            key=key,
            event_time_ms=self.metadata.event_time,
            properties=tuple((pair.key, pair.value) for pair in self.metadata.properties),
            ordering_key=self.metadata.ordering_key,
            sequence_id=self.metadata.sequence_id,
            has_odd_text=isinstance(key, bytes) and not is_base64,
        )

    def figures(self) -> EntryFigures:
        """Recompute the entry's figures; their sums over a partition's entries are its summary.

        Those of an encrypted entry are of its stored bytes: no key is needed.

        Raises:
            ProtocolError: as ``messages``.
        """
        if self.metadata.encryption_keys:
            return EntryFigures(self.num_messages, len(self.payload), crc32c(self.payload))
        count, size, checksum, keys = 0, 0, 0, bytearray()
        for message in self.iter_messages():
            value = message.value or b""
            checksum = crc32c(value, checksum)
            keys += _key_text(message.key)
            size += len(value)
            count += 1
        return EntryFigures(count, size + len(keys), crc32c(bytes(keys), checksum))

    def _uncompressed(self) -> bytes:
        metadata = self.metadata
        # The specification: "If this message is really a batch of multiple entries, this field must
        # be set to the number of messages in the batch." Brokers store any number (measured).
        if metadata.num_messages_in_batch is not None and metadata.num_messages_in_batch < 1:
            raise ProtocolError(f"it claims {metadata.num_messages_in_batch} messages.")
        # "Contains encryption key name, encrypted key and metadata to describe the key."
        if metadata.encryption_keys:
            name = metadata.encryption_keys[0].key[:100]  # of any length
            raise DecryptionFailed(f"it is encrypted for {name!r}.")
        if (metadata.num_chunks_from_msg or 1) > 1:
            raise ProtocolError("it is a chunk of a message.")
        return decompress(self.payload, metadata.compression or 0, metadata.uncompressed_size or 0)


def object_bytes(
    value: bytes | None, key: str | bytes | None, properties: Iterable[tuple[str, str]]
) -> int:
    """Return the approximate memory of a message as an object."""
    texts = sum(len(name) + len(text) + _PROPERTY_BYTES for name, text in properties)
    return len(value or b"") + len(key or b"") + texts + _MESSAGE_BYTES


def _key_text(key: str | bytes | None) -> bytes:
    """Return the key in its form on the wire: bytes in base64."""
    if key is None:
        return b""
    return base64.b64encode(key) if isinstance(key, bytes) else key.encode()
