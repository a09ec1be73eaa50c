"""Who waits for which answer on one connection."""

from __future__ import annotations

import copy
import threading
from typing import Final

from eos._waiting import Future
from eos.errors import EosError
from eos.wire import commands
from eos.wire.messages import WireMessage

CONNECT: Final = 0
"""Stands for a request id: CONNECT and its answer carry none. Real ids begin above it."""


class PendingRequests:
    """Pairs answers with requests by their id. Each future is settled at most once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, Future[WireMessage]] = {}
        self._failed: EosError | None = None

    def expect(self, request_id: int) -> Future[WireMessage]:
        """The future answer to ``request_id``; ``forget`` it in any case.

        Raises:
            EosError: what ``fail`` was told.
        """
        future: Future[WireMessage] = Future()
        with self._lock:
            if self._failed is not None:
                raise copy.copy(self._failed)
            self._pending[request_id] = future
        return future

    def forget(self, request_id: int) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._pending.pop(request_id, None)

    def abandon(self, request_id: int, error: EosError) -> None:
        """No answer to ``request_id`` comes any more; whoever waits for it is told."""
        with self._lock:
            future = self._pending.pop(request_id, None)
        if future is not None:
            future.set_exception(error)

    def settle(self, command: WireMessage) -> None:
        """Hand ``command`` to who asked. What nobody waits for is dropped: late answers to
        requests that gave up, PONG, and notices that need no action."""
        request_id = getattr(command, "request_id", None)
        with self._lock:
            # CONNECT is answered before anything else is asked; a refusal has some id or other.
            if isinstance(command, commands.Connected | commands.Error) and (
                CONNECT in self._pending
            ):
                request_id = CONNECT
            future = None if request_id is None else self._pending.pop(request_id, None)
        if future is not None:
            future.set_result(command)

    def fail(self, error: EosError) -> None:
        """No answer comes any more: tell everyone who waits or will."""
        with self._lock:
            self._failed = error
            futures = list(self._pending.values())
            self._pending.clear()
        for future in futures:
            future.set_exception(copy.copy(error))
