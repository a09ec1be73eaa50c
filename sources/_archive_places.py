"""Up to where an archive has each partition: transaction identifiers in its table's commits."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from eos.delta.folder import Folder
from eos.delta.opening import open_version_if_exists, reading
from eos.errors import ConfigurationError, Retriable
from eos.ids import EntryPlace

# The first one counts the commits: of two archives that write to one table at the same time, one
# commit succeeds. The others are a partition's place; below 0: it has none (any more).
COMMITS: Final = "eos-archive"
_MOST_CHECKED: Final = 1000  # commits: each is a file
_LEDGER, _ENTRY = "eos-archive/ledger/{}", "eos-archive/entry/{}"
_NONE: Final = (-1, -1)


class Archived(NamedTuple):
    """What a table has of each partition (None: nothing), and the number of its last commit."""

    commits: int
    places: dict[str, EntryPlace | None]


class Identifiers:
    """The newest transaction identifiers of the table in ``folder``. They are looked up once, and
    followed from commit to commit."""

    # deltalake replays the log for each look-up, also for none (1.6, measured).

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._table_id = ""
        self._version = -1
        self._known: dict[str, int | None] = {}

    def of(self, table: DeltaTable, names: Iterable[str]) -> dict[str, int | None]:
        """Return those of these names in a version of the table; None: it has none.

        Raises:
            Retriable: its log can't be read.
        """
        with reading(self.folder):
            table_id, version = str(table.metadata().id), table.version()
        if table_id != self._table_id or not self._follow(version):
            self._known = {}
        self._table_id, self._version = table_id, version
        for name in names:
            if name not in self._known:
                with reading(self.folder):
                    self._known[name] = table.transaction_version(name)
        return {name: self._known[name] for name in names}

    def _follow(self, version: int) -> bool:
        """Whether what is known is that of this version now."""
        for later in range(self._version + 1, version + 1):
            actions = _actions(self.folder, later)
            if actions is None:
                return False
            for one in actions:
                if (txn := one.get("txn")) is not None and txn["appId"] in self._known:
                    self._known[txn["appId"]] = int(txn["version"])
        return version >= self._version

    def archived(self, table: DeltaTable, partitions: Iterable[str]) -> Archived | None:
        """Return what a version of the table has of these partitions; None if no archive wrote to
        it.

        Raises:
            ConfigurationError: it was restored to a version that no longer exists.
            Retriable: its log can't be read.
        """
        commits = self.of(table, [COMMITS])[COMMITS]
        if commits is None:
            return None
        return Archived(commits, self._places(_version_of_rows(self.folder, table), partitions))

    def _places(self, rows: DeltaTable, partitions: Iterable[str]) -> dict[str, EntryPlace | None]:
        names = {name: [one.format(name) for one in (_LEDGER, _ENTRY)] for name in partitions}
        found = self.of(rows, [one for both in names.values() for one in both])
        places: dict[str, EntryPlace | None] = {}
        for name, both in names.items():
            ledger, entry = (found[one] for one in both)
            places[name] = (
                None if ledger is None or entry is None or ledger < 0 else (ledger, entry)
            )
        return places

    def next(
        self,
        table: DeltaTable,
        before: Mapping[str, EntryPlace | None],
        after: Mapping[str, EntryPlace],
    ) -> dict[str, int]:
        """Return the identifiers of a commit whose rows are those between these places.

        Raises:
            ConfigurationError: as ``archived``.
            Retriable: the table was restored since; or its log can't be read.
        """
        folder, found = self.folder, self.archived(table, before)
        if found is not None and found.places != before:
            raise Retriable(
                f"Delta table {folder.uri} was restored while rows for it were read. Nothing was "
                "added."
            )
        # This commit hides a RESTORE: with it, all that was set back gets the place that it has
        # now. A RESTORE that comes only after ``table`` is a conflict: it changes the table's
        # metadata.
        rows = _version_of_rows(folder, table)
        names: set[str] = set()
        for version in range(rows.version() + 1, table.version() + 1):
            names |= _named(_actions(folder, version) or ())
        undone = {name: place or _NONE for name, place in self._places(rows, names).items()}
        return identifiers({**undone, **after})


def _named(actions: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the partitions whose places a commit has set."""
    prefix = _LEDGER.format("")
    found = [str(one["txn"]["appId"]) for one in actions if "txn" in one]
    return {one.removeprefix(prefix) for one in found if one.startswith(prefix)}


