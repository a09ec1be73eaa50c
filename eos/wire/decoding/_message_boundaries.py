"""Finds the messages of batch payloads: each says where it ends, and there the next one begins.

Every place that looks like a message's beginning is read as one, all at once. Then the chain is
proved: from each payload's start, message by message, exactly to its end. What merely looked like a
message, inside of a value, is never reached.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from eos.wire.batch import MIN_MESSAGE_BYTES
from eos.wire.byte_rows import Bytes
from eos.wire.columns import Int64s, Mask
from eos.wire.decoding._message_headers import (
    MAX_HEAD_SIZE,
    PADDING_BYTES,
    PARTITION_KEY,
    PAYLOAD_SIZE,
    PROPERTY,
    Heads,
    Irregular,
    read_heads,
)
from eos.wire.decoding._varints import WORD_BYTES, words_of

T = TypeVar("T", np.int64, np.uint64)

_SIZE_BYTES: Final = 4
# Of the word that a message begins with: the size of its head.
_SIZE: Final = np.uint64(0xFFFFFFFF)
_MAX_SAME_BYTES: Final = 64
"""Of heads that are compared byte by byte; longer ones hardly repeat, and cost as much to read."""

_MAX_LOOK_ALIKES: Final = 8
"""Per message; where there are more, reading them all costs more than it saves."""

_MOST_LOOK_ALIKES: Final = 400_000
"""In all: each takes some 300 bytes while it is read."""

_LOOK_BYTES: Final = 256 * 1024
"""Looked at at once: of a buffer of zeros each place takes forty bytes."""


@dataclass(frozen=True)
class Payloads:
    """Uncompressed batch payloads that lie in one buffer, in order.

    Attributes:
        buffer: with ``PADDING_BYTES`` behind the last payload.
        start, end: where each payload lies.
        count: how many messages each one holds, as its entry's metadata says.
    """

    buffer: Bytes
    start: Int64s
    end: Int64s
    count: Int64s

    def slice(self, start: int, stop: int) -> Payloads:
        """The payloads ``start`` to ``stop`` (not included)."""
        some = slice(start, stop)
        return Payloads(self.buffer, self.start[some], self.end[some], self.count[some])


def find_messages(payloads: Payloads) -> Heads:
    """All messages of the payloads, in order.

    Raises:
        Irregular: one has no head (``read_heads``), or is not where it should be, or there can't
            be so many.
    """
    if (payloads.count * MIN_MESSAGE_BYTES > payloads.end - payloads.start).any():
        raise Irregular
    guess = _in_equal_steps(payloads)
    if guess is not None:
        heads = _with_one_head(payloads, guess)
        if heads is not None:
            return heads
        heads = read_heads(payloads.buffer, guess)
        if _is_chain(heads, payloads):
            return heads
    most = min(_MAX_LOOK_ALIKES * (int(payloads.count.sum()) + 8), _MOST_LOOK_ALIKES)
    first, last = int(payloads.start[0]), int(payloads.end[-1])
    heads = read_heads(payloads.buffer, look_alikes(payloads.buffer, first, last, most))
    if not heads.end.all():
        heads = heads.take(np.flatnonzero(heads.end))
    return heads if _is_chain(heads, payloads) else _walk(heads, payloads)


def _in_equal_steps(payloads: Payloads) -> Int64s | None:
    """Where the messages begin if those of a payload are all as long as its first one; None where
    that can't be."""
    length, count = payloads.end - payloads.start, payloads.count
    step = length // count
    if (step * count != length).any() or (step < _SIZE_BYTES).any():
        return None
    first = np.cumsum(count) - count
    at = np.arange(int(count.sum())) * _each(step, count) + _each(
        payloads.start - first * step, count
    )
    sizes = words_of(payloads.buffer)[at] & _SIZE
    head_size = sizes[first].astype(np.uint32).byteswap()
    if (head_size > np.minimum(step - _SIZE_BYTES, MAX_HEAD_SIZE)).any():
        return None
    # And as long as the first one's: a cheap look that spares a reading in vain.
    return at if bool((sizes == _each(sizes[first], count)).all()) else None


