"""Connections to a PostgreSQL database, and its errors in this project's terms."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    InputError,
    Retriable,
    pip_install,
)

try:
    import psycopg
    from psycopg import conninfo as libpq
    from psycopg import sql
except ImportError as missing:
    raise ConfigurationError(
        "PostgreSQL needs the package psycopg, on driver and executors.",
        hint=f"Run: {pip_install('postgres')}.",
    ) from missing

# Only these parts of a conninfo are recorded: no login.
_PLACE: Final = ("service", "host", "hostaddr", "port", "dbname")
_LOCAL: Final = ("", "localhost", "127.0.0.1", "::1")
# libpq's own variables, which executors don't have.
_FROM_DRIVER: Final = {
    "host": "PGHOST", "hostaddr": "PGHOSTADDR", "port": "PGPORT", "dbname": "PGDATABASE",
    "user": "PGUSER",
    "sslmode": "PGSSLMODE", "sslrootcert": "PGSSLROOTCERT",
}  # fmt: skip
# Settings of every connection: those that a conninfo may change, and the others.
_DEFAULTS: Final = {
    "connect_timeout": 10, "target_session_attrs": "read-write", "application_name": "eos",
}  # fmt: skip
_ALWAYS: Final = {"client_encoding": "UTF8"}  # rows are sent as UTF-8
# Classes of SQLSTATE that may pass.
_PASSING: Final = ("25", "40", "53", "55", "57", "58", "72", "XX")
# Some roles have it off: their server confirms commits that it loses if it dies.
DURABLE: Final = (
    "SELECT set_config('synchronous_commit', 'on', true) "
    "WHERE current_setting('synchronous_commit') = 'off'; "
)
# Roles and databases have defaults of their own for how a text is read.
TEXT_SETTINGS: Final = DURABLE + (
    "SET LOCAL statement_timeout = 0; SET LOCAL TIME ZONE 'UTC'; SET LOCAL array_nulls = on; "
    "SET LOCAL client_encoding = 'UTF8'; SET LOCAL DateStyle = 'ISO'"
)
# In the languages of servers: "COPY t, Zeile 1, Spalte c0", and quotes of all kinds.
_LINE: Final = re.compile(r"COPY \S+, \S+ (\d+)(?:, \S+ (\w+))?")
_QUOTE: Final = '["\u00ab\u00bb\u2018-\u201f\u2039\u203a\u300a-\u300f]'
_QUOTED: Final = re.compile(rf":?\s*{_QUOTE}.*{_QUOTE}|:?\s*{_QUOTE}.*", re.DOTALL)
_REFUSED: Final = re.compile(
    r"authentication failed|does not exist|no pg_hba.conf entry|no password supplied|SSL|"
    r"certificate|could not translate|not permitted to log in|permission denied"
)


@dataclass(frozen=True)
class Database:
    """How to reach a database; pickled to executors.

    Args:
        conninfo: a URL ``postgresql://user@host/database``, or libpq's ``host=... dbname=...``. May
            hold a password. Missing parts come from libpq's variables, as with ``psql``.

    Raises:
        ConfigurationError: ``conninfo`` can't be parsed; it is not quoted.
    """

    conninfo: str = field(repr=False)

    def __post_init__(self) -> None:
        parts = _parsed(self.conninfo)
        for name, variable in _FROM_DRIVER.items():
            if name not in parts and "service" not in parts and variable in os.environ:
                parts[name] = os.environ[variable]
        hosts = str(parts.get("host") or parts.get("hostaddr") or "").split(",")
        is_local = all(host in _LOCAL or host.startswith("/") for host in hosts)
        # libpq's default is a connection without TLS, or with any certificate.
        if not is_local and "sslmode" not in parts and "service" not in parts:
            parts["sslmode"] = "verify-full"
            parts.setdefault("sslrootcert", "system")
        object.__setattr__(self, "conninfo", libpq.make_conninfo(**parts))

    @property
    def place(self) -> str:
        """Where the database is, without user and password: it is recorded in the log."""
        parts = _parsed(self.conninfo)
        known = {name: parts[name] for name in _PLACE if name in parts}
        if "service" not in known:
            known.setdefault("dbname", parts.get("user") or os.environ.get("PGDATABASE"))
        return libpq.make_conninfo("", **{name: value for name, value in known.items() if value})

    def connect(self, name: str) -> psycopg.Connection[Any]:
        """Open a connection, which commits each statement.

        Args:
            name: of the application, as in ``pg_stat_activity``.

        Raises:
            ConnectionLost: the server does not answer, or takes no connections now.
            ConfigurationError: it refuses the login, or its certificate can't be verified.
        """
        named = {**_DEFAULTS, "application_name": name}
        settings = {**named, **_parsed(self.conninfo), **_ALWAYS}
        try:
            # No prepared statements: a pooler may give each transaction another server process.
            return psycopg.connect(**settings, autocommit=True, prepare_threshold=None)
        except psycopg.Error as error:
            _refuse_connection(error)

    def for_executors(self, connection: psycopg.Connection[Any]) -> Database:
        """Return this database for other machines: with what the variables, the password file and
        the service file of this one gave ``connection``."""
        own, used = _parsed(self.conninfo), connection.info.get_parameters()
        given = set(used)
        if "service" not in own and "PGSERVICE" not in os.environ:
            # Without the one of several hosts that psycopg chose, its address here, and defaults
            # that another libpq may not know.
            options = psycopg.pq.Conninfo.get_defaults()
            given = {one.keyword.decode() for one in options if _is_variable(one.envvar)}
        found = {
            name: used[name] for name in given & used.keys() - _DEFAULTS.keys() - _ALWAYS.keys()
        }
        parts = {"sslmode": "prefer", **found, **own}
        if connection.info.password:
            parts["password"] = connection.info.password
        names = parts.keys() - {"service", "servicefile", "passfile"}
        return Database(libpq.make_conninfo("", **{name: parts[name] for name in sorted(names)}))


def _is_variable(name: bytes | None) -> bool:
    return name is not None and name.decode() in os.environ


def recorded_database(place: str) -> Database:
    """Return the database at ``Database.place``, as a commit log has it.

    Raises:
        ConfigurationError: it says more than a place.
    """
    # A log is a file from outside: it must not choose options, such as where a password file is.
    if set(_parsed(place)) - set(_PLACE):
        raise ConfigurationError("The commit log names a database by more than its place.")
    return Database(place)


def _parsed(conninfo: str) -> dict[str, Any]:
    try:
        return dict(libpq.conninfo_to_dict(conninfo))
    except psycopg.Error:
        raise ConfigurationError(
            "The conninfo of the database can't be parsed.",
            hint="Write postgresql://user@host:5432/database, or host=... user=... dbname=...",
        ) from None


def _refuse_connection(error: psycopg.Error) -> NoReturn:
    # libpq's text may have several lines, and end with a question.
    text = " ".join(str(error).split()).rstrip(".?")
    # A failed connection has no SQLSTATE, only libpq's text.
    if _REFUSED.search(text) and "starting up" not in text:
        raise ConfigurationError(
            f"No connection to the database: {text}.",
            hint="Check host, database, user and password (or PGUSER and PGPASSWORD). Without "
            "sslmode a remote server's certificate is verified: set sslmode and sslrootcert.",
        ) from None
    hint = (
        "Check that the server runs, and how many connections it allows: each running task has "
        "one (max_connections)."
    )
    if "session is read-only" in text:
        hint = (
            "The server is a replica, or default_transaction_read_only is set for the role or the "
            "database: name the primary, or ALTER ROLE ... RESET default_transaction_read_only."
        )
    raise ConnectionLost(f"No connection to the database: {text}.", hint=hint) from None


@contextmanager
def failures(action: str, names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Translate errors of the database.

    Args:
        action: for the message, for example ``copying rows``.
        names: the staging table's column -> the column that users know.

    Raises:
        InputError: a row does not fit; names row and column as far as the server does, no values.
        ConfigurationError: a permission or an object is missing.
        Retriable: anything that may pass: lost connections, locks, deadlocks, a full disk.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translated(error, action, names or {}) from None


def _translated(error: psycopg.Error, action: str, names: Mapping[str, str]) -> EosError:
    # By SQLSTATE, not by message: servers answer in their own language.
    diag = error.diag
    state = error.sqlstate or ""
    lost = isinstance(error, psycopg.InterfaceError | psycopg.OperationalError) and not state
    if lost or state.startswith("08"):
        return ConnectionLost(
            f"The connection to the database was lost while {action}.",
            hint="Check that the server runs, and what its log says.",
        )
    # Messages quote values of rows, which must not be in errors and logs.
    said = _QUOTED.sub("", diag.message_primary or type(error).__name__)
    if diag.source_function == "exec_stmt_raise":  # its text may have values without quotes
        said = _refused_by(diag)
        if state[:2] not in _PASSING:
            return InputError(f"{_where(diag, names)}: {said}.")
    match state[:2]:
        case "21" | "22" | "23" | "P0":
            return InputError(f"{_where(diag, names)}: {_why(diag, said)}.", hint=_hint(state))
        case "42" if state == "42501":
            return ConfigurationError(
                f"The user of the database may not do this ({action}): {said}.",
                hint="The sink needs INSERT on the table, with merge_on also SELECT, UPDATE and "
                "DELETE; and CREATE on the schema of its own tables (staging_schema).",
            )
        case "" | "42" | "0A" | "3D" | "3F" | "28" | "54":
            return ConfigurationError(f"The database refused {action}: {said}.")
    if state[:2] not in _PASSING:
        # Codes of users' own functions: their texts may quote rows.
        return InputError(f"{_where(diag, names)}: it is refused by the database ({state}).")
    return Retriable(
        f"The database failed while {action}: {said} ({state}).",
        hint="Make room on the server's disk." if state == "53100" else None,
    )


def _where(diag: Any, names: Mapping[str, str]) -> str:
    found = _LINE.search(diag.context or "")
    row, column = found.groups() if found else (None, None)
    column = column or diag.column_name
    column = names.get(column or "", column)
    parts = [f"row {int(row):,}" if row else "", f"column {column!r}" if column else ""]
    text = ", ".join(filter(None, parts)) or "a row"
    return text[:1].upper() + text[1:]


def _why(diag: Any, said: str) -> str:
    if (diag.sqlstate or "").startswith("P0"):
        return _refused_by(diag)
    if diag.sqlstate == "23502":
        return "it has no value"
    if diag.constraint_name:
        return f"it violates the constraint {diag.constraint_name!r}"
    if (diag.sqlstate or "").startswith("23"):  # raised by a function, with a text of its own
        return "it violates a rule of the database"
    return said


def _refused_by(diag: Any) -> str:
    place = (diag.context or "").partition("\n")[0].partition(" line ")[0]
    return f"it is refused by {place or 'the database'}"


def _hint(state: str) -> str | None:
    match state:
        case "21000":
            return (
                "Two of its rows have keys that are equal for the database, in other case for "
                "example: write one."
            )
        case "23502":
            return "Give the column a value in each row, or a default in the table."
        case "23503":
            return (
                "The row that a foreign key names must be there before the epoch: another sink, "
                "also of the same all_or_nothing, commits on its own."
            )
        case "23505":
            return (
                "Set merge_on to replace rows that are there, or leave out rows that were written. "
                "With merge_on, a value of another unique column is there twice; if it only moves "
                "from row to row, make that constraint DEFERRABLE INITIALLY DEFERRED."
            )
        case "22007" | "22008" | "22009":
            return "Times before the year 1, and in arrays after 9999, can't be written."
        case "22021":
            return r"PostgreSQL's text has no zero character: replace(column, '\0', '')."
        case "22P05":
            return (
                r"jsonb has no \u0000: remove it. Else the database's encoding lacks a character: "
                "UTF8 has all."
            )
    return None


__all__ = ["DURABLE", "Database", "failures", "psycopg", "sql"]
