"""A receive buffer: bytes in, and the entries among them are found where they lie."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from eos.errors import ProtocolError
from eos.ids import MessageId
from eos.wire.commands import TYPE_NUMBERS, Deliver, MessageMetadata
from eos.wire.decoding import PADDING_BYTES, DeliveredEntry
from eos.wire.frames import (
    MAX_FRAME_BYTES,
    ROOM_BYTES,
    UnknownCommand,
    metadata_place,
    open_envelope,
    parse_envelope,
    unreadable_entry,
)
from eos.wire.messages import WireMessage

INBOX_BYTES: Final = 4 * 1024 * 1024
_TOTAL: Final = struct.Struct(">I")
_DELIVER: Final = TYPE_NUMBERS[Deliver]


class Inbox:
    """Bytes go into ``room``; ``take`` gives what is whole. One for each connection.

    Attributes:
        buffer: where the payloads of the entries lie that ``take`` gave last, until ``room``.
    """

    def __init__(self) -> None:
        self.buffer = np.empty(INBOX_BYTES + PADDING_BYTES, np.uint8)
        self._max_frame_bytes = MAX_FRAME_BYTES
        self._start = self._end = 0
        self._failure: ProtocolError | None = None

    def admit_messages(self, max_message_bytes: int) -> None:
        """From now on take frames that hold a message of ``max_message_bytes`` as well."""
        self._max_frame_bytes = max(self._max_frame_bytes, max_message_bytes + ROOM_BYTES)

    @property
    def held_bytes(self) -> int:
        """How much is there that ``take`` has not given."""
        return self._end - self._start

    def room(self) -> memoryview:
        """Where the next bytes go, never empty; what ``take`` gave before may be written over."""
        rest = self.buffer[self._start : self._end]
        if len(rest) == len(self.buffer) - PADDING_BYTES:
            self.buffer = np.empty(4 + self._max_frame_bytes + PADDING_BYTES, np.uint8)
        if self._start or rest.base is not self.buffer:
            self.buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self.buffer.data[self._end : len(self.buffer) - PADDING_BYTES]

    def fill(self, count: int) -> None:
        """``count`` bytes have been put into ``room``."""
        self._end += count

    def take(self) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        """The whole frames: entries, and the other commands.

        Raises:
            ProtocolError: a frame is malformed or an entry damaged; what stood before it was
                given by the call before. Nothing more is given.
        """
        entries: list[DeliveredEntry] = []
        commands: list[WireMessage] = []
        try:
            self._take(entries, commands)
        except ProtocolError as error:
            self._failure = error
        if self._failure is not None and not entries and not commands:
            raise self._failure
        return entries, commands

    def _take(self, entries: list[DeliveredEntry], commands: list[WireMessage]) -> None:
        data = self.buffer.data
        while self._failure is None and self._end - self._start >= 4:
            (total,) = _TOTAL.unpack_from(data, self._start)
            if not 4 < total <= self._max_frame_bytes:
                raise ProtocolError(f"A frame of {total} bytes.")
            start, end = self._start + 4, self._start + 4 + total
            if end > self._end:
                return
            base, behind = parse_envelope(data, start, end)
            if base.type == _DELIVER and base.HasField("deliver"):
                entries.append(_entry(Deliver.entry_of(base.deliver), data, behind, end))
            elif not isinstance(command := open_envelope(base), UnknownCommand):
                commands.append(command)
            self._start = end


def _entry(place: MessageId, data: memoryview, start: int, end: int) -> DeliveredEntry:
    try:
        metadata_start, metadata_end = metadata_place(data, start, end)
        metadata = MessageMetadata.parse(data[metadata_start:metadata_end])
    except ProtocolError as error:
        raise unreadable_entry(place, error) from None
    return DeliveredEntry(place, metadata, metadata_end, end)
