"""Finds the messages of batch payloads, and cuts a large payload into pieces."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from eos.wire.batch import MIN_MESSAGE_BYTES, check_count, check_end, message_end
from eos.wire.binary_columns import Int64s, Mask
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._message_headers import (
    MAX_HEADER_SIZE,
    PADDING_BYTES,
    PARTITION_KEY,
    PAYLOAD_SIZE,
    PROPERTY,
    Irregular,
    MessageHeaders,
    read_headers,
)
from eos.wire.decoding._varints import WORD_BYTES, words_of

T = TypeVar("T", np.int64, np.uint64)

_SIZE_BYTES: Final = 4
# The part of a message's first eight bytes that is its header's size.
_SIZE: Final = np.uint64(0xFFFFFFFF)
# Longer headers are not compared bytewise: they rarely repeat, and comparing costs as much as
# parsing.
_MAX_SAME_BYTES: Final = 64
# With more candidates, parsing them all costs more than it saves.
_CANDIDATES_PER_MESSAGE: Final = 8
_MAX_CANDIDATES: Final = 400_000  # in all; each takes some 300 bytes while it is parsed
# Scanned at once; in a buffer of zeros each position takes forty bytes.
_SCAN_BYTES: Final = 256 * 1024

# A few KB may decompress to 128 MiB and 22 million messages, and decoding all at once would take a
# hundred times as much memory.
PIECE_BYTES: Final = 2 << 20
PIECE_MESSAGES: Final = 100_000

# Consecutive messages; fewer are found faster one by one than by scanning a whole piece.
_MIN_BULK_MESSAGES: Final = 500


@dataclass(frozen=True)
class Payloads:
    """Uncompressed batch payloads in one buffer, in order.

    Attributes:
        buffer: has ``PADDING_BYTES`` more bytes after the last payload.
        start, end: the position of each payload.
        count: the number of messages of each payload, from its entry's metadata.
    """

    buffer: Bytes
    start: Int64s
    end: Int64s
    count: Int64s

    def slice(self, start: int, stop: int) -> Payloads:
        """Return the payloads ``start`` to ``stop`` (not included)."""
        some = slice(start, stop)
        return Payloads(self.buffer, self.start[some], self.end[some], self.count[some])


def find_messages(payloads: Payloads) -> MessageHeaders:
    """Return the headers of all messages of the payloads, in order.

    Raises:
        Irregular: a header can't be read (``read_headers``), a message does not end where the next
            one begins, or a payload is too short for its number of messages.
    """
    if (payloads.count * MIN_MESSAGE_BYTES > payloads.end - payloads.start).any():
        raise Irregular
    guess = _at_equal_distances(payloads)
    if guess is not None:
        headers = _with_equal_headers(payloads, guess)
        if headers is not None:
            return headers
        if _have_equal_sizes(payloads, guess):
            headers = read_headers(payloads.buffer, guess)
            if _are_contiguous(headers, payloads):
                return headers
    # All positions that look like the start of a message are parsed as one, at once. Then the
    # sequence is verified: from each payload's start, message by message, exactly to its end.
    # Candidates inside of values are never reached.
    most = min(_CANDIDATES_PER_MESSAGE * (int(payloads.count.sum()) + 8), _MAX_CANDIDATES)
    first, last = int(payloads.start[0]), int(payloads.end[-1])
    headers = read_headers(payloads.buffer, find_candidates(payloads.buffer, first, last, most))
    if not headers.end.all():
        headers = headers.take(np.flatnonzero(headers.end))
    return headers if _are_contiguous(headers, payloads) else _follow(headers, payloads)


def _at_equal_distances(payloads: Payloads) -> Int64s | None:
    """Return the positions of the messages if all messages of a payload have the same length; None
    if that is impossible."""
    length, count = payloads.end - payloads.start, payloads.count
    step = length // count
    if (step * count != length).any() or (step < _SIZE_BYTES).any():
        return None
    first = np.cumsum(count) - count
    at = np.arange(int(count.sum())) * _each(step, count) + _each(
        payloads.start - first * step, count
    )
    sizes = words_of(payloads.buffer)[payloads.start] & _SIZE
    head_size = sizes.astype(np.uint32).byteswap()
    is_possible = head_size <= np.minimum(step - _SIZE_BYTES, MAX_HEADER_SIZE)
    return at if is_possible.all() else None


def _have_equal_sizes(payloads: Payloads, at: Int64s) -> bool:
    """Whether all headers of a payload have the size of its first one: a cheap test, which avoids
    parsing wrong positions."""
    sizes = words_of(payloads.buffer)[at] & _SIZE
    first = np.cumsum(payloads.count) - payloads.count
    return bool((sizes == _each(sizes[first], payloads.count)).all())


def _each(values: npt.NDArray[T], count: Int64s) -> npt.NDArray[T]:
    """Repeat the payloads' values for each of their messages; a single value if all are equal."""
    return values[:1] if (values == values[0]).all() else np.repeat(values, count)


