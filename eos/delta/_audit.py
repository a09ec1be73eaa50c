"""Checks whether a table still has its committed rows, for all attempts of a log together.

The table's newest version and one listing of its folder show which files are there, by name and
size: contents are not read again. Only for missing files earlier commits are read, newest first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from eos.delta import opening
from eos.delta.files import StagedFile
from eos.delta.folder import Folder
from eos.delta.part import DeltaPart
from eos.errors import ConfigurationError, Retriable
from eos.participant import Audited, Kept

# Operations that change rows on purpose, rather than restore or recreate the table.
_CHANGES_ROWS: Final = frozenset({"DELETE", "UPDATE", "MERGE", "TRUNCATE"})
_RESTORE: Final = "RESTORE"
_LOG: Final = "_delta_log"


@dataclass(frozen=True)
class FileFate:
    """State of a file's rows; ``by``: the commits that changed it, or the problem."""

    kept: Kept
    by: tuple[str, ...] = ()

    @classmethod
    def worst(cls, fates: list[FileFate]) -> FileFate:
        """Combine the states of several files."""
        kept = max((fate.kept for fate in fates), default=Kept.WHOLE)
        by = {text: None for fate in fates if fate.kept is kept for text in fate.by}
        return cls(kept, tuple(by))


@dataclass(frozen=True)
class Commit:
    """The files that one commit of a Delta log added and removed."""

    version: int
    operation: str
    adds: Mapping[str, Mapping[str, Any]]
    removes: Mapping[str, Mapping[str, Any]]

    @classmethod
    def parse(cls, version: int, text: str) -> Commit:
        """Parse ``text``, the lines of the commit's file.

        Raises:
            ValueError: it is not a commit.
        """
        operation, adds, removes = "an unnamed operation", {}, {}
        for line in text.splitlines():
            action = json.loads(line) if line.strip() else {}
            if not isinstance(action, dict):
                raise ValueError("not a JSON object")
            if "add" in action:
                adds[unquote(action["add"]["path"])] = action["add"]
            elif "remove" in action:
                removes[unquote(action["remove"]["path"])] = action["remove"]
            elif "commitInfo" in action:
                operation = _operation_of(action["commitInfo"])
        return cls(version, operation, adds, removes)

    @property
    def label(self) -> str:
        """``RESTORE (version 7)``."""
        return f"{self.operation} (version {self.version})"

    def successors(self, path: str) -> Iterator[str]:
        """The files of the same partition that the commit added when it removed ``path``."""
        partition = self.removes[path].get("partitionValues")
        for other, added in self.adds.items():
            if other != path and partition in (None, added.get("partitionValues")):
                yield other


def _operation_of(info: Mapping[str, Any]) -> str:
    operation = str(info.get("operation") or "an unnamed operation")
    parameters = info.get("operationParameters") or {}
    mode = parameters.get("mode") if isinstance(parameters, Mapping) else None
    return f"{operation} in mode {mode}" if operation == "WRITE" and mode else operation


@dataclass
class LaterCommits:
    """Finds the states of files, commit by commit.

    Args:
        live: the states of the files that the table has now.
        marked: those with rows that a deletion vector marks as deleted.
    """

    live: Mapping[str, FileFate]
    marked: Set[str]
    _fates: dict[str, FileFate] = field(default_factory=dict)
    # Removed by a RESTORE: an earlier commit may have moved their rows to a file that is live.
    _restored: set[str] = field(default_factory=set)

    def look_up(
        self, wanted: set[str], newest: int, read: Callable[[int], Commit | None]
    ) -> Mapping[str, FileFate]:
        """Return the states of the files ``wanted``: not live, or live with deleted rows.

        Args:
            newest: the version of the table to begin at.
            read: returns the commit of a version; None if the log no longer has it.
        """
        pending = set(wanted)
        oldest = newest + 1
        while pending and oldest:
            commit = read(oldest - 1)
            if commit is None:
                break
            oldest -= 1
            self._apply(commit)
            pending -= self._fates.keys() - self._restored
            if not commit.operation.startswith(_RESTORE):
                for path in pending.intersection(commit.adds):
                    self._fates.setdefault(path, _GONE)
                    self._restored.discard(path)
                pending -= commit.adds.keys()
        begins = f"its history begins at version {oldest}, and does not say why"
        missing = FileFate(Kept.UNKNOWN, (begins,)) if oldest else _GONE
        return {path: self._fates.get(path, missing) for path in wanted}

    def _apply(self, commit: Commit) -> None:
        is_restore = commit.operation.startswith(_RESTORE)
        found = {}
        for path in commit.adds.keys() & self.marked:
            self._fates.setdefault(path, FileFate(Kept.CHANGED, (commit.label,)))
        for path, removed in commit.removes.items():
            is_known = path in self._fates and path not in self._restored
            if path in self.live or path in commit.adds or is_known:
                continue
            fate = self._fate(commit, path, removed)
            if path not in self._fates:
                found[path] = fate
                if is_restore:
                    self._restored.add(path)
            elif fate.kept < Kept.UNKNOWN:
                found[path] = fate
                self._restored.discard(path)
        self._fates |= found

    def _fate(self, commit: Commit, path: str, removed: Mapping[str, Any]) -> FileFate:
        if not removed.get("dataChange", True):
            # For a file with a deletion vector, only the other rows were rewritten.
            kept = Kept.CHANGED if removed.get("deletionVector") else Kept.WHOLE
        elif commit.operation in _CHANGES_ROWS:
            kept = Kept.CHANGED
        else:
            return FileFate(Kept.LOST, (f"removed by {commit.label}",))
        unknown = FileFate(Kept.UNKNOWN, (f"{commit.label}, whose files are missing",))
        later = [
            self.live.get(other) or self._fates.get(other, unknown)
            for other in commit.successors(path)
        ]
        worst = FileFate.worst(later)
        own = () if kept < worst.kept else (commit.label,)
        return FileFate(max(kept, worst.kept), (*own, *worst.by))


