"""Makes stored entries readable: decrypts them, and puts messages together that come in chunks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from eos.ids import EntryPlace
from eos.wire._chunks import ChunkBuffer, MissingChunks, WholeMessage, is_chunk
from eos.wire.batch import Entry
from eos.wire.encryption import Decryptor, decrypted

logger = logging.getLogger(__name__)


class NoMessage(Enum):
    """Why an entry gives no message now.

    ``LEFT_OUT``: nothing comes of it: it can't be decrypted, or was sent again. ``INCOMPLETE``:
    more chunks of its message will come. ``MISSING``: earlier chunks are not here.
    """

    LEFT_OUT = auto()
    INCOMPLETE = auto()
    MISSING = auto()


@dataclass(frozen=True)
class ReadableEntry:
    """An entry in plain, with the id of its last chunk.

    ``context``: see ``Decryptor``. ``chunks``: the places of the chunks before the last one.
    """

    entry: Entry
    context: str | None = None
    chunks: tuple[EntryPlace, ...] = ()


class EntryOpener:
    """Opens the entries of one exact topic, which come in their order.

    Args:
        decryptor: None: encrypted entries stay as they are.
        earlier: yields the entries of the topic before a chunk, as often as one likes to look
            further back. For readers that begin in the middle of a message.
    """

    def __init__(
        self,
        decryptor: Decryptor | None,
        earlier: Callable[[Entry], Iterable[Iterable[Entry]]] = lambda _: (),
    ) -> None:
        self._decryptor = decryptor
        self._earlier = earlier
        self._chunks = ChunkBuffer()

    def open(self, stored: Entry) -> ReadableEntry | NoMessage:
        """Return the entry, or the message that it completes, in plain.

        Raises:
            ProtocolError: it can't be decrypted, or its message is too large.
            EosError: of ``earlier``, or whether there is a key can't be found out.
        """
        found = decrypted(stored, self._decryptor)
        if found is None:
            return NoMessage.LEFT_OUT
        entry, context = found
        # Without its key the broker's readers can't tell what a chunk is a chunk of.
        if not is_chunk(entry.metadata) or entry.metadata.encryption_keys:
            return ReadableEntry(entry, context)
        try:
            whole = self._add(entry)
        except MissingChunks:
            return NoMessage.MISSING
        # Of its parts the last one is the message's entry: epochs and acknowledgements go by it.
        if whole is not None:
            return ReadableEntry(whole.entry, context, whole.places[:-1])
        return NoMessage.INCOMPLETE if self._chunks.has(entry) else NoMessage.LEFT_OUT

    def _add(self, chunk: Entry) -> WholeMessage | None:
        with contextlib.suppress(MissingChunks):
            return self._chunks.add(chunk)
        if self._chunks.is_missing(chunk):  # it was looked for
            raise MissingChunks
        for before in self._earlier(chunk):
            # All of them: the chunk itself may be there, if it was sent again.
            self._chunks.add_all(self._chunks_of(chunk, before))
            with contextlib.suppress(MissingChunks):
                return self._chunks.add(chunk)
        self._chunks.give_up(chunk)
        logger.warning(
            "Entry %s is a chunk of a message whose earlier chunks are not in the topic, or are "
            "more than a minute older. The message is left out.",
            chunk.id,
        )
        raise MissingChunks

    def _chunks_of(self, chunk: Entry, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.metadata.uuid == chunk.metadata.uuid and is_chunk(entry.metadata):
                found = decrypted(entry, self._decryptor)
                if found is not None:
                    yield found[0]

    def take_obsolete(self) -> list[EntryPlace]:
        """Return the parts whose message was sent again from its beginning; each is returned once.
        Nothing more comes of them."""
        found, self._chunks.obsolete = self._chunks.obsolete, []
        return found

    def take_dropped(self) -> set[EntryPlace]:
        """Return the parts that ``open`` has dropped from memory now; the rest may come."""
        found, self._chunks.dropped = self._chunks.dropped, set()
        return found
