"""The writing side of a connection: whole frames, one after the other, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from eos.errors import RequestTimeout
from eos.transport._stream import Chunk, Stream
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage

SEND_STALL_S: Final = 30.0
"""How long the broker may take no bytes at all before the connection counts as lost."""

WITHOUT_LIMIT: Final = -1.0


class Writer:
    """Writes frames to ``stream``. Once a write has failed nothing more is written: the next
    frame would be taken for the rest of the one that was cut."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._torn = False
        self._owed_lock = threading.Lock()
        self._owed: dict[type[WireMessage], WireMessage] = {}

    def write(self, parts: Sequence[Chunk], *, wait_s: float = WITHOUT_LIMIT) -> None:
        """Send ``parts`` as they are, together.

        Args:
            wait_s: how long to wait while other threads send.

        Raises:
            RequestTimeout: others sent all that time; nothing of ``parts`` was.
            OSError: the stream broke, now or earlier.
        """
        if not self._lock.acquire(timeout=wait_s):
            raise RequestTimeout(f"Other sends took all of {wait_s:g} s.")
        self._write_and_release(parts)
        self._pay()

    def owe(self, command: WireMessage) -> None:
        """Send ``command`` as soon as nobody else does. Never waits for another writer, and keeps
        one command of each type: a flood of PINGs gets one PONG.

        Raises:
            OSError: the stream broke, now or earlier.
        """
        with self._owed_lock:
            self._owed[type(command)] = command
        self._pay()

    def _pay(self) -> None:
        # Whoever holds the lock comes here after releasing it, so nothing stays behind.
        while self._owed and self._lock.acquire(blocking=False):
            self._write_and_release(())

    def _write_and_release(self, parts: Sequence[Chunk]) -> None:
        whole = False
        try:
            if self._torn:
                raise OSError("an earlier send was cut off")
            with self._owed_lock:
                owed = [encode_frame(command) for command in self._owed.values()]
                self._owed.clear()
            self._stream.send([*parts, *owed], SEND_STALL_S)
            whole = True
        finally:  # after Ctrl-C as well
            self._torn = self._torn or not whole
            self._lock.release()
