"""The participant: each attempt writes a folder; renaming the folder commits it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from eos.participant import Access, Attempt, Kind, Participant
from eos.protocol import (
    ABORTED,
    COMMITTED,
    Fate,
    History,
    LogRecord,
    Part,
    Payload,
    Stage,
    require,
    require_carried,
    unknown,
)


@dataclass(frozen=True)
class FolderPart(Part):
    """The part of an epoch's attempt in a folder."""

    root: str  # the output
    name: str | None = None  # the attempt's folder; a claim has none
    number: int | None = None  # counts the sink's attempts
    files: int | None = None
    size_bytes: int | None = None

    kind = "folder"
    can_expire = False  # no timeout ends an attempt
    checksum = 0

    @property
    def output(self) -> str:
        """The folder that readers list."""
        return self.root

    identity = output

    @property
    def label(self) -> str:
        """``folder 7c0f of /data/out``."""
        return f"folder {self.name} of {self.root}"

    @property
    def begun_at(self) -> tuple[int, ...] | None:
        """The number of the attempt; it grows with each attempt of the sink."""
        return None if self.number is None else (self.number,)

    @property
    def records(self) -> int | None:
        """The number of files."""
        return self.files

    @property
    def bytes(self) -> int | None:
        """The size of all files."""
        return self.size_bytes

    @property
    def written(self) -> Path:
        """The folder that tasks write to; some tasks run twice, or end late."""
        return Path(self.root, ".staged", f"{self.name}.written")

    @property
    def staged(self) -> Path:
        """The folder of the attempt's files; readers ignore it."""
        return Path(self.root, ".staged", str(self.name))

    @property
    def done(self) -> Path:
        """The folder of a committed attempt."""
        return Path(self.root, str(self.name))

    def check(self, stage: Stage) -> None:
        """See ``Part``."""
        require(Path(self.root).is_absolute(), f"{self.root} must be an absolute path")
        is_named = self.name is not None and self.number is not None
        require(is_named is (stage is not Stage.CLAIMED), "attempts have names, claims do not")
        is_path = self.name is not None and str(uuid.UUID(self.name)) != self.name
        require(not is_path, "the name of an attempt must be a uuid")  # a path could lead elsewhere
        is_counted = self.files is not None and self.size_bytes is not None
        require(is_counted is (stage is Stage.PREPARED), "files must be counted when prepared")

    def check_follows(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, FolderPart)
        counted = () if previous.files is None else ("files", "size_bytes")
        require_carried(self, previous, ("root", "name", "number", *counted))

    def payload(self) -> Payload:
        """See ``Part``."""
        return asdict(self)

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """See ``Part``."""
        return cls(**payload)


class FolderParticipant(Participant):
    """Writes folders below ``root``, on one file system."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(Path(root).absolute())
        self._number = 0

    def claimed(self, history: History, log_table_id: str) -> FolderPart:
        """See ``Participant``."""
        return FolderPart(self._root)

    def missing(self, claim: Part, history: History) -> str | None:
        """Report the folder as missing if the log names attempts in it."""
        if history.last_begun(claim.key) is None or _is_there(self._root):
            return None
        return f"folder {self._root} does not exist, or is not mounted"

    def make(self, claim: Part, *, in_recovery: bool) -> None:
        """Create the folder."""
        if in_recovery:
            return  # it may not be mounted: an empty one would prove that nothing was written
        Path(self._root, ".staged").mkdir(parents=True, exist_ok=True)

    def attach(self, claim: Part, history: History) -> None:
        """Continue counting after the last attempt in the log."""
        last = history.last_begun(claim.key)
        part = None if last is None else last.part(claim.key)
        self._number = 0 if part is None or part.begun_at is None else part.begun_at[0]

    def begin(self, attempt: Attempt) -> FolderPart:
        """Choose a name; the output creates the folder with the first file."""
        self._number += 1
        return FolderPart(self._root, name=str(uuid.uuid4()), number=self._number)

    def count(self, part: Part, written: Sequence[Any]) -> FolderPart:
        """Take and count ``written``, the files of the task runs that count."""
        mine, size_bytes = _mine(part), 0
        for path in map(Path, written):
            mine.staged.mkdir(parents=True, exist_ok=True)
            size_bytes += path.stat().st_size
            path.rename(mine.staged / path.name)
        return replace(mine, files=len(written), size_bytes=size_bytes)

    def prepare(self, record: LogRecord, part: Part) -> FolderPart:
        """Sync the files."""
        # After PREPARED they must survive a power failure: the log then promises to commit them.
        mine = _mine(part)
        for path in [*mine.staged.glob("*"), mine.staged, mine.staged.parent] if mine.files else []:
            _sync(path)
        return mine

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Rename the folder."""
        mine = _mine(part)
        if not mine.files:
            return COMMITTED  # no rows in this epoch
        try:
            os.rename(mine.staged, mine.done)  # atomic: readers see all files or none
            _sync(mine.done.parent)  # the new name must survive a power failure
        except FileNotFoundError:
            pass  # renamed before, or deleted
        except OSError as error:
            return unknown(f"it cannot be renamed: {error.strerror}")
        return self.outcome(part, timeout_s=deadline_s)

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Delete the staged files."""
        # No reader has seen them: only the renamed folder is listed.
        for folder in (_mine(part).staged, _mine(part).written):
            shutil.rmtree(folder, ignore_errors=True)
        # An abort never undoes a commit, and never denies one.
        return COMMITTED if _mine(part).done.is_dir() else ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """Check which of the two folders exists."""
        mine = _mine(part)
        if mine.done.is_dir() or mine.files == 0:  # without rows there is no folder
            return COMMITTED
        if not _is_there(mine.root):
            return unknown(f"{mine.root} does not exist, or is not mounted")
        return unknown("it is staged") if mine.staged.is_dir() else ABORTED

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Delete what tasks left whose files were not taken."""
        shutil.rmtree(_mine(part).written, ignore_errors=True)


class FolderKind:
    """The kind ``folder`` of parts in the log."""

    part: type[Part] = FolderPart

    def open(self, sink_id: str, part: Part, access: Access) -> FolderParticipant:
        """Open it for recovery, at the place that the log names."""
        return FolderParticipant(_mine(part).root)


KIND: Final[Kind] = FolderKind()


def _is_there(root: str) -> bool:
    # A disk that is not mounted looks like an empty folder: ``make`` leaves one in it.
    return Path(root, ".staged").is_dir()


def _mine(part: Part) -> FolderPart:
    assert isinstance(part, FolderPart)
    return part


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
