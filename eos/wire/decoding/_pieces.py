"""Splits a large batch into pieces, which are small batches.

A few KB may decompress to 128 MiB and 22 million messages, and decoding all at once would take a
hundred times as much memory.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eos.wire.batch import check_count, check_end, message_end
from eos.wire.binary_columns import Mask
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._message_boundaries import find_candidates
from eos.wire.decoding._message_headers import MAX_HEADER_SIZE, read_headers
from eos.wire.decoding._varints import words_of

PIECE_BYTES: Final = 2 << 20
PIECE_MESSAGES: Final = 100_000

_SIZE: Final = np.uint64(0xFFFFFFFF)
_MIN_BULK_MESSAGES: Final = 500
"""Consecutive messages; fewer are found faster one by one than by scanning a whole piece."""


class Piece(NamedTuple):
    """A number of messages of a batch, from ``start`` to ``end`` of the buffer."""

    start: int
    end: int
    messages: int


def cut_batch(buffer: Bytes, start: int, end: int, count: int) -> list[Piece]:
    """Return pieces of the ``count`` messages between ``start`` and ``end``, each of at most
    ``PIECE_BYTES`` and ``PIECE_MESSAGES``, or of one message.

    Args:
        buffer: has ``PADDING_BYTES`` more bytes after ``end``.

    Raises:
        ProtocolError: the number of messages is wrong, or a header is malformed.
    """
    check_count(count, end - start)
    if end - start <= PIECE_BYTES and count <= PIECE_MESSAGES:
        return [Piece(start, end, count)]
    scan = _Scan(buffer, end)
    pieces: list[Piece] = []
    at = start
    while count:
        found, stop = scan.some(at, min(count, PIECE_MESSAGES))
        last = pieces[-1] if pieces else None
        if last and stop - last.start <= PIECE_BYTES and last.messages + found <= PIECE_MESSAGES:
            pieces[-1] = Piece(last.start, stop, last.messages + found)
        else:
            pieces.append(Piece(at, stop, found))
        at, count = stop, count - found
    check_end(at - start, end - start)
    return pieces


class _Scan:
    """Finds the ends of messages: many at once if they have the layout of usual clients."""

    def __init__(self, buffer: Bytes, end: int) -> None:
        self._buffer = buffer
        self._words = words_of(buffer)
        self._data = buffer.data[:end]
        self._end = end
        self._singly = _MIN_BULK_MESSAGES

    def some(self, at: int, most: int) -> tuple[int, int]:
        """Return the number of messages found from ``at`` on, at least one, and their end."""
        first_end = message_end(self._data, at)
        limit = min(self._end, at + PIECE_BYTES)
        if first_end - at < PIECE_BYTES // _MIN_BULK_MESSAGES:
            for find in (self._at_equal_distances, self._among_candidates):
                found, end = find(at, first_end, limit, most)
                if found == most or found >= _MIN_BULK_MESSAGES:
                    self._singly = _MIN_BULK_MESSAGES
                    return found, end
        self._singly *= 2  # search in bulk less and less often, because it fails
        return self._one_by_one(first_end, limit, min(most, self._singly))

    def _at_equal_distances(
        self, at: int, first_end: int, limit: int, most: int
    ) -> tuple[int, int]:
        """Find messages with the first one's length and header size."""
        step = first_end - at
        places = at + step * np.arange(min(most, (limit - at) // step))
        sizes = self._words[places] & _SIZE
        if int(sizes[0].astype(np.uint32).byteswap()) > MAX_HEADER_SIZE:
            return 0, at
        places = places[: _leading(sizes == sizes[0])]
        found = _leading(read_headers(self._buffer, places).end == places + step)
        return found, at + found * step

    def _among_candidates(self, at: int, _: int, limit: int, most: int) -> tuple[int, int]:
        """Find messages among the candidates; the last one may end after ``limit``."""
        headers = read_headers(
            self._buffer, find_candidates(self._buffer, at, limit, 2 * PIECE_MESSAGES)
        )
        following = np.searchsorted(headers.at, headers.end)
        steps, places, ends = following.tolist(), headers.at.tolist(), headers.end.tolist()
        row, found = int(np.searchsorted(headers.at, at)), 0
        while row < len(places) and places[row] == at and found < most:
            if not at < ends[row] <= self._end:
                break
            at, row, found = ends[row], steps[row], found + 1
        return found, at

    def _one_by_one(self, stop: int, limit: int, most: int) -> tuple[int, int]:
        found = 1
        while found < most and stop < limit:
            end = message_end(self._data, stop)
            if end > limit:
                break
            found, stop = found + 1, end
        return found, stop


def _leading(flags: Mask) -> int:
    """Return the number of leading flags that are set."""
    return len(flags) if flags.all() else int(np.argmin(flags))
