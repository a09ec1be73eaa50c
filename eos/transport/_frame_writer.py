"""The writing side of a connection: threads write whole frames, one at a time."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from eos.errors import RequestTimeout
from eos.transport._stream import Chunk, Stream
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage

SEND_STALL_S: Final = 30.0
"""The connection is lost if the broker accepts no bytes for so long."""

WITHOUT_LIMIT: Final = -1.0


class FrameWriter:
    """Writes frames to ``stream``. After a failed write nothing more is written: the broker would
    take the next frame for the rest of the interrupted one."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._broken = False
        self._queue_lock = threading.Lock()
        self._queued: dict[type[WireMessage], WireMessage] = {}

    def write(self, parts: Sequence[Chunk], *, wait_s: float = WITHOUT_LIMIT) -> None:
        """Send ``parts`` unchanged and without another thread's bytes between them.

        Args:
            wait_s: how long to wait while other threads send.

        Raises:
            RequestTimeout: other threads sent for all of ``wait_s``; nothing of ``parts`` was sent.
            OSError: the stream broke, now or earlier.
        """
        if not self._lock.acquire(timeout=wait_s):
            raise RequestTimeout(f"Other threads were sending for all of {wait_s:g} s.")
        self._write_and_release(parts)
        self._write_queued()

    def write_soon(self, command: WireMessage) -> None:
        """Send ``command`` as soon as no other thread is writing, without waiting for it. At most
        one command of each type is queued: a flood of PINGs gets one PONG.

        Raises:
            OSError: the stream broke, now or earlier.
        """
        with self._queue_lock:
            self._queued[type(command)] = command
        self._write_queued()

    def _write_queued(self) -> None:
        # A thread that holds the lock calls this after releasing it, so no command stays queued.
        while self._queued and self._lock.acquire(blocking=False):
            self._write_and_release(())

    def _write_and_release(self, parts: Sequence[Chunk]) -> None:
        whole = False
        try:
            if self._broken:
                raise OSError("an earlier send was interrupted")
            with self._queue_lock:
                owed = [encode_frame(command) for command in self._queued.values()]
                self._queued.clear()
            self._stream.send([*parts, *owed], SEND_STALL_S)
            whole = True
        finally:  # also on Ctrl-C
            self._broken = self._broken or not whole
            self._lock.release()
