"""The connections of one client: shared, one for each broker (and each broker behind a proxy)."""

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
"""Where a connection leads: the address that is dialled, and the broker behind that proxy."""


@dataclass
class _Slot:
    """One place. ``gate``: only one dials. ``users``: who is inside a ``borrowed`` now."""

    gate: threading.Lock = field(default_factory=threading.Lock)
    connection: Connection | None = None
    users: int = 0
    is_kept: bool = False

    @property
    def is_needed(self) -> bool:
        alive = self.connection is not None and self.connection.is_alive
        return self.users > 0 or (self.is_kept and alive)


class Pool:
    """Connections by place. What nobody kept is closed behind its last user, what died is dropped.

    A peer that sends us from one address to the next can so never pile up connections here.
    """

    def __init__(self, auth: Auth) -> None:
        self._auth = auth
        self._lock = threading.Lock()
        self._slots: dict[Route, _Slot] = {}
        self._closed = False

    @property
    def connections(self) -> list[Connection]:
        """Those that are there now, dead ones among them."""
        with self._lock:
            return [slot.connection for slot in self._slots.values() if slot.connection]

    @contextmanager
    def borrowed(self, place: Route, deadline: float) -> Iterator[Connection]:
        """A connection for as long as the block runs; then it is closed, unless somebody kept it.

        Args:
            deadline: for making one, by ``time.monotonic``.

        Raises:
            EosError: as ``Connection.open``.
        """
        slot = self._enter(place)
        try:
            yield self._connected(slot, place, deadline)
        finally:
            self._leave(slot)

    def kept(self, place: Route, deadline: float) -> Connection:
        """A connection that stays open until it dies or the pool is closed.

        Raises:
            EosError: as ``Connection.open``.
        """
        slot = self._enter(place)
        try:
            connection = self._connected(slot, place, deadline)
            slot.is_kept = True
            return connection
        finally:
            self._leave(slot)

    def _enter(self, place: Route) -> _Slot:
        with self._lock:
            self._check_open()
            slot = self._slots.setdefault(place, _Slot())
            slot.users += 1
            return slot

    def _connected(self, slot: _Slot, place: Route, deadline: float) -> Connection:
        address, proxy_to = place
        with slot.gate:  # other places, and close(), do not wait for it
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
            idle = [place for place, slot in self._slots.items() if not slot.is_needed]
            dropped = [self._slots.pop(place) for place in idle]
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
