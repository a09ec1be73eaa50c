"""PostgreSQL for tests: only who has its password can log in, and nothing is left of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from eos.errors import Retriable
from eos.testing import PostgresServer
from tests.transport.scripted import wait_until

pytestmark = pytest.mark.broker


def folder_of(conninfo: str) -> Path:
    return Path(conninfo.partition("passfile=")[2]).parent


def test_only_who_has_the_password_can_log_in():
    with PostgresServer() as server:
        folder = folder_of(server.conninfo)
        for host in ("127.0.0.1", str(folder)):
            stranger = f"host={host} port={server.port} user=postgres dbname=postgres"
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(stranger, passfile="/dev/null")
            psycopg.connect(stranger, password=server.password).close()
        psycopg.connect(server.conninfo).close()
        assert server.password not in server.conninfo
        assert all(one.stat().st_mode & 0o077 == 0 for one in (folder, folder / "passfile"))


def is_left(server: int, folder: Path) -> bool:
    return Path(f"/proc/{server}").exists() or folder.exists()


def test_without_psutil_it_ends_as_well(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with PostgresServer() as server:
        pid, folder = server.pid, folder_of(server.conninfo)
    assert not is_left(pid, folder)


def test_a_killed_owner_leaves_nothing():
    code = (
        "from eos.testing import PostgresServer\n"
        "with PostgresServer() as server:\n"
        "    print(server.pid, server.conninfo, flush=True)\n"
        "    input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, conninfo = owner.stdout.readline().split()
        assert is_left(int(pid), folder_of(conninfo))
        owner.kill()
    wait_until(lambda: not is_left(int(pid), folder_of(conninfo)))


def test_a_start_that_fails_leaves_nothing():
    server = PostgresServer(max_connections="many")
    with pytest.raises(Retriable, match='invalid value for parameter "max_connections"'), server:
        pass
    assert server.pid is None
    assert not folder_of(server.conninfo).exists()


def test_a_data_folder_that_can_not_be_made_is_not_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("eos.testing._postgres._programs", lambda: Path("/nowhere"))
    with pytest.raises(FileNotFoundError):
        PostgresServer()
    assert not list(tmp_path.iterdir())
