"""A PostgreSQL server for all tests of a run; each test has a schema of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from eos.testing import PostgresServer

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Shop:
    """A schema on a running server, and plain ways to look into it."""

    server: PostgresServer
    schema: str

    @property
    def conninfo(self) -> str:
        return self.server.conninfo

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement in the schema, with psycopg alone."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {self.schema}")
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def staging_tables(self) -> list[str]:
        """Names of the sink's tables for attempts."""
        rows = self.execute(
            f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.schema}' "
            "AND tablename ~ '^eos_[0-9a-f]{12}_'"
        )
        return [str(name) for (name,) in rows]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def log_in(monkeypatch: pytest.MonkeyPatch, server: PostgresServer) -> None:
    """Log in as recovery does, from here on."""
    for variable in server.environment.items():
        monkeypatch.setenv(*variable)


@pytest.fixture
def shop(postgres_server: PostgresServer) -> Shop:
    made = Shop(postgres_server, f"shop_{next(_NUMBERS)}")
    with psycopg.connect(made.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {made.schema}")
    return made
