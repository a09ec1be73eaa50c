"""PostgreSQL for tests: only who has its password can log in, and nothing is left of it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import psycopg
import pytest

from eos.errors import Retriable
from eos.testing import PostgresServer

pytestmark = pytest.mark.broker


@pytest.fixture
def made(monkeypatch) -> list[Path]:
    """The folders that were made for servers."""
    found: list[Path] = []
    make = tempfile.mkdtemp

    def noted(**options: str) -> str:
        found.append(Path(make(**options)))
        return str(found[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", noted)
    return found


def test_only_who_has_the_password_can_log_in(made):
    with PostgresServer() as server:
        for host in ("127.0.0.1", str(made[-1])):
            stranger = f"host={host} port={server.port} user=postgres dbname=postgres"
            with pytest.raises(psycopg.OperationalError, match="no password supplied"):
                psycopg.connect(stranger, passfile="/dev/null")
            psycopg.connect(stranger, password=server.password).close()
        psycopg.connect(server.conninfo).close()
        assert server.password not in server.conninfo
        assert all(one.stat().st_mode & 0o077 == 0 for one in (made[-1], made[-1] / "passfile"))


def test_without_psutil_it_ends_as_well(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with PostgresServer() as server:
        process = server._process
    assert process.poll() is not None
    assert not made[-1].exists()


def test_a_start_that_fails_leaves_nothing(made):
    server = PostgresServer(max_connections="many")
    with pytest.raises(Retriable, match='invalid value for parameter "max_connections"'), server:
        pass
    assert server.pid is None
    assert not made[-1].exists()


def test_a_data_folder_that_can_not_be_made_is_not_left(made, monkeypatch):
    monkeypatch.setattr("eos.testing._postgres._programs", lambda: Path("/nowhere"))
    with pytest.raises(FileNotFoundError):
        PostgresServer()
    assert not made[-1].exists()