def _each(values: npt.NDArray[T], count: Int64s) -> npt.NDArray[T]:
    """The payloads' values for each of their messages; one that stands for all where it can."""
    return values[:1] if (values == values[0]).all() else np.repeat(values, count)


def _with_one_head(payloads: Payloads, at: Int64s) -> Heads | None:
    """The messages at ``at``, in equal steps, if all their heads are the first one's, byte by byte:
    then they are read by reading one, and each ends where the next one begins. None if not."""
    step = (payloads.end - payloads.start) // payloads.count
    head = read_heads(payloads.buffer, at[:1])
    if (head.end - at[0] != step).any():
        return None
    size = int(head.value.at[0] - at[0])
    if size > _MAX_SAME_BYTES:
        return None
    words = words_of(payloads.buffer)
    for offset in range(0, size, WORD_BYTES):
        unlike = words[at + offset] ^ words[at[0] + offset]
        # What counts of a head's last word are its first bytes, in the number the low ones.
        if (unlike << np.uint64(8 * max(0, offset + WORD_BYTES - size))).any():
            return None
    return head.repeated(at)


def look_alikes(buffer: Bytes, first: int, last: int, most: int) -> Int64s:
    """Where between ``first`` and ``last`` a size of less than 2^16 stands, and behind it the tag
    of a first field; nowhere, where that is in more than ``most`` places."""
    found = [np.empty(0, np.int64)]
    for start in range(first, last - 5, _LOOK_BYTES):
        # As far as the tag of what begins in the last place.
        places = _look_alikes(buffer, start, min(start + _LOOK_BYTES + 5, last))
        found.append(places[places < start + _LOOK_BYTES])
        most -= len(found[-1])
        if most < 0:
            return found[0]
    return np.concatenate(found)


def _look_alikes(buffer: Bytes, first: int, last: int) -> Int64s:
    zero = buffer[first:last] == 0
    at: Int64s = _few_set(zero[:-1] & zero[1:]) + first
    at = at[at + 5 < last + 1]
    tag = buffer[at + 4]
    at = at[(tag == PAYLOAD_SIZE) | (tag == PARTITION_KEY) | (tag == PROPERTY)]
    size = (buffer[at + 2].astype(np.int64) << 8) + buffer[at + 3]
    return at[(size >= 2) & (at + 4 + size <= len(buffer) - PADDING_BYTES)]


def _few_set(flags: Mask) -> Int64s:
    """``np.flatnonzero`` of many flags of which few are set: eight at a time are passed over."""
    whole = len(flags) // WORD_BYTES * WORD_BYTES
    words = flags[:whole].view(np.uint64)
    some = np.flatnonzero(words != 0)
    inside = np.flatnonzero(words[some].view(np.bool_))
    at = (some * WORD_BYTES)[inside // WORD_BYTES] + inside % WORD_BYTES
    return np.concatenate([at, np.flatnonzero(flags[whole:]) + whole], dtype=np.int64)


def _is_chain(heads: Heads, payloads: Payloads) -> bool:
    """Whether all heads, and no others, are the payloads' messages."""
    behind = np.cumsum(payloads.count)
    if len(heads) != behind[-1]:
        return False
    following = np.empty(len(heads), np.int64)
    following[:-1] = heads.at[1:]
    following[behind - 1] = payloads.end
    firsts = heads.at[behind - payloads.count]
    return bool((heads.end == following).all() and (firsts == payloads.start).all())


def _walk(heads: Heads, payloads: Payloads) -> Heads:
    """The same, one payload after the other, past what only looks like a message."""
    # One more, that is nowhere: where what is not there leads to.
    at = np.append(heads.at, np.iinfo(np.int64).max)
    following = np.searchsorted(at, heads.end)
    following[at[following] != heads.end] = len(heads)
    steps, ends = following.tolist(), heads.end.tolist()
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
    return heads.take(np.array(found, np.int64))
