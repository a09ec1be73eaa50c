"""Cuts a large batch into pieces that are small batches: a few KB may hold 128 MiB and 22 million
messages, and what is made of them at once takes a hundred times that.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eos.wire.batch import check_count, check_end, message_end
from eos.wire.byte_rows import Bytes
from eos.wire.columns import Mask
from eos.wire.decoding._message_boundaries import look_alikes
from eos.wire.decoding._message_headers import MAX_HEAD_SIZE, read_heads
from eos.wire.decoding._varints import words_of

PIECE_BYTES: Final = 2 << 20
PIECE_MESSAGES: Final = 100_000

_SIZE: Final = np.uint64(0xFFFFFFFF)
_WORTH_MESSAGES: Final = 500
"""In a row; fewer are found faster one by one than by looking at a whole piece."""


class Piece(NamedTuple):
    """So many messages of a batch, from ``start`` to ``end`` of the buffer."""

    start: int
    end: int
    messages: int


def cut_batch(buffer: Bytes, start: int, end: int, count: int) -> list[Piece]:
    """The pieces of the ``count`` messages between ``start`` and ``end``, each of ``PIECE_BYTES``
    and ``PIECE_MESSAGES`` at most, or of one message.

    Args:
        buffer: with ``PADDING_BYTES`` behind ``end``.

    Raises:
        ProtocolError: there are not so many messages, or one has no head that can be read.
    """
    check_count(count, end - start)
    if end - start <= PIECE_BYTES and count <= PIECE_MESSAGES:
        return [Piece(start, end, count)]
    scan = _Scan(buffer, end)
    pieces: list[Piece] = []
    at = start
    while count:
        found, behind = scan.some(at, min(count, PIECE_MESSAGES))
        last = pieces[-1] if pieces else None
        if last and behind - last.start <= PIECE_BYTES and last.messages + found <= PIECE_MESSAGES:
            pieces[-1] = Piece(last.start, behind, last.messages + found)
        else:
            pieces.append(Piece(at, behind, found))
        at, count = behind, count - found
    check_end(at - start, end - start)
    return pieces


class _Scan:
    """Goes from message to message, many at once where they lie as writers lay them."""

    def __init__(self, buffer: Bytes, end: int) -> None:
        self._buffer = buffer
        self._words = words_of(buffer)
        self._data = buffer.data[:end]
        self._end = end
        self._singly = _WORTH_MESSAGES

    def some(self, at: int, most: int) -> tuple[int, int]:
        """How many messages were found from ``at`` on, at least one, and where they end."""
        behind = message_end(self._data, at)
        limit = min(self._end, at + PIECE_BYTES)
        if behind - at < PIECE_BYTES // _WORTH_MESSAGES:
            for find in (self._in_equal_steps, self._among_look_alikes):
                found, end = find(at, behind, limit, most)
                if found == most or found >= _WORTH_MESSAGES:
                    self._singly = _WORTH_MESSAGES
                    return found, end
        self._singly *= 2  # what nobody lays like that is not looked for again and again
        return self._one_by_one(behind, limit, min(most, self._singly))

    def _in_equal_steps(self, at: int, behind: int, limit: int, most: int) -> tuple[int, int]:
        """The messages that have the first one's length, and its size of metadata."""
        step = behind - at
        places = at + step * np.arange(min(most, (limit - at) // step))
        sizes = self._words[places] & _SIZE
        if int(sizes[0].astype(np.uint32).byteswap()) > MAX_HEAD_SIZE:
            return 0, at
        places = places[: _leading(sizes == sizes[0])]
        found = _leading(read_heads(self._buffer, places).end == places + step)
        return found, at + found * step

    def _among_look_alikes(self, at: int, _: int, limit: int, most: int) -> tuple[int, int]:
        """Those that are found where something looks like a message; ``limit`` cuts none of it."""
        heads = read_heads(self._buffer, look_alikes(self._buffer, at, limit, 2 * PIECE_MESSAGES))
        following = np.searchsorted(heads.at, heads.end)
        steps, places, ends = following.tolist(), heads.at.tolist(), heads.end.tolist()
        row, found = int(np.searchsorted(heads.at, at)), 0
        while row < len(places) and places[row] == at and found < most:
            if not at < ends[row] <= self._end:
                break
            at, row, found = ends[row], steps[row], found + 1
        return found, at

    def _one_by_one(self, behind: int, limit: int, most: int) -> tuple[int, int]:
        found = 1
        while found < most and behind < limit:
            end = message_end(self._data, behind)
            if end > limit:
                break
            found, behind = found + 1, end
        return found, behind


def _leading(flags: Mask) -> int:
    """How many of the first ones are set."""
    return len(flags) if flags.all() else int(np.argmin(flags))