_GONE: Final = FileFate(Kept.LOST, ("no commit of the table explains it",))


class TableAudit:
    """Compares the table's newest version, seen by ``table``, with the attempts of a log."""

    def __init__(self, folder: Folder, table: DeltaTable) -> None:
        self._folder = folder
        self._version = table.version()
        with folder.failures("listing its files"):
            self._sizes = folder.all_sizes()
        with opening.reading(folder):
            self.table_id = str(table.metadata().id)
            self._newest_version = table.transaction_version
            adds = pa.table(table.get_add_actions(flatten=True))
            self._marked = _marked(table)
        columns = (adds.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        self._live = {
            unquote(path): (size, records) for path, size, records in zip(*columns, strict=True)
        }

    def committed(self, parts: Sequence[DeltaPart]) -> list[Audited | None]:
        """Return the state of each attempt; None for one that was written to another table."""
        mine = [part for part in parts if part.table_id == self.table_id]
        appended = [part for part in mine if part.upsert is None]
        staged = {file.path: file for part in appended for file in part.files or ()}
        live = {path: self._fate_of_live(path, staged.get(path)) for path in self._live}
        marked = {path for path, fate in live.items() if fate.kept is Kept.CHANGED}
        wanted = staged.keys() - (live.keys() - marked)
        later = LaterCommits(live, marked).look_up(wanted, self._version, self._read)
        fates = {**live, **later}
        return [self._audited(part, fates) if part in mine else None for part in parts]

    def _upserted(self, part: DeltaPart) -> Audited:
        """An upsert's rows are in no files of their own: only its version is checked."""
        newest = self._newest_version(part.app_id)
        if newest is not None and newest < (part.version or 0):
            return Audited(Kept.LOST, "version is not in the table any more")
        return Audited(Kept.CHANGED, "rows were merged by key: only its version was checked")

    def aborted(self, parts: Iterable[DeltaPart]) -> list[DeltaPart]:
        """Return those of ``parts`` that have a file in the table."""
        begun = {path.rsplit("/", 1)[-1][: len("eos-") + 36] for path in self._live}
        return [part for part in parts if f"eos-{part.attempt_id}" in begun]

    def _fate_of_live(self, path: str, staged: StagedFile | None) -> FileFate:
        size, records = self._live[path]
        if path not in self._sizes:
            return FileFate(Kept.LOST, (f"{path} is not in the storage",))
        if self._sizes[path] != size or (staged and staged.size_bytes != size):
            return FileFate(Kept.LOST, (f"{path} has another size in the storage",))
        if staged and records not in (None, staged.records):
            return FileFate(Kept.LOST, (f"{path} has {records} rows in the table",))
        if path.rsplit("/", 1)[-1] in self._marked:
            return FileFate(Kept.CHANGED, ("a deletion vector",))
        return FileFate(Kept.WHOLE)

    def _audited(self, part: DeltaPart, fates: Mapping[str, FileFate]) -> Audited:
        if part.upsert is not None:
            return self._upserted(part)
        fate = FileFate.worst([fates[file.path] for file in part.files or ()])
        by = ", then ".join(fate.by)
        match fate.kept:
            case Kept.WHOLE:
                return Audited(fate.kept, f"files were rewritten by {by}" if by else "")
            case Kept.CHANGED:
                return Audited(fate.kept, f"rows were changed or deleted by {by}")
            case Kept.UNKNOWN:
                return Audited(fate.kept, f"files are not in the table any more: {by}")
        return Audited(fate.kept, f"rows are not in the table any more: {by}")

    def _read(self, version: int) -> Commit | None:
        path = f"{_LOG}/{version:020}.json"
        if path not in self._sizes:
            return None
        with self._folder.failures(f"reading {path}"):
            text = self._folder.read_text(path)
        try:
            return Commit.parse(version, text)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise Retriable(f"Delta table {self._folder.uri}: {path} is damaged.") from None


def open_audit(folder: Folder) -> TableAudit | None:
    """Open an audit of the table; None if it does not exist.

    Raises:
        Retriable: it can't be read.
    """
    try:
        table = opening.open_if_exists(folder)
    except ConfigurationError:
        return None
    return None if table is None else TableAudit(folder, table)


def _marked(table: DeltaTable) -> set[str]:
    """Names of the files with a deletion vector, which marks rows as deleted."""
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return set()
    paths = pa.table(table.deletion_vectors()).column(0).to_pylist()
    return {unquote(path).rsplit("/", 1)[-1] for path in paths}
