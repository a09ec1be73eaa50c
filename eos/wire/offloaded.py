"""Ledgers in tiered storage: their index, and entries from pieces of their data.

The format is that of Pulsar's jcloud offloader, for S3, GCS and Azure alike (OffloadIndexBlockImpl,
DataBlockHeaderImpl, BlockAwareSegmentInputStreamImpl). All numbers are big endian. A data object is
a row of blocks, each a header of 128 bytes, then entries, then padding; no entry is in two blocks.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from eos.errors import ProtocolError
from eos.wire.messages import WireMessage, field

_INDEX: Final = struct.Struct(">IiqqiI")  # magic, its length, data, data header; blocks, metadata
_BLOCK_OF_INDEX: Final = struct.Struct(">qiq")  # first entry, part, offset in the data
_BLOCK: Final = struct.Struct(">Iqqq")  # magic, length of the header and of the block, first entry
_ENTRY: Final = struct.Struct(">iq")  # length, entry id
_INDEX_MAGIC: Final = 0xDE47DE47
_BLOCK_MAGIC: Final = 0xFBDBABCB
BLOCK_HEADER_BYTES: Final = 128
_MAX_METADATA_BYTES: Final = 1 << 20  # Real ones have some 100 bytes for each change of bookies.
_MAX_ENTRY_BYTES: Final = 128 << 20  # Brokers allow 5 MiB, unless their operator says otherwise.
_CLOSED: Final = 3
_OWNER: Final = "pulsar/managed-ledger"


class _Named(WireMessage):
    key: str | None = field(1, "string", default=None)
    value: bytes | None = field(2, "bytes", default=None)


class _LedgerMetadata(WireMessage):
    """A part of BookKeeper's LedgerMetadataFormat."""

    length: int | None = field(3, "int64", default=None)
    last_entry: int | None = field(4, "int64", default=None)
    state: int = field(5, "int32")
    named: tuple[_Named, ...] = field(11, _Named, default=())


@dataclass(frozen=True)
class LedgerIndex:
    """The index of one offloaded ledger.

    ``owner``: the managed ledger, such as ``public/default/persistent/orders``. ``blocks``: the
    first entry and the offset of each block in the data, whose size is ``data_bytes``.
    ``entry_bytes``: of all entries together.
    """

    owner: str
    entries: int
    data_bytes: int
    entry_bytes: int
    blocks: tuple[tuple[int, int], ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Parse an index object.

        Raises:
            ProtocolError: it is not one, or of another version of the format.
        """
        try:
            magic, _, data_bytes, header, count, size = _INDEX.unpack_from(data)
            if magic != _INDEX_MAGIC or header != BLOCK_HEADER_BYTES:
                raise ProtocolError(
                    f"An index of an offloaded ledger begins with {data[:8].hex()}."
                )
            if size > _MAX_METADATA_BYTES:
                raise ProtocolError(
                    f"An index of an offloaded ledger has {size} bytes of metadata."
                )
            metadata = _LedgerMetadata.decode(data[_INDEX.size : _INDEX.size + size])
            blocks = [
                _BLOCK_OF_INDEX.unpack_from(data, _INDEX.size + size + n * _BLOCK_OF_INDEX.size)
                for n in range(count)
            ]
        except struct.error:
            raise ProtocolError("An index of an offloaded ledger is truncated.") from None
        named = {one.key: one.value or b"" for one in metadata.named}
        places = tuple((first, offset) for first, _, offset in blocks)
        # Otherwise a piece could be looked for before the one that is known.
        ends = (*places[1:], ((metadata.last_entry or 0) + 1, data_bytes))
        grows = all(
            one[0] < next_[0] and one[1] + BLOCK_HEADER_BYTES < next_[1]
            for one, next_ in zip(places, ends, strict=False)
        )
        if metadata.state != _CLOSED or places[:1] != ((0, 0),) or not grows:
            raise ProtocolError("An index of an offloaded ledger is not that of a closed ledger.")
        owner = named.get(_OWNER, b"").decode(errors="replace")
        count, length = (metadata.last_entry or 0) + 1, metadata.length or 0
        return cls(owner, count, data_bytes, length, places)

    def block_of(self, entry: int) -> int:
        """Return the number of the block that has an entry."""
        return bisect_right(self.blocks, entry, key=lambda one: one[0]) - 1


class StoredEntry(NamedTuple):
    """One entry in a buffer, as bookies store it, and brokers send it."""

    number: int
    start: int
    end: int


class DataParser:
    """Finds the entries in consecutive pieces of a data object, from the block of ``first`` on.

    Attributes:
        offset: where the next piece has to begin; the size of the data after its last entry.
    """

    def __init__(self, index: LedgerIndex, first: int) -> None:
        self._index = index
        self._block = index.block_of(first)
        self._number, self.offset = index.blocks[self._block]
        self._is_padding = False

    def parse(self, piece: memoryview) -> list[StoredEntry]:
        """Return the entries that are whole in a piece that begins at ``offset``, which it moves.

        Raises:
            ProtocolError: the data is not what the index says.
        """
        found: list[StoredEntry] = []
        base = self.offset
        while self.offset < self._index.data_bytes:
            at, left = self.offset - base, self._end_of_block - self.offset
            if self._is_padding:  # to the end of the block
                self.offset += min(left, len(piece) - at)
                if self.offset < self._end_of_block:
                    break
                self._is_padding = False
                self._block += 1
                continue
            if self.offset == self._index.blocks[self._block][1]:
                if at + BLOCK_HEADER_BYTES > len(piece):
                    break
                self._check_header(piece, at)
                self.offset += BLOCK_HEADER_BYTES
                continue
            if left >= _ENTRY.size and at + _ENTRY.size > len(piece):
                break
            length, number = _ENTRY.unpack_from(piece, at) if left >= _ENTRY.size else (-1, 0)
            if length < 0:  # FE DC DE AD again and again
                self._is_padding = True
                continue
            start = at + _ENTRY.size
            if number != self._number or _ENTRY.size + length > min(left, _MAX_ENTRY_BYTES):
                raise ProtocolError(f"Offloaded data has entry {number} where {self._number} is.")
            if start + length > len(piece):
                break
            found.append(StoredEntry(number, start, start + length))
            self.offset += _ENTRY.size + length
            self._number += 1
            if self.offset == self._end_of_block:
                self._block += 1
        return found

    @property
    def _end_of_block(self) -> int:
        following = self._block + 1
        blocks = self._index.blocks
        return blocks[following][1] if following < len(blocks) else self._index.data_bytes

    def _check_header(self, piece: memoryview, at: int) -> None:
        magic, header, _, first = _BLOCK.unpack_from(piece, at)
        if (magic, header, first) != (_BLOCK_MAGIC, BLOCK_HEADER_BYTES, self._number):
            raise ProtocolError(
                f"Offloaded data has no block of entry {self._number} at {self.offset}."
            )
