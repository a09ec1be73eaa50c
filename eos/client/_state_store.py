"""The stores of a ``KeyedState``, in memory or in a temporary SQLite file, and its messages."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import Fatal, InputError
from eos.wire.batch import Message

Key = str | bytes

OWNER_KEY: Final = "__eos.owner"
COLUMNS: Final = ("key", "key_is_binary", "value", "properties")

_MARK: Final = "eos.state"  # the property of messages whose value is not that of a key
_OWNER: Final = "eos.owner"  # the property with the name of an owner
_NO_TXN: Final = b"-"
_PAGE_ROWS: Final = 1000


class StateStore(Protocol):
    """Keys and their values. It belongs to one thread at a time.

    ``is_usable``: no error has left it in an unknown state; ``clear`` makes it so.
    """

    is_usable: bool

    def get(self, key: Key) -> bytes | None:
        """Return the value of ``key``, or None."""

    def apply(self, changes: Mapping[Key, bytes | None]) -> None:
        """Set the values of keys, or remove those with None."""

    def __iter__(self) -> Iterator[Key]: ...

    def __len__(self) -> int: ...

    def clear(self) -> None:
        """Remove all keys."""

    def close(self) -> None:
        """Give memory and files back."""


class MemoryStore:
    """A dictionary."""

    is_usable = True

    def __init__(self) -> None:
        self._values: dict[Key, bytes] = {}
        self.get = self._values.get

    def apply(self, changes: Mapping[Key, bytes | None]) -> None:
        """See ``StateStore``."""
        for key, value in changes.items():
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        """See ``StateStore``."""
        self._values.clear()

    close = clear


class SqliteStore:
    """A file in ``folder``, for states larger than memory; removed at the end.

    Raises:
        Fatal: the file can't be written or read, for example as the disk is full.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.is_usable = False
        self._count: int | None = 0
        with self._explained():
            self._database = self._created()

    def _created(self) -> sqlite3.Connection:
        # The file has no name once it is open: it is gone with its process.
        with tempfile.NamedTemporaryFile(prefix="eos-state-", dir=self._folder) as file:
            database = sqlite3.connect(file.name, isolation_level=None, check_same_thread=False)
            # Temporary: after a crash the state is read from the topic.
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA journal_mode = OFF")
            # Without a type, so that a text and its bytes are two keys.
            database.execute("CREATE TABLE state (key PRIMARY KEY, value BLOB) WITHOUT ROWID")
        self.is_usable, self._count = True, 0
        return database

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            # Without a journal, the file may be damaged.
            self.is_usable = False
            raise Fatal(
                f"The state's file in {self._folder}: {error}.",
                hint="Make room there: the next use restores the state from its topic.",
            ) from None

    def get(self, key: Key) -> bytes | None:
        """See ``StateStore``."""
        with self._explained():
            row = self._database.execute("SELECT value FROM state WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def apply(self, changes: Mapping[Key, bytes | None]) -> None:
        """See ``StateStore``."""
        removed = [(key,) for key, value in changes.items() if value is None]
        values = [(key, value) for key, value in changes.items() if value is not None]
        with self._explained():
            self._database.execute("BEGIN")
            self._database.executemany("REPLACE INTO state VALUES (?, ?)", values)
            self._database.executemany("DELETE FROM state WHERE key = ?", removed)
            self._database.execute("COMMIT")
        self._count = None

    def __iter__(self) -> Iterator[Key]:
        # In pages: an open query would not stand changes while its caller goes through it.
        last: tuple[Key, ...] = ()
        while True:
            where = "WHERE key > ?" if last else ""
            query = f"SELECT key FROM state {where} ORDER BY key LIMIT {_PAGE_ROWS}"  # noqa: S608
            with self._explained():
                page = [key for (key,) in self._database.execute(query, last)]
            yield from page
            if len(page) < _PAGE_ROWS:
                return
            last = (page[-1],)

    def __len__(self) -> int:
        if self._count is None:
            with self._explained():
                (self._count,) = self._database.execute("SELECT count(*) FROM state").fetchone()
        return self._count

    def clear(self) -> None:
        """See ``StateStore``."""
        with self._explained():
            self._database.close()
            self._database = self._created()

    def close(self) -> None:
        """See ``StateStore``; may be called twice."""
        self._database.close()


def owner_mark(txn: str, owner: str) -> Message:
    """Return the message of ``owner``, which uses the state in ``txn``, or "": reads the topic."""
    properties = {_MARK: "owner", _OWNER: owner}
    return Message(txn.encode() or _NO_TXN, OWNER_KEY, properties=properties)


def message_of(key: Key, value: bytes | None) -> Message:
    """Return the message that sets ``key``, or deletes it."""
    # An empty value is a deletion to brokers. Deletions are values: a reader that a compaction
    # overtakes does not get the others (apache/pulsar #26190).
    if value:
        return Message(value, key)
    mark = "deleted" if value is None else "empty"
    return Message(mark.encode(), key, properties={_MARK: mark})


class Changes(NamedTuple):
    """The content of messages: ``values`` by key, None for deleted ones; the transaction that the
    last mark names, or ""; the owners of all marks; the type of all keys so far."""

    values: dict[Key, bytes | None]
    txn: str
    owners: list[str]
    key_type: type | None


def changes_of(batch: pa.RecordBatch, topic: str, key_type: type | None) -> Changes:
    """Decode messages with ``COLUMNS``, of a topic whose keys so far have ``key_type``.

    Raises:
        InputError: some keys are text and some are bytes.
    """
    values, txn = batch.column("value").to_pylist(), ""
    owners: list[str] = []
    # Foreign messages may have no key, or that of marks; those of a state do not.
    is_hidden = pc.fill_null(pc.equal(batch.column("key"), OWNER_KEY.encode()), fill_value=True)
    is_shown = pc.invert(is_hidden).to_numpy(zero_copy_only=False)
    properties = batch.column("properties")
    for row in np.flatnonzero(np.diff(properties.offsets)).tolist():
        given = dict(properties[row].as_py())
        mark = given.get(_MARK)
        if mark == "owner":
            text = values[row] or _NO_TXN
            txn = txn if text == _NO_TXN else text.decode(errors="replace")
            owners.append(given.get(_OWNER, ""))
            is_shown[row] = False
        elif mark is not None:
            values[row] = b"" if mark == "empty" else None
    if not is_shown.all():
        batch = batch.filter(pa.array(is_shown))
        values = [value for value, shown in zip(values, is_shown, strict=True) if shown]
    if not values:
        return Changes({}, txn, owners, key_type)
    kinds = {bytes if one else str for one in batch.column("key_is_binary").unique().to_pylist()}
    if len(kinds | {key_type} - {None}) > 1:
        raise InputError(
            f"{topic} has keys of several kinds: text, and bytes.",
            hint="Other programs have written there. Use a topic for this state only.",
        )
    (kind,) = kinds
    keys = batch.column("key").to_pylist()
    if kind is str:
        keys = [key.decode(errors="replace") for key in keys]
    return Changes(dict(zip(keys, values, strict=True)), txn, owners, kind)
