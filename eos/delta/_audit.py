"""Checks whether a table still has its committed rows, for all attempts of a log together.

The table's newest version names its files, and one listing of its folder shows which of them exist
and their sizes. Only for missing files the table's earlier commits are read. Contents are not read
again: a file with other bytes of the same size is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from eos.delta import opening
from eos.delta._later_commits import Commit, FileFate, LaterCommits
from eos.delta.files import StagedFile
from eos.delta.folder import Folder
from eos.delta.part import DeltaPart
from eos.errors import ConfigurationError, Retriable
from eos.participant import Audited, Kept

_LOG: Final = "_delta_log"


class TableAudit:
    """Compares one version of a table with the attempts of a log.

    Args:
        table: a handle on the newest version.

    Raises:
        Retriable: it can't be read.
    """

    def __init__(self, folder: Folder, table: DeltaTable) -> None:
        self._folder = folder
        self._version = table.version()
        with folder.failures("listing its files"):
            self._sizes = folder.all_sizes()
        with opening.reading(folder):
            self.table_id = str(table.metadata().id)
            adds = pa.table(table.get_add_actions(flatten=True))
            self._marked = _marked(table)
        columns = (adds.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
        self._live = {
            unquote(path): (size, records) for path, size, records in zip(*columns, strict=True)
        }

    def committed(self, parts: Sequence[DeltaPart]) -> list[Audited | None]:
        """Return the state of each attempt; None for one that was written to another table."""
        mine = [part for part in parts if part.table_id == self.table_id]
        staged = {file.path: file for part in mine for file in part.files or ()}
        live = {path: self._fate_of_live(path, staged.get(path)) for path in self._live}
        marked = {path for path, fate in live.items() if fate.kept is Kept.CHANGED}
        wanted = staged.keys() - (live.keys() - marked)
        later = LaterCommits(live, marked).look_up(wanted, self._version, self._read)
        fates = {**live, **later}
        return [self._audited(part, fates) if part in mine else None for part in parts]

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
