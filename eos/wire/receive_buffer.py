"""A receive buffer in which frames are parsed without copying the payloads of entries."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np

from eos.errors import ProtocolError
from eos.wire.commands import TYPE_NUMBERS, Deliver
from eos.wire.decoding import PADDING_BYTES, DeliveredEntry
from eos.wire.frames import (
    FRAME_OVERHEAD_BYTES,
    MAX_FRAME_BYTES,
    UnknownCommand,
    open_envelope,
    parse_envelope,
)
from eos.wire.messages import WireMessage

BUFFER_BYTES: Final = 4 * 1024 * 1024
_TOTAL: Final = struct.Struct(">I")
_DELIVER: Final = TYPE_NUMBERS[Deliver]


class ReceiveBuffer:
    """The received bytes of one connection: write to ``free_space``, then call ``fill`` and
    ``take``.

    Attributes:
        buffer: contains the payloads of the entries that ``take`` last returned, until
            ``free_space`` is called.
    """

    def __init__(self) -> None:
        self.buffer = np.empty(BUFFER_BYTES + PADDING_BYTES, np.uint8)
        self._max_frame_bytes = MAX_FRAME_BYTES
        self._start = self._end = 0
        self._failure: ProtocolError | None = None

    def set_max_message_bytes(self, max_message_bytes: int) -> None:
        """Allow frames with a message of up to ``max_message_bytes``."""
        self._max_frame_bytes = max(self._max_frame_bytes, max_message_bytes + FRAME_OVERHEAD_BYTES)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that ``take`` has not returned."""
        return self._end - self._start

    def free_space(self) -> memoryview:
        """Return the memory for the next bytes, never empty. It may overlap the entries that
        ``take`` returned before."""
        rest = self.buffer[self._start : self._end]
        if len(rest) == len(self.buffer) - PADDING_BYTES:  # full, with a frame that is incomplete
            self.buffer = np.empty(4 + self._max_frame_bytes + PADDING_BYTES, np.uint8)
        if self._start or rest.base is not self.buffer:  # moved, or in the old buffer
            self.buffer[: len(rest)] = rest
            self._start, self._end = 0, len(rest)
        return self.buffer.data[self._end : len(self.buffer) - PADDING_BYTES]

    def fill(self, count: int) -> None:
        """Add the ``count`` bytes that were written to ``free_space``."""
        self._end += count

    def take(self) -> tuple[list[DeliveredEntry], list[WireMessage]]:
        """Return the entries and the other commands of all complete frames.

        Raises:
            ProtocolError: a frame is malformed or an entry corrupt; the previous call returned
                everything before it. All later calls raise it, too.
        """
        entries: list[DeliveredEntry] = []
        commands: list[WireMessage] = []
        try:
            self._take(entries, commands)
        except ProtocolError as error:
            self._failure = error  # raised by the next call, if this one has something to return
        if self._failure is not None and not entries and not commands:
            raise self._failure
        return entries, commands

    def _take(self, entries: list[DeliveredEntry], commands: list[WireMessage]) -> None:
        data = self.buffer.data
        while self._failure is None and self._end - self._start >= 4:
            (total,) = _TOTAL.unpack_from(data, self._start)
            if not 4 < total <= self._max_frame_bytes:
                raise ProtocolError(f"A frame of {total} bytes is not allowed.")
            start, end = self._start + 4, self._start + 4 + total
            if end > self._end:
                return
            base, command_end = parse_envelope(data, start, end)
            if base.type == _DELIVER and base.HasField("deliver"):
                place = Deliver.entry_of(base.deliver)
                entries.append(DeliveredEntry.parse(place, data, command_end, end))
            elif not isinstance(command := open_envelope(base), UnknownCommand):
                commands.append(command)
            self._start = end
