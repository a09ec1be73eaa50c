"""The requests of one connection that await an answer."""

from __future__ import annotations

import copy
import threading
from typing import Final

from eos._waiting import Future
from eos.errors import EosError
from eos.wire import commands
from eos.wire.messages import WireMessage

CONNECT: Final = 0
"""The id of CONNECT, which carries no request id, like its answer. Real ids are greater."""


class PendingRequests:
    """Matches answers with requests by request id. Each future is resolved at most once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._futures: dict[int, Future[WireMessage]] = {}
        self._failed: EosError | None = None

    def expect(self, request_id: int) -> Future[WireMessage]:
        """Return a future for the answer to ``request_id``. The caller must ``remove`` it.

        Raises:
            EosError: the connection has failed; the error that ``fail`` was given.
        """
        future: Future[WireMessage] = Future()
        with self._lock:
            if self._failed is not None:
                raise copy.copy(self._failed)
            self._futures[request_id] = future
        return future

    def remove(self, request_id: int) -> None:
        """Drop the future of ``request_id``, answered or not."""
        with self._lock:
            self._futures.pop(request_id, None)

    def fail_one(self, request_id: int, error: EosError) -> None:
        """Raise ``error`` in the request that waits for ``request_id``, if there is one."""
        with self._lock:
            future = self._futures.pop(request_id, None)
        if future is not None:
            future.set_exception(error)

    def resolve(self, command: WireMessage) -> None:
        """Pass ``command`` to the request that it answers. Anything else is dropped: late answers
        to requests that timed out, PONG, and notices that need no action."""
        request_id = getattr(command, "request_id", None)
        with self._lock:
            # CONNECT is answered before any other request is sent; the id of an ERROR that
            # answers it is arbitrary.
            if isinstance(command, commands.Connected | commands.Error) and (
                CONNECT in self._futures
            ):
                request_id = CONNECT
            future = None if request_id is None else self._futures.pop(request_id, None)
        if future is not None:
            future.set_result(command)

    def fail(self, error: EosError) -> None:
        """Raise ``error`` in all pending and all later requests: the connection has failed."""
        with self._lock:
            self._failed = error
            futures = list(self._futures.values())
            self._futures.clear()
        for future in futures:
            future.set_exception(copy.copy(error))
