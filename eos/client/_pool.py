"""The shared connections of one client: one per broker, also of brokers reached by a proxy."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from eos.errors import Fatal
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.transport.connection import Connection

Route = tuple[Address, str | None]
"""The address to connect to; and if that is a proxy, the broker that it forwards to."""


@dataclass
class _Slot:
    """The connection of a route. ``gate``: held while connecting. ``users``: blocks that use it."""

    gate: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    users: int = 0
    is_permanent: bool = False

    @property
    def is_needed(self) -> bool:
        alive = self.connection is not None and self.connection.is_alive
        return self.users > 0 or (self.is_permanent and alive)


class Pool:
    """Connections by route. Temporary ones are closed after their last user, dead ones dropped.

    So a peer that redirects from address to address can't accumulate connections.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._lock = threading.Lock()
        self._slots: dict[Route, _Slot] = {}
        self._closed = False

    @property
    def connections(self) -> list[Connection]:
        """The current connections, including dead ones."""
        with self._lock:
            return [slot.connection for slot in self._slots.values() if slot.connection]

    @contextmanager
    def temporary(self, route: Route, deadline: float) -> Iterator[Connection]:
        """Yield a connection for the block; then close it, unless it is also permanent.

        Args:
            deadline: for connecting, by ``time.monotonic``.

        Raises:
            EosError: as ``Connection.open``.
        """
        slot = self._enter(route)
        try:
            yield self._connected(slot, route, deadline)
        finally:
            self._leave(slot)

    def permanent(self, route: Route, deadline: float) -> Connection:
        """Return a connection that stays open until it dies or the pool is closed.

        Raises:
            EosError: as ``Connection.open``.
        """
        slot = self._enter(route)
        try:
            connection = self._connected(slot, route, deadline)
            slot.is_permanent = True
            return connection
        finally:
            self._leave(slot)

    def _enter(self, route: Route) -> _Slot:
        with self._lock:
            self._check_open()
            slot = self._slots.setdefault(route, _Slot())
            slot.users += 1
            return slot

    def _connected(self, slot: _Slot, route: Route, deadline: float) -> Connection:
        address, proxy_to = route
        with slot.gate:  # other routes, and close(), do not wait for it
            known = slot.connection
            if known is not None and known.is_alive:
                return known
            left_s = max(0.0, deadline - time.monotonic())
            opened = Connection.open(address, self._auth, timeout_s=left_s, proxy_to=proxy_to)
            with self._lock:
                if not self._closed:
                    slot.connection = opened
                    return opened
        opened.close()
        raise _closed()

    def _leave(self, left: _Slot) -> None:
        with self._lock:
            left.users -= 1
            idle = [route for route, slot in self._slots.items() if not slot.is_needed]
            dropped = [self._slots.pop(route) for route in idle]
        for slot in dropped:
            if slot.connection is not None:
                slot.connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    def close(self) -> None:
        """Close every connection. May be called twice."""
        with self._lock:
            self._closed = True
            slots = list(self._slots.values())
            self._slots.clear()
        for slot in slots:
            if slot.connection is not None:
                slot.connection.close()


def _closed() -> Fatal:
    return Fatal("The client is closed.")
