"""Parses the headers (SingleMessageMetadata) of many messages at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from eos.wire.binary_columns import Int64s, Mask
from eos.wire.byte_rows import Bytes
from eos.wire.decoding._varints import WORD_BYTES, decode_varints, words_of

# Tags: field number << 3 | wire type (0 varint, 2 length-delimited).
PROPERTY: Final = 1 << 3 | 2
PARTITION_KEY: Final = 2 << 3 | 2
PAYLOAD_SIZE: Final = 3 << 3
COMPACTED_OUT: Final = 4 << 3
EVENT_TIME: Final = 5 << 3
KEY_IS_BASE64: Final = 6 << 3
ORDERING_KEY: Final = 7 << 3 | 2
SEQUENCE_ID: Final = 8 << 3
NULL_VALUE: Final = 9 << 3
NULL_KEY: Final = 10 << 3

# More bytes that a buffer needs after the last message: fields are read eight bytes at a time.
PADDING_BYTES: Final = WORD_BYTES
MAX_HEADER_SIZE: Final = 0xFFFF  # of a message that is read in bulk
_MAX_PROPERTIES: Final = 64  # per message; each one costs a pass over all messages


class Irregular(Exception):
    """Raised when messages can't be read in bulk."""


@dataclass(frozen=True)
class Spans:
    """A part of each message: ``size`` bytes from ``at`` on; a size of -1 if it is missing."""

    at: Int64s
    size: Int64s

    @classmethod
    def none(cls, count: int) -> Spans:
        """Return the spans of ``count`` messages without such a part."""
        return cls(np.zeros(count, np.int64), np.full(count, -1, np.int64))

    @classmethod
    def joined(cls, parts: list[Spans]) -> Spans:
        """Concatenate ``parts``."""
        return cls(
            np.concatenate([part.at for part in parts]),
            np.concatenate([part.size for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.at)

    def take(self, rows: Int64s) -> Spans:
        """Return the spans of the messages ``rows``."""
        return Spans(self.at[rows], self.size[rows])


@dataclass(frozen=True)
class MessageHeaders:
    """The headers of n messages in one buffer.

    Attributes:
        at: the start of each message.
        end: its end, where the next one begins; 0 if it is not a message.
        value: the value.
        blobs: other parts by tag, without those that no message has. ``PROPERTY`` spans all
            properties of a message, from the first one's tag on.
        numbers: varint fields by tag, without those that no message has; -1 if missing.
    """

    at: Int64s
    end: Int64s
    value: Spans
    blobs: dict[int, Spans]
    numbers: dict[int, Int64s]

    def __len__(self) -> int:
        return len(self.at)

    def repeated(self, at: Int64s) -> MessageHeaders:
        """Return messages at ``at`` with the header and length of the single message in self."""
        (first,), count = self.at, len(at)

        def everywhere(spans: Spans) -> Spans:
            return Spans(at + (spans.at[0] - first), np.full(count, spans.size[0]))

        return MessageHeaders(
            at,
            at + (self.end[0] - first),
            everywhere(self.value),
            {tag: everywhere(spans) for tag, spans in self.blobs.items()},
            {tag: np.full(count, numbers[0]) for tag, numbers in self.numbers.items()},
        )

    def take(self, rows: Int64s) -> MessageHeaders:
        """Return the messages ``rows``."""
        return MessageHeaders(
            self.at[rows],
            self.end[rows],
            self.value.take(rows),
            {tag: spans.take(rows) for tag, spans in self.blobs.items()},
            {tag: numbers[rows] for tag, numbers in self.numbers.items()},
        )


def read_headers(buffer: Bytes, at: Int64s) -> MessageHeaders:
    """Parse candidates for messages at ``at``.

    Args:
        buffer: has ``PADDING_BYTES`` more bytes after the last one that may belong to a message.
        at: positions of ``[size u32 < 2^16]`` followed by ``size`` bytes, at least one.
    """
    limit = at + 4 + (buffer[at + 2].astype(np.int64) << 8) + buffer[at + 3].astype(np.int64)
    # In the order of the fields' numbers, as Pulsar's own clients write them. Messages with another
    # order, or with unknown fields, are read one by one.
    cursor = _Cursor(buffer, at + 4, limit)
    blobs: dict[int, Spans | None] = {
        PROPERTY: cursor.repeated(PROPERTY),
        PARTITION_KEY: cursor.blob(PARTITION_KEY),
    }
    payload_size = cursor.number(PAYLOAD_SIZE)
    numbers = {tag: cursor.number(tag) for tag in (COMPACTED_OUT, EVENT_TIME, KEY_IS_BASE64)}
    blobs[ORDERING_KEY] = cursor.blob(ORDERING_KEY)
    numbers |= {tag: cursor.number(tag) for tag in (SEQUENCE_ID, NULL_VALUE, NULL_KEY)}
    if payload_size is None:
        payload_size = np.full(len(at), -1, np.int64)
    end = limit + payload_size
    # "required int32 payload_size = 3;"
    end[(payload_size < 0) | ~cursor.is_done | (end > len(buffer) - PADDING_BYTES)] = 0
    return MessageHeaders(
        at=at,
        end=end,
        value=Spans(limit, payload_size),
        blobs={tag: spans for tag, spans in blobs.items() if spans is not None},
        numbers={tag: column for tag, column in numbers.items() if column is not None},
    )


class _Cursor:
    """Reads the fields of many messages' metadata, one field after the other."""

    def __init__(self, buffer: Bytes, at: Int64s, limit: Int64s) -> None:
        self._buffer = buffer
        self._words = words_of(buffer)
        self._at = at
        self._limit = limit
        self._tags = buffer[at]

    @property
    def is_done(self) -> Mask:
        done: Mask = self._at == self._limit
        return done

    def number(self, tag: int) -> Int64s | None:
        """Read a varint of the messages that have this field next; -1 for the others. None if no
        message has it."""
        rows = self._rows_with(tag)
        if rows is None:
            return None
        values, widths = decode_varints(self._words[self._at[rows] + 1])
        self._advance(rows, 1 + widths, widths > 0)
        numbers = np.full(len(self._at), -1, np.int64)
        numbers[rows] = values
        return numbers

    def blob(self, tag: int) -> Spans | None:
        """Read the bytes of the messages that have this field next. None if no message has it."""
        rows = self._rows_with(tag)
        if rows is None:
            return None
        sizes, widths = decode_varints(self._words[self._at[rows] + 1])
        found = self._at[rows] + 1 + widths
        self._advance(rows, 1 + widths + sizes, widths > 0)
        spans = Spans.none(len(self._at))
        spans.at[rows], spans.size[rows] = found, sizes
        return spans

    def repeated(self, tag: int) -> Spans | None:
        """Read all fields of this kind: spans from the first one's tag to the last one's end."""
        start = self._at
        for _ in range(_MAX_PROPERTIES):
            if self.blob(tag) is None:
                break
        if self._at is start:
            return None
        sizes = self._at - start
        sizes[sizes == 0] = -1
        return Spans(start, sizes)

    def _rows_with(self, tag: int) -> Int64s | slice | None:
        has = self._tags == tag
        if has.all():
            return slice(None) if len(has) else None
        rows = np.flatnonzero(has)
        return rows if len(rows) else None

    def _advance(self, rows: Int64s | slice, by: Int64s, well_formed: Mask) -> None:
        at = self._at.copy()
        at[rows] += by
        if not well_formed.all():  # moved past its end, a message never becomes done
            at[rows] = np.where(well_formed, at[rows], self._limit[rows] + 1)
        self._at = at
        inside = at < self._limit
        if inside.all():
            self._tags = self._buffer[at]
        else:
            self._tags = np.where(inside, self._buffer[np.minimum(at, self._limit)], 0)