def _with_equal_headers(payloads: Payloads, at: Int64s) -> MessageHeaders | None:
    """Return the headers of messages at equal distances if all are bytewise equal to the first one,
    which alone is parsed; None if they differ."""
    steps = (payloads.end - payloads.start) // payloads.count
    step, words = int(steps[0]), words_of(payloads.buffer)
    size = _SIZE_BYTES + int((words[at[0]] & _SIZE).astype(np.uint32).byteswap())
    if size > _MAX_SAME_BYTES or (steps != step).any():
        return None
    head = _read_head(payloads.buffer[at[0] : at[0] + size].tobytes(), step)
    # Each message must end where the next one begins.
    if head.end[0] != step:
        return None
    for offset in range(0, size, WORD_BYTES):
        unlike = words[at + offset] ^ words[at[0] + offset]
        # Of a header's last word only the first bytes belong to it: the low ones of the number.
        if (unlike << np.uint64(8 * max(0, offset + WORD_BYTES - size))).any():
            return None
    return head.repeated(at)


@functools.lru_cache(maxsize=64)
def _read_head(head: bytes, step: int) -> MessageHeaders:
    """Return the header of a message of ``step`` bytes at 0, by its first bytes. Cached: one header
    takes as long as thousands, and the next entries often have the same."""
    message = np.zeros(step + PADDING_BYTES, np.uint8)
    message[: len(head)] = np.frombuffer(head, np.uint8)
    return read_headers(message, np.zeros(1, np.int64))


def find_candidates(buffer: Bytes, first: int, last: int, most: int) -> Int64s:
    """Return the positions between ``first`` and ``last`` of a size below 2^16 that is followed by
    the tag of a first field; none if there are more than ``most``."""
    found = [np.empty(0, np.int64)]
    for start in range(first, last - 5, _SCAN_BYTES):
        # Five more bytes: up to the tag of a message at the last position.
        places = _find_candidates(buffer, start, min(start + _SCAN_BYTES + 5, last))
        found.append(places[places < start + _SCAN_BYTES])
        most -= len(found[-1])
        if most < 0:
            return found[0]
    return np.concatenate(found)


def _find_candidates(buffer: Bytes, first: int, last: int) -> Int64s:
    zero = buffer[first:last] == 0
    at: Int64s = _sparse_flatnonzero(zero[:-1] & zero[1:]) + first
    at = at[at + 5 < last + 1]
    tag = buffer[at + 4]
    at = at[(tag == PAYLOAD_SIZE) | (tag == PARTITION_KEY) | (tag == PROPERTY)]
    size = (buffer[at + 2].astype(np.int64) << 8) + buffer[at + 3]
    return at[(size >= 2) & (at + 4 + size <= len(buffer) - PADDING_BYTES)]


def _sparse_flatnonzero(flags: Mask) -> Int64s:
    # As ``np.flatnonzero(flags)``; faster if few flags are set: skips eight at a time.
    whole = len(flags) // WORD_BYTES * WORD_BYTES
    words = flags[:whole].view(np.uint64)
    some = np.flatnonzero(words != 0)
    inside = np.flatnonzero(words[some].view(np.bool_))
    at = (some * WORD_BYTES)[inside // WORD_BYTES] + inside % WORD_BYTES
    return np.concatenate([at, np.flatnonzero(flags[whole:]) + whole], dtype=np.int64)


def _are_contiguous(headers: MessageHeaders, payloads: Payloads) -> bool:
    stops = np.cumsum(payloads.count)
    if len(headers) != stops[-1]:
        return False
    following = np.empty(len(headers), np.int64)
    following[:-1] = headers.at[1:]
    following[stops - 1] = payloads.end
    firsts = headers.at[stops - payloads.count]
    return bool((headers.end == following).all() and (firsts == payloads.start).all())


def _follow(headers: MessageHeaders, payloads: Payloads) -> MessageHeaders:
    """Return the headers that lead from each payload's start, message by message, to its end."""
    # One more position after all others: the successor of messages without one.
    at = np.append(headers.at, np.iinfo(np.int64).max)
    following = np.searchsorted(at, headers.end)
    following[at[following] != headers.end] = len(headers)
    steps, ends = following.tolist(), headers.end.tolist()
    firsts = np.searchsorted(at, payloads.start)
    if (at[firsts] != payloads.start).any():
        raise Irregular
    found: list[int] = []
    walks = zip(firsts.tolist(), payloads.end.tolist(), payloads.count.tolist(), strict=True)
    for row, end, count in walks:
        for _ in range(count):
            if row == len(steps):
                raise Irregular
            found.append(row)
            row = steps[row]
        if ends[found[-1]] != end:
            raise Irregular
    return headers.take(np.array(found, np.int64))


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
        # Messages with the first one's length and header size.
        step = first_end - at
        places = at + step * np.arange(min(most, (limit - at) // step))
        sizes = self._words[places] & _SIZE
        if int(sizes[0].astype(np.uint32).byteswap()) > MAX_HEADER_SIZE:
            return 0, at
        places = places[: _leading(sizes == sizes[0])]
        found = _leading(read_headers(self._buffer, places).end == places + step)
        return found, at + found * step

    def _among_candidates(self, at: int, _: int, limit: int, most: int) -> tuple[int, int]:
        # The last one may end after ``limit``.
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
