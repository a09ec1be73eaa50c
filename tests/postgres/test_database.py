"""Connections that a server refuses: what to do about it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from eos.errors import ConfigurationError, ConnectionLost, EosError, InputError
from eos.postgres.database import Database, failures
from eos.postgres.participant import PostgresParticipant
from eos.testing import PostgresServer
from tests.support.postgres import Shop


@pytest.mark.parametrize(
    ("conninfo", "variables", "is_verified"),
    [
        ("host=db.example dbname=d", {}, True),
        ("hostaddr=10.1.2.3 dbname=d", {}, True),
        ("dbname=d", {"PGHOST": "db.example"}, True),
        ("dbname=d", {"PGHOSTADDR": "10.1.2.3"}, True),
        ("host=db.example dbname=d sslmode=require", {}, False),
        ("dbname=d", {"PGHOST": "/run/postgresql"}, False),
        ("dbname=d", {"PGHOST": "localhost"}, False),
    ],
)
def test_a_remote_server_is_verified_however_it_is_named(
    monkeypatch: pytest.MonkeyPatch, conninfo: str, variables: dict[str, str], is_verified: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    database = Database(conninfo)
    assert ("sslmode=verify-full" in database.conninfo) is is_verified
    # Executors, which don't have these variables, and recovery go to the same server.
    for value in variables.values():
        assert value in database.conninfo
        assert value in database.place


@pytest.mark.parametrize(
    "text",
    [
        'invalid input syntax for type uuid: "4111"',
        "ungültige Eingabesyntax für Typ uuid: »4111«",
        "syntaxe en entrée invalide pour le type uuid : «\u00a04111\u00a0»",
        "sintaxis de entrada no válida para tipo uuid: «4111»",
        "nieprawidłowa składnia wejścia dla typu uuid: \u201e4111\u201d",
    ],
)
def test_no_servers_language_shows_a_rows_value(text: str) -> None:
    class Refused(psycopg.errors.InvalidTextRepresentation):
        diag = SimpleNamespace(  # type: ignore[assignment]
            message_primary=text, context="COPY eos_1, Zeile 7, Spalte c0: »4111«",
            constraint_name=None, column_name=None, sqlstate="22P02", source_function="",
        )  # fmt: skip

    with pytest.raises(InputError) as refused, failures("copying rows", {"c0": "id"}):
        raise Refused
    assert "4111" not in str(refused.value)
    assert "uuid" in str(refused.value)
    assert "Row 7, column 'id'" in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "kind", "says"),
    [
        ("SET default_transaction_read_only = on", ConnectionLost, "The server is a replica, or"),
        ("CONNECTION LIMIT 0", ConnectionLost, r"max_connections"),
        ("NOLOGIN", ConfigurationError, "Check host, database, user and password"),
    ],
)
def test_a_role_that_may_not_write_is_told_why(
    shop: Shop, setting: str, kind: type[EosError], says: str
) -> None:
    role = f"clerk_of_{shop.schema}"
    shop.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{shop.server.password}'")
    try:
        shop.execute(f"ALTER ROLE {role} {setting}")
        conninfo = psycopg.conninfo.make_conninfo(shop.conninfo, user=role)
        with pytest.raises(kind) as refused:
            Database(conninfo).connect("test")
        assert says in str(refused.value)
    finally:
        shop.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("means", ["a password file", "a service file", "variables"])
def test_executors_need_no_files_and_variables_of_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, postgres_server: PostgresServer, means: str
) -> None:
    place, password = f"host=127.0.0.1 port={postgres_server.port}", postgres_server.password
    with monkeypatch.context() as driver:
        conninfo = f"{place} dbname=postgres user=postgres"
        if means == "a password file":
            (tmp_path / "passwords").write_text(f"*:*:*:*:{password}")
            (tmp_path / "passwords").chmod(0o600)
            driver.setenv("PGPASSFILE", str(tmp_path / "passwords"))
        elif means == "a service file":
            lines = ["[shop]", *conninfo.split(), f"password={password}"]
            (tmp_path / "services").write_text("\n".join(lines))
            driver.setenv("PGSERVICEFILE", str(tmp_path / "services"))
            conninfo = "service=shop"
        else:
            conninfo = f"{place} dbname=postgres"
            driver.setenv("PGUSER", "postgres")
            driver.setenv("PGPASSWORD", password)
        here = Database(conninfo)
        with here.connect("driver") as connection:
            there = here.for_executors(connection)
        assert password not in here.place + there.place + repr(there)
    assert "application_name" not in there.conninfo
    with there.connect("executor") as connection:
        assert connection.info.user == "postgres"
        assert connection.info.get_parameters()["application_name"] == "executor"


@pytest.mark.parametrize("mode", [None, "require"])
def test_executors_verify_what_the_driver_of_a_service_does(mode: str | None) -> None:
    # psycopg leaves out what is libpq's default: sslmode=prefer.
    found = {"host": "db.example.com", **({"sslmode": mode} if mode else {})}
    info = SimpleNamespace(get_parameters=lambda: found, password="")
    there = Database("service=shop").for_executors(SimpleNamespace(info=info))  # type: ignore[arg-type]
    assert f"sslmode={mode or 'prefer'}" in there.conninfo
    assert "service" not in there.conninfo


@pytest.mark.parametrize("hosts", ["localhost", "localhost,127.0.0.1"])
def test_executors_get_the_names_of_the_servers_and_find_their_addresses(
    monkeypatch: pytest.MonkeyPatch, postgres_server: PostgresServer, hosts: str
) -> None:
    login = f"user=postgres dbname=postgres password={postgres_server.password}"
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=5MB")
    here = Database(f"host={hosts} port={postgres_server.port} {login}")
    with here.connect("driver") as connection:
        there = psycopg.conninfo.conninfo_to_dict(here.for_executors(connection).conninfo)
    assert there.pop("options") == "-c work_mem=5MB"
    assert there.pop("sslmode") == "prefer"
    assert there == psycopg.conninfo.conninfo_to_dict(here.conninfo)


def test_executors_get_the_password_that_the_file_has_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shop: Shop
) -> None:
    monkeypatch.setattr("eos.postgres.participant._LOGIN_S", 0.0)
    file, role = tmp_path / "passwords", f"clerk_of_{shop.schema}"
    file.touch(mode=0o600)
    place = f"host=127.0.0.1 port={shop.server.port} dbname=postgres user={role}"
    here = Database(f"{place} passfile={file}")
    participant = PostgresParticipant("s", here, shop.schema, "t", shop.schema)
    shop.execute(f"CREATE ROLE {role} LOGIN")
    try:
        for password in ("first", "second"):
            shop.execute(f"ALTER ROLE {role} PASSWORD '{password}'")
            file.write_text(f"*:*:*:*:{password}")
            participant.login().connect("executor").close()
    finally:
        participant.close()
        shop.execute(f"DROP ROLE {role}")
