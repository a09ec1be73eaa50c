"""Finds out what later commits of a table did with files that are no longer in it.

Each commit of a Delta log says which files it removed and added, and by which operation. So the
commits are read once, from the newest back, as far as the log goes: when a commit that added files
is reached, their state is known. Rows that an OPTIMIZE has moved to another file share that file's
state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from eos.participant import Kept

_CHANGES_ROWS: Final = frozenset({"DELETE", "UPDATE", "MERGE", "TRUNCATE"})
"""Operations that change rows on purpose, rather than restore or recreate the table."""
_RESTORE: Final = "RESTORE"


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
    _restored: set[str] = field(default_factory=set)
    """Removed by a RESTORE: an earlier commit may have moved their rows to a file that is live."""

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
