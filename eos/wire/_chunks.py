"""Puts messages together that their producers sent in chunks, each of which is an entry.

All chunks of a message have its ``uuid``; they lie in order, with other entries between them. A
producer that lost its connection may have sent some of them again. Source: ``processMessageChunk``
of the Java client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from eos.errors import ProtocolError
from eos.ids import EntryPlace
from eos.wire.batch import MAX_UNCOMPRESSED_BYTES, Entry
from eos.wire.commands import MessageMetadata

logger = logging.getLogger(__name__)

# Of incomplete messages: the oldest one is given up at these limits. Java's consumers keep 10.
MAX_INCOMPLETE: Final = 100
MAX_INCOMPLETE_BYTES: Final = 2 * MAX_UNCOMPRESSED_BYTES
_MAX_REMEMBERED: Final = 1000
_OBJECT_BYTES: Final = 200  # of a chunk in memory, without its payload

_Key = tuple[str, str]


class MissingChunks(Exception):
    """Earlier chunks of a chunk's message are not here."""


@dataclass
class _Incomplete:
    places: list[EntryPlace] = field(default_factory=list)
    payloads: list[bytes] = field(default_factory=list)
    size: int = 0


@dataclass(frozen=True)
class WholeMessage:
    """A message with the id and metadata of its last chunk; ``places``: of all its chunks."""

    entry: Entry
    places: tuple[EntryPlace, ...]


def is_chunk(metadata: MessageMetadata) -> bool:
    """Whether an entry is a part of a message. Java's producers send no batches in chunks."""
    return (metadata.num_chunks_from_msg or 1) > 1


class ChunkBuffer:
    """The incomplete messages of a topic, for one thread at a time."""

    def __init__(self) -> None:
        self._incomplete: dict[_Key, _Incomplete] = {}
        self._size = 0
        self.obsolete: list[EntryPlace] = []  # parts that their producer sent again, as a whole
        # By the last ``add``, from memory, although the rest of their messages may come.
        self.dropped: set[EntryPlace] = set()
        # Messages that are complete, or given up: what comes of them is a repetition. Without
        # places: of one whose beginning is missing, all that comes.
        self._ended: dict[_Key, tuple[EntryPlace, ...]] = {}

    def add(self, entry: Entry) -> WholeMessage | None:
        """Take a chunk, decrypted; return its message if it was the last one.

        Raises:
            MissingChunks: earlier chunks are missing; the message is forgotten.
            ProtocolError: the message is too large.
        """
        self.dropped.clear()
        key, number = _key_of(entry), entry.metadata.chunk_id or 0
        known = self._incomplete.get(key)
        if number == 0:
            # Also if there was one: a producer that begins again may use the same names.
            if known is not None and entry.id.place not in known.places:
                self.obsolete += known.places
            self._forget(key)
            self._ended.pop(key, None)
            known = self._incomplete[key] = _Incomplete()
        elif known is None and self._ended.get(key):
            return None
        elif known is None or number > len(known.payloads):
            self._forget(key)
            raise MissingChunks
        elif number < len(known.payloads):
            return None  # sent again
        known.places.append(entry.id.place)
        known.payloads.append(entry.payload)
        size = len(entry.payload) + _OBJECT_BYTES
        known.size += size
        self._size += size
        if known.size > MAX_UNCOMPRESSED_BYTES:
            self.give_up(entry)
            raise ProtocolError(
                f"it is a chunk of a message of more than {MAX_UNCOMPRESSED_BYTES >> 20} MiB."
            )
        if len(known.payloads) == entry.metadata.num_chunks_from_msg:
            self.give_up(entry)
            whole = replace(
                entry, metadata=_whole(entry.metadata), payload=b"".join(known.payloads)
            )
            return WholeMessage(whole, tuple(known.places))
        self._limit()
        return None

    def give_up(self, entry: Entry) -> None:
        """Ignore all further chunks of the message of ``entry``."""
        key = _key_of(entry)
        known = self._incomplete.get(key)
        self._forget(key)
        self._ended[key] = tuple(known.places) if known else ()
        if len(self._ended) > _MAX_REMEMBERED:
            del self._ended[next(iter(self._ended))]

    def is_missing(self, entry: Entry) -> bool:
        """Whether its message was given up, because its beginning is missing."""
        return self._ended.get(_key_of(entry)) == ()

    def has(self, entry: Entry) -> bool:
        """Whether ``entry`` is a part of its message, and not one that was sent again."""
        # A consumer acknowledges a copy at once; a part comes again with its whole message.
        key, place = _key_of(entry), entry.id.place
        known = self._incomplete.get(key)
        parts = known.places if known else self._ended.get(key, ())
        return place in parts or place in self.dropped

    def __len__(self) -> int:
        return len(self._incomplete)

    def _forget(self, key: _Key) -> None:
        known = self._incomplete.pop(key, None)
        self._size -= 0 if known is None else known.size

    def _limit(self) -> None:
        while len(self._incomplete) > MAX_INCOMPLETE or self._size > MAX_INCOMPLETE_BYTES:
            key = next(iter(self._incomplete))
            logger.warning(
                "A message that %r began to send at %s is not complete, and is dropped from "
                "memory: too many are incomplete. A consumer gets it when it is opened again.",
                key[0][:100],  # of any length, and with any characters
                self._incomplete[key].places[0],
            )
            self.dropped.update(self._incomplete[key].places)
            self._forget(key)

    def add_all(self, entries: Iterable[Entry]) -> None:
        """Take earlier chunks; what is complete was returned before."""
        for entry in entries:
            try:
                self.add(entry)
            except MissingChunks:
                continue


def _key_of(entry: Entry) -> _Key:
    return entry.metadata.producer_name, entry.metadata.uuid or ""


def _whole(metadata: MessageMetadata) -> MessageMetadata:
    return replace(metadata, num_chunks_from_msg=None, chunk_id=None, uuid=None)