def identifiers(places: Mapping[str, EntryPlace]) -> dict[str, int]:
    """Return the identifiers of a commit that ends at these places."""
    return {
        form.format(name): number
        for name, place in places.items()
        for form, number in zip((_LEDGER, _ENTRY), place, strict=True)
    }


def foreign_changes(folder: Folder, table: DeltaTable) -> Iterator[tuple[int, str | None]]:
    """Yield the newest versions in which something else changed rows, with their operations; None:
    the log has neither this version nor any commit of an archive.

    Raises:
        Retriable: the log can't be read.
    """
    version, has_own = table.version(), False
    for _ in range(_MOST_CHECKED):
        actions = None if version < 0 else _actions(folder, version)
        if actions is None:
            if version >= 0 and not has_own:
                yield version, None
            return
        info = _commit_info(actions)
        operation = str(info.get("operation", "?"))
        if operation == "RESTORE":  # what is between is undone
            # Spark writes null if a time was restored: then all before may be undone.
            restored = str(info.get("operationParameters", {}).get("version"))
            version = int(restored) if restored.isdecimal() else version - 1
            continue
        changes = [one.get("add") or one.get("remove") for one in actions]
        is_own = any(one.get("txn", {}).get("appId") == COMMITS for one in actions)
        if not is_own and any(one is not None and one.get("dataChange") for one in changes):
            yield version, operation
        has_own |= is_own
        version -= 1


def _commit_info(actions: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((one["commitInfo"] for one in actions if "commitInfo" in one), {})


def _version_of_rows(folder: Folder, table: DeltaTable) -> DeltaTable:
    """Return the version whose identifiers tell what the rows of ``table`` are."""
    # A RESTORE brings back a version's rows, and keeps all identifiers (measured). Without this,
    # the rows between would be in no commit.
    for version in range(table.version(), -1, -1):
        actions = _actions(folder, version)
        if actions is None:  # The log was cleaned up: long ago.
            return table
        if any(one.get("txn", {}).get("appId") == COMMITS for one in actions):
            return table
        info = _commit_info(actions)
        if info.get("operation") == "RESTORE":
            number = str(info.get("operationParameters", {}).get("version"))
            restored = open_version_if_exists(folder, int(number)) if number.isdecimal() else None
            if restored is None:
                raise ConfigurationError(
                    f"Delta table {folder.uri} was restored by its version {version}, and what it "
                    "was restored to can't be found.",
                    hint="Restore it to a version that exists: RESTORE TABLE ... TO VERSION AS OF.",
                )
            return _version_of_rows(folder, restored)
    return table


def _actions(folder: Folder, version: int) -> list[dict[str, Any]] | None:
    """Return the actions of a commit; None if the log no longer has it."""
    with folder.failures("reading its log"):
        try:
            text = folder.read_text(f"_delta_log/{version:020d}.json")
        except FileNotFoundError:
            return None
    return [json.loads(line) for line in text.splitlines() if line]


def after(place: EntryPlace) -> EntryPlace:
    """Return the place after an entry."""
    return place[0], place[1] + 1


def place_of(batch: pa.RecordBatch, row: int) -> EntryPlace:
    """Return the place of a row's entry."""
    return batch.column("__ledger")[row].as_py(), batch.column("__entry")[row].as_py()


def of_entry(batch: pa.RecordBatch, place: EntryPlace) -> pa.RecordBatch:
    """Return the first rows of a batch, as far as they belong to the entry at ``place``."""
    same = pc.and_(
        pc.equal(batch.column("__ledger"), place[0]), pc.equal(batch.column("__entry"), place[1])
    )
    later = pc.index(same, False).as_py()
    return batch if later < 0 else batch.slice(0, later)
