"""The Delta participant: an attempt stages files, and its commit is one append. Spark-free.

The commit carries Delta's transaction identifier (app id of the log, version of the attempt), which
the table keeps: it proves the outcome. Nothing expires; the first process that commits succeeds.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from eos.delta._audit import open_audit
from eos.delta.files import StagedFile
from eos.delta.opening import schema_from_json
from eos.delta.part import KIND, DeltaPart
from eos.delta.target_table import TargetTable
from eos.errors import (
    EosError,
    Fenced,
    InputError,
    NewCluster,
    Retriable,
)
from eos.participant import Attempt, Audited, Participant, Upsert
from eos.protocol import ABORTED, COMMITTED, Fate, History, Known, LogRecord, Part, State, unknown
from eos.retry import ask_until

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Staged:
    """Result of the writing: all tasks' files, and what the commit makes of the table."""

    files: tuple[StagedFile, ...]
    schema: str
    """The table's columns after the commit, as Delta's JSON."""
    merge: bool
    """The commit adds columns that the table lacks."""
    upsert: Upsert | None = None
    """How the files' rows change others by key; None: the files are appended."""


class DeltaParticipant(Participant):
    """Begin, prepare, commit, abort and outcome of a sink's appends to one table.

    Args:
        table: an absolute path, ``file:///path`` or ``s3://bucket/prefix``.
        storage_options: as for ``deltalake``.
    """

    def __init__(
        self, sink_id: str, table: str, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.table = TargetTable(table, storage_options)
        self._sink_id = sink_id
        self._owner = f"eos/{sink_id}"
        self._claim: DeltaPart | None = None
        self._has_begun = False
        self._version = 0
        self._last_committed = 0
        # A failed, unprepared attempt's files are in no log: if forgotten, a vacuum deletes them.
        self._staged: dict[str, tuple[StagedFile, ...]] = {}

    def claimed(self, history: History, log_table_id: str) -> DeltaPart:
        """The table, and this log's identifier in it."""
        app_id = f"{self._owner}/{log_table_id}"
        claim = DeltaPart(table=self.table.folder.uri, app_id=app_id)
        self._has_begun = history.last_begun(claim.key) is not None
        return claim

    def traces(self) -> list[str]:
        """Whether a log of this sink has committed to the table: called if there is no log."""
        if not self.table.exists() or self.table.committed_version(self._owner) is None:
            return []
        return [f"table {self.table.folder.uri} has rows of it"]

    def check(self, claim: Part) -> None:
        """Check that the table can be appended to. Whether it exists is checked by ``missing``.

        Raises:
            ConfigurationError: it requires something that an append of files can't do.
        """
        # If the log has begun attempts, ``begin`` checks it instead: unfinished attempts must be
        # ended although the table may have new requirements.
        if not self._has_begun and self.table.exists():
            self.table.check_writable()

    def missing(self, claim: Part, history: History) -> str | None:
        """Report the table if it is not the one that the log names."""
        last = _last(history, claim)
        if last is None or last.table_id is None:
            return None
        if not self.table.exists():
            return f"there is no Delta table at {last.table}"
        if not self.table.is_table(last.table_id):
            return f"the Delta table at {last.table} was dropped and recreated"
        return None

    def lost_commit(self, claim: Part, history: History) -> str | None:
        """Report the newest version that the log holds as committed, if the table lacks it."""
        for part in history.committed(claim.key):
            if isinstance(part, DeltaPart) and self._lacks_version(part.app_id, part.version or 0):
                return f"{part.label} is missing: an older copy of the table was restored"
        return None

    def _lacks_version(self, app_id: str, version: int) -> bool:
        committed = self.table.committed_version(app_id)
        if committed is None:
            return not self.table.forgets_transactions
        return committed < version

    def attach(self, claim: Part, history: History) -> None:
        """Continue the version numbers of the log."""
        self._claim = mine = _own(claim)
        begun = (history.last_begun(part.key) for part in history.parts(KIND))
        parts = (part for record in begun if record for part in record.participants)
        # One count for all tables of this log, by any path.
        self._version = max(
            (
                part.version or 0
                for part in parts
                if isinstance(part, DeltaPart) and part.app_id == mine.app_id
            ),
            default=0,
        )

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """Report a version of this log's identifier in the table that is newer than the log."""
        assert self._claim is not None
        committed = self.table.committed_version(self._claim.app_id)
        if committed is None or committed <= self._version:
            return None
        return f"version {committed} of {self._claim.app_id} is in table {self._claim.table}"

    def begin(self, attempt: Attempt) -> DeltaPart:
        """Name the next version; nothing is written yet.

        Raises:
            ConfigurationError: the table now requires something that an append can't do.
            NewCluster: a commit of this process is missing in the table.
        """
        assert self._claim is not None
        self.table.check_writable()
        if self._last_committed and self._lacks_version(self._claim.app_id, self._last_committed):
            raise NewCluster(
                f"Version {self._last_committed} of {self._claim.app_id} is no longer in table "
                f"{self._claim.table}: an older copy of it was restored.",
                hint="Restore the newest copy. To continue without the missing rows: start again "
                'with on_new_cluster="continue" once.',
            )
        table_id = self.table.table_id
        self._version += 1
        return replace(
            self._claim,
            version=self._version,
            table_id=table_id,
            attempt_id=str(uuid.uuid4()),
        )

    def count(self, part: Part, written: Sequence[Any]) -> DeltaPart:
        """Take the staged files from a ``Staged``."""
        (staged,) = written
        mine = _own(part)
        self._staged[str(mine.attempt_id)] = staged.files
        return replace(
            mine,
            files=staged.files,
            schema=staged.schema,
            merge=staged.merge,
            upsert=staged.upsert,
        )

    def prepare(self, record: LogRecord, part: Part) -> DeltaPart:
        """Check again that all files exist, and that the table is the same.

        Raises:
            Retriable: files are missing, or columns have changed: the epoch runs again.
            NewCluster: the table was recreated.
            ConfigurationError: it now requires something that an append can't do.
        """
        mine = _own(part)
        gone = self.table.missing(mine.files or ())
        if gone:
            raise Retriable(f"{len(gone)} staged files of {mine.label} are missing.")
        self._check_unchanged(mine)
        if not self.table.is_table(str(mine.table_id)):
            raise NewCluster(
                f"The Delta table at {mine.table} was dropped and recreated in the meantime.",
                hint="Restore the old one. To write to the new one: start again with "
                'on_new_cluster="continue" once.',
            )
        return mine

    def _check_unchanged(self, part: DeltaPart) -> None:
        try:
            self.table.check_staged(
                schema_from_json(str(part.schema)),
                merge=part.merge,
                upsert=part.upsert is not None,
            )
        except InputError as error:
            raise Retriable(f"{error.message} The epoch is written again.") from None

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Append the files, or find that they were. Without rows only the version is recorded."""
        mine = _own(part)
        fate = ask_until(
            lambda: self._commit_once(mine), lambda one: one.known is not Known.UNKNOWN, deadline_s
        )
        if fate.known is Known.COMMITTED:
            self._last_committed = max(self._last_committed, mine.version or 0)
        return fate

    def _commit_once(self, part: DeltaPart) -> Fate:
        assert part.version is not None
        assert part.files is not None
        try:
            self.table.commit(
                part.files,
                part.app_id,
                part.version,
                table_id=str(part.table_id),
                schema=schema_from_json(str(part.schema)),
                merge=part.merge,
                upsert=part.upsert,
                more={self._owner: part.version},
            )
        except Fenced as error:
            return unknown(f"{error.message} The commit log may be an older copy")
        except EosError as error:  # another driver may have committed before
            logger.warning("%s: %s", part.label, error)
            found = self.outcome(part, timeout_s=0.0)
            if found.known is not Known.UNKNOWN:
                return found
            return unknown(f"{error.message} {error.hint}".strip().rstrip("."))
        return COMMITTED

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Delete staged files, as far as they are known and reachable; a vacuum deletes others."""
        # It needs no fence: the attempt was never PREPARED, and no process commits it; or the
        # deciding output has expired, and no process begins to commit this one.
        mine = _own(part)
        files = mine.files or self._staged.get(str(mine.attempt_id), ())
        try:
            committed = self.table.committed_version(mine.app_id)
            if committed is not None and committed == mine.version:
                return COMMITTED
            self.table.discard(files)
        except EosError as error:
            logger.warning(
                "%s: %d staged files are left to a vacuum: %s", mine.label, len(files), error
            )
        return ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """The outcome by the version in the table, and by the staged files."""
        mine = _own(part)
        assert mine.version is not None
        try:
            if not self.table.exists() or not self.table.is_table(str(mine.table_id)):
                # It may come back, with the version in it.
                return unknown(f"the table at {mine.table} is missing, or another one")
            committed = self.table.committed_version(mine.app_id)
            if committed == mine.version:
                return COMMITTED
            if committed is not None and committed > mine.version:
                found = f"has version {committed} of {mine.app_id} already"
                return unknown(f"table {mine.table} {found}")
            gone = self.table.missing(mine.files or ())
        except EosError as error:
            return unknown(f"table {mine.table} can't be read: {error.message}")
        if gone:  # and missing files can't be committed
            return Fate(Known.ABORTED, f"{len(gone)} of its staged files are gone")
        return unknown(f"{mine.label} is staged")

    def audit(self, committed: Sequence[Part]) -> list[Audited | None]:
        """See ``Participant``: by the table's files, and by its history for missing ones."""
        audit = open_audit(self.table.folder)
        if audit is None:
            return [None] * len(committed)
        return audit.committed([_own(part) for part in committed])

    def readable(self, aborted: Sequence[Part]) -> Sequence[Part]:
        """See ``Participant``: those with a file in the table's newest version."""
        audit = open_audit(self.table.folder)
        return () if audit is None else audit.aborted([_own(part) for part in aborted])

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Now and then write a checkpoint of the table; delete the files of an upsert."""
        mine = _own(part)
        self._staged.pop(str(mine.attempt_id), None)
        if record.state is State.COMMITTED:
            if mine.upsert is not None:
                with suppress(EosError):  # a vacuum deletes them
                    self.table.discard(mine.files or ())
            self.table.checkpoint_when_due()


def _last(history: History, claim: Part) -> DeltaPart | None:
    record = history.last_begun(claim.key)
    part = None if record is None else record.part(claim.key)
    return part if isinstance(part, DeltaPart) else None


def _own(part: Part) -> DeltaPart:
    assert isinstance(part, DeltaPart)
    return part
