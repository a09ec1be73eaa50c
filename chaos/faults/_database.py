"""Faults of the database that is an output: killed, its sessions ended, its table locked."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Fault, Proof, acts, at_first
from eos.chaos.faults.conditions import WITH_DATABASE
from eos.chaos.job import DATABASE_TABLE
from eos.testing import PostgresServer
from eos.wire import commands

_DOWN_S: Final = 3.0
_LOCKED_S: Final = 12.0
_POLL_S: Final = 0.2


def _connected(target: FaultTarget) -> Any:
    import psycopg  # only runs with a database need it

    return psycopg.connect(_server(target).conninfo, autocommit=True)


def _server(target: FaultTarget) -> PostgresServer:
    assert target.database is not None
    return target.database


def _kill(target: FaultTarget) -> str:
    server = _server(target)
    pid = server.pid
    server.kill()
    return f"pid {pid}" if pid is not None else ""


@acts
def _killed(target: FaultTarget, *, at_end: bool) -> Iterator[Proof]:
    try:
        if at_end:  # it has prepared, and the topic's transaction is about to be committed
            with at_first(target, commands.EndTxn, lambda _: _kill(target)) as proof:
                yield proof
        else:
            yield Proof(_kill(target))
        time.sleep(random.uniform(0.0, _DOWN_S))
    finally:
        if _server(target).pid is None:
            _server(target).start()


@contextmanager
def _sessions_ended(target: FaultTarget) -> Iterator[Proof]:
    proof, ended = Proof(), 0
    with _connected(target) as connection:
        # Again and again: a session that comes back is ended, too.
        deadline = time.monotonic() + _DOWN_S
        while time.monotonic() < deadline:
            ended += connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name LIKE 'eos %'"
            ).rowcount
            time.sleep(_POLL_S)
    proof.hit = f"{ended} sessions" if ended else ""
    yield proof


@contextmanager
def _locked(target: FaultTarget) -> Iterator[Proof]:
    proof, waiting = Proof(), 0
    with _connected(target) as connection, connection.transaction():
        connection.execute(f"LOCK TABLE {DATABASE_TABLE} IN ACCESS EXCLUSIVE MODE")
        # Longer than the sink waits for a lock, shorter than its deadline.
        deadline = time.monotonic() + _LOCKED_S
        while time.monotonic() < deadline:
            (found,) = connection.execute(
                # Not pg_stat_activity: within a transaction it shows what it showed first.
                "SELECT count(*) FROM pg_locks "
                "WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            ).fetchone()
            waiting = max(waiting, found)
            time.sleep(_POLL_S)
    proof.hit = f"{waiting} sessions waited" if waiting else ""
    yield proof


_TEXTS: Final = {
    "database-kill": ("SIGKILL of the database's server", _killed(at_end=False)),
    "database-kill-at-end": (
        "SIGKILL of the database's server when END_TXN is on its way",
        _killed(at_end=True),
    ),
    "database-sessions-ended": ("all sessions of the job in the database end", _sessions_ended),
    "database-locked": ("another session locks the table in the database", _locked),
}
FAULTS: Final = tuple(
    Fault(name, "database", text, act, needs=WITH_DATABASE, needs_own=True)
    for name, (text, act) in _TEXTS.items()
)
