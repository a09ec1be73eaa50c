"""A port that only one process may use.

To all others it looks like a broker's internal address, seen from outside of its network.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.balancer import copy

HOST = "127.0.0.1"


@contextlib.contextmanager
def gate(target_port: int, pid: Callable[[], int | None]) -> Iterator[int]:
    """Forward a port to ``target_port`` for the process ``pid()``; disconnect all others."""
    with socket.create_server((HOST, 0)) as server:
        threading.Thread(target=_serve, args=(server, target_port, pid), daemon=True).start()
        yield server.getsockname()[1]


def _serve(server: socket.socket, target_port: int, pid: Callable[[], int | None]) -> None:
    with contextlib.suppress(OSError):  # it was closed
        while True:
            came, address = server.accept()
            if not _belongs(address[1], pid()):
                came.close()
                continue
            goes = socket.create_connection((HOST, target_port))
            for one, other in ((came, goes), (goes, came)):
                threading.Thread(target=copy, args=(one, other), daemon=True).start()


def _belongs(port: int, pid: int | None) -> bool:
    """Whether the connection from local port ``port`` belongs to the process ``pid``."""
    if pid is None:
        return False
    inodes = {
        f"socket:[{fields[9]}]"
        for table in ("tcp", "tcp6")
        for fields in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if int(fields[1].rpartition(":")[2], 16) == port
    }
    held = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            held.add(os.readlink(link))
    return bool(inodes & held)
