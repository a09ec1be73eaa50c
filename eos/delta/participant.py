"""The Delta participant: an attempt stages files, and its commit is one append. Spark-free.

The commit carries Delta's transaction identifier (app id of the log, version of the attempt), which
the table keeps: it proves the outcome. Nothing expires; the first process that commits succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from eos._storage import NOT_SHARED
from eos.delta._audit import open_audit
from eos.delta.files import StagedFile
from eos.delta.opening import schema_from_json
from eos.delta.part import DeltaPart
from eos.delta.target_table import TargetTable
from eos.errors import ConfigurationError, EosError, Fenced, InputError, NewCluster, Retriable
from eos.participant import Attempt, Audited, Upsert, VersionedParticipant
from eos.protocol import (
    ABORTED,
    COMMITTED,
    Fate,
    History,
    Known,
    LogRecord,
    Part,
    State,
    overtaken,
    unknown,
)

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


class DeltaParticipant(VersionedParticipant[DeltaPart]):
    """Begin, prepare, commit, abort and outcome of a sink's appends to one table.

    Args:
        table: an absolute path, ``file:///path`` or ``s3://bucket/prefix``.
        storage_options: as for ``deltalake``.
    """

    place = "path (table)"

    def __init__(
        self, sink_id: str, table: str, storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.table = TargetTable(table, storage_options)
        self._sink_id = sink_id
        self._owner = f"eos/{sink_id}"
        self._has_begun = False
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
        if not self.table.exists() or not self.table.committed_version(self._owner):
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

    def target_id(self) -> str | None:
        """The table's id."""
        return self.table.table_id if self.table.exists() else None

    def missing(self, claim: Part, history: History) -> str | None:
        """Report the table if it is not the one that the log names."""
        record = history.last_begun(claim.key)
        last = None if record is None else record.part(claim.key)
        if not isinstance(last, DeltaPart) or last.table_id is None:
            return None
        if not self.table.exists():
            return f"there is no Delta table at {last.table}"
        if not self.table.is_table(last.table_id):
            return f"the Delta table at {last.table} was dropped and recreated"
        return None

    def _newest(self, part: DeltaPart) -> int | None:
        return self.table.committed_version(part.app_id)

    def _is_target(self, part: DeltaPart, target_id: str | None) -> bool:
        return target_id == part.table_id

    def _is_lost(self, version: int, newest: int | None) -> bool:
        if newest is None:
            return not self.table.forgets_transactions
        return newest < version

    def begin(self, attempt: Attempt) -> DeltaPart:
        """Name the next version; nothing is written yet.

        Raises:
            ConfigurationError: the table now requires something that an append can't do.
            NewCluster: a commit of this process is missing in the table.
        """
        self.table.check_writable()
        return self._begun(self._newest(self._claim), table_id=self.table.table_id)

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
            raise Retriable(
                f"{len(gone)} staged files of {mine.label} are missing.", hint=NOT_SHARED
            )
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

    def _commit_once(self, part: DeltaPart) -> Fate:
        # Without rows only the version is recorded.
        assert part.version is not None
        assert part.files is not None
        owner = {self._owner: part.version}
        try:
            self.table.commit(
                part.files,
                part.app_id,
                part.version,
                table_id=str(part.table_id),
                schema=schema_from_json(str(part.schema)),
                merge=part.merge,
                upsert=part.upsert,
                more=lambda _: owner,
            )
        except Fenced as error:
            return overtaken(error.message.rstrip("."))
        except EosError as error:  # another driver may have committed before
            logger.warning("%s: %s", part.label, error)
            found = self.outcome(part, timeout_s=0.0)
            if found.known is not Known.UNKNOWN:
                return found
            return unknown(f"{error.message} {error.hint}".strip().rstrip("."))
        return COMMITTED

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Delete staged files, as far as they are known and reachable; a vacuum deletes others."""
        mine = _own(part)
        files = mine.files or self._staged.get(str(mine.attempt_id), ())
        # If it is PREPARED, a driver that slept may be committing it: it must not succeed.
        is_prepared = mine.files is not None and not is_own
        try:
            if is_prepared:
                self._fence(mine)
            found = self._by_version(mine, self._newest(mine))
            if found is not None:
                return found
            self.table.discard(files)
            if is_prepared:
                # Also against a commit that began in between, and has found the files.
                self._fence(mine)
                found = self._by_version(mine, self._newest(mine))
                if found is not None:
                    return found
        except EosError as error:
            if is_prepared and not self._is_gone(mine):  # to another table nothing is committed
                return unknown(f"{mine.label}: {error.message}".rstrip("."))
            logger.warning(
                "%s: %d staged files are left to a vacuum: %s", mine.label, len(files), error
            )
        return ABORTED

    def _fence(self, part: DeltaPart) -> None:
        try:
            self.table.fence(self._owner, str(part.table_id))
        except EosError:
            # Where every commit is refused, no other process can commit it either: one that is
            # under way conflicts with the change of the table, and a later one is refused.
            if not self._refuses_commits():
                raise

    def _refuses_commits(self) -> bool:
        try:
            self.table.check_writable()
        except ConfigurationError:
            return True
        return False

    def _is_gone(self, part: DeltaPart) -> bool:
        with suppress(EosError):
            return not self.table.exists() or not self.table.is_table(str(part.table_id))
        return False

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """The outcome by the version in the table, and by the staged files."""
        mine = _own(part)
        assert mine.version is not None
        try:
            if not self.table.exists() or not self.table.is_table(str(mine.table_id)):
                # It may come back, with the version in it.
                return unknown(f"the table at {mine.table} is missing, or another one")
            found = self._by_version(mine, self._newest(mine))
            if found is not None:
                return found
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


def _own(part: Part) -> DeltaPart:
    assert isinstance(part, DeltaPart)
    return part
