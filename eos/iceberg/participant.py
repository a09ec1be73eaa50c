"""The Iceberg participant: an attempt stages files, and its commit is one snapshot. Spark-free.

The commit sets a property of the table and of the snapshot: app id of the log, version of the
attempt. They prove the outcome. Nothing expires; the first process that commits succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eos.errors import EosError, Fatal, Fenced, Indeterminate, NewCluster, Retriable
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.data_file_entry import DataFileEntry
from eos.iceberg.part import IcebergPart
from eos.iceberg.table_address import TableAddress
from eos.participant import Attempt, Audited, VersionedParticipant
from eos.protocol import (
    ABORTED,
    COMMITTED,
    Fate,
    History,
    Known,
    LogRecord,
    Part,
    overtaken,
    unknown,
)

logger = logging.getLogger(__name__)


class IcebergParticipant(VersionedParticipant[IcebergPart]):
    """Begin, prepare, commit, abort and outcome of a sink's appends to one table."""

    place = "catalog and table (catalog, table)"

    def __init__(self, sink_id: str, address: TableAddress) -> None:
        self.table = IcebergTable(address)
        self._sink_id = sink_id
        self._has_begun = False
        # Until PREPARED no log has them: if they are forgotten, remove_orphan_files deletes them.
        self._staged: dict[str, tuple[DataFileEntry, ...]] = {}

    def claimed(self, history: History, log_table_id: str) -> IcebergPart:
        """The table, and this log's app id in it."""
        address = self.table.address
        claim = IcebergPart(
            table=address.table,
            catalog_name=address.catalog_name,
            branch=address.branch,
            catalog=address.recorded,
            app_id=f"{self._sink_id}/{log_table_id}",
        )
        self._has_begun = history.last_begun(claim.key) is not None
        return claim

    def traces(self) -> list[str]:
        """Whether a log of this sink has committed to the table: called if there is no log."""
        table = self.table.find()
        mine = f"{self._sink_id}/"
        if table is None or not any(one.startswith(mine) for one in table.app_ids()):
            return []
        return [f"table {self.table.address.identity} has rows of it"]

    def check(self, claim: Part) -> None:
        """Check that a snapshot can be added. Whether the table exists is checked by ``missing``.

        Raises:
            ConfigurationError: the format version is too new, or the branch is missing.
        """
        # If the log has begun attempts, ``begin`` checks it instead: unfinished attempts must be
        # ended first.
        table = None if self._has_begun else self.table.find()
        if table is not None:
            table.check_writable()

    def target_id(self) -> str | None:
        """The table's uuid."""
        table = self.table.find()
        return None if table is None else table.uuid

    def missing(self, claim: Part, history: History) -> str | None:
        """Report the table if it is not the one that the log names."""
        record = history.last_begun(claim.key)
        last = None if record is None else record.part(claim.key)
        if not isinstance(last, IcebergPart) or last.table_uuid is None:
            return None
        table = self.table.find()
        if table is None:
            return f"there is no Iceberg table {last.output}"
        if table.uuid != last.table_uuid:
            return f"the Iceberg table {last.output} was dropped and recreated"
        return None

    def _newest(self, part: IcebergPart) -> int | None:
        return self.table.load().committed_version(part.app_id)

    def _is_target(self, part: IcebergPart, target_id: str | None) -> bool:
        return target_id == part.table_uuid

    def begin(self, attempt: Attempt) -> IcebergPart:
        """Name the next version; nothing is written yet.

        Raises:
            ConfigurationError: no snapshot can be added to the table any more.
            NewCluster: a commit of this process is missing in the table.
        """
        table = self.table.load()
        table.check_writable()
        return self._begun(table.committed_version(self._claim.app_id), table_uuid=table.uuid)

    def count(self, part: Part, written: Sequence[Any]) -> IcebergPart:
        """Take the data files of all tasks: each of ``written`` is a ``DataFileEntry``."""
        # The manifest is written by ``prepare``: an attempt that ends here leaves none.
        mine, files = _own(part), tuple(written)
        self._staged[str(mine.attempt_id)] = files
        return replace(
            mine,
            files=len(files),
            records=sum(file.records for file in files),
            bytes=sum(file.size_bytes for file in files),
        )

    def prepare(self, record: LogRecord, part: Part) -> IcebergPart:
        """Write the manifest, and check that all files exist, and that the table is the same.

        Raises:
            Retriable: files are missing: the epoch runs again.
            NewCluster: the table was recreated.
            ConfigurationError: no snapshot can be added to the table any more.
        """
        mine = _own(part)
        table = self.table.load()
        if table.uuid != mine.table_uuid:
            raise NewCluster(
                f"The Iceberg table {mine.output} was dropped and recreated in the meantime.",
                hint="Restore the old one. To write to the new one: start again with "
                'on_new_cluster="continue" once.',
            )
        table.check_writable()
        return table.staged.stage(self._staged[str(mine.attempt_id)], mine)

    def _commit_once(self, part: IcebergPart) -> Fate:
        try:
            self.table.load().commit(part)
        except Fenced as error:
            return overtaken(error.message.rstrip("."))
        except Retriable as error:
            # Usually another commit came first: nothing is asked of the files, the next look at the
            # table's version is that of the next try.
            logger.warning("%s: %s", part.label, error)
            return unknown(error.message.rstrip("."))
        except (Fatal, Indeterminate) as error:  # another driver may have committed it
            logger.warning("%s: %s", part.label, error)
            found = self.outcome(part, timeout_s=0.0)
            if found.known is not Known.UNKNOWN:
                return found
            return unknown(f"{error.message} {error.hint}".strip().rstrip("."))
        return COMMITTED

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Delete staged files, as far as they are known and reachable."""
        mine = _own(part)
        files = [file.path for file in self._staged.get(str(mine.attempt_id), ())]
        # A driver that slept behind PREPARED may be committing it: it must not succeed.
        must_fence = mine.files is not None and not is_own
        try:
            table = self.table.find()
            if table is not None and table.uuid == mine.table_uuid:
                found = (
                    self._fenced(mine, deadline_s)
                    if must_fence
                    else self._by_version(mine, table.committed_version(mine.app_id))
                )
                if found is not None:
                    return found
                must_fence = False
                table.staged.discard(mine, files)
        except EosError as error:
            if must_fence:
                return unknown(f"{mine.label}: {error.message}".rstrip("."))
            logger.warning(
                "%s: staged files are left to remove_orphan_files: %s", mine.label, error
            )
        return ABORTED

    def _fenced(self, part: IcebergPart, deadline_s: float) -> Fate | None:
        from eos.retry import attempts  # executors import this module, and have no tenacity

        def fence() -> Fate | None:
            table = self.table.load()
            found = self._by_version(part, table.committed_version(part.app_id))
            if found is None and not table.has_snapshot(part):
                table.fence(part)
            return found

        return attempts(deadline_s)(fence)

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """The outcome by the version in the table, and by the staged files."""
        mine = _own(part)
        try:
            table = self.table.find()
            if table is None or table.uuid != mine.table_uuid:
                # It may come back, with the version in it.
                return unknown(f"the table {mine.output} is missing, or another one")
            # The version first: after the commit a compaction may delete the staged files.
            fate = self._by_version(mine, table.committed_version(mine.app_id))
            if fate is not None:
                return fate
            gone = table.staged.missing(mine)
            if not gone:
                return unknown(f"{mine.label} is staged")
            # Once more: it may have been committed, compacted and expired after the first look.
            fate = self._by_version(mine, self._newest(mine))
        except EosError as error:
            return unknown(f"table {mine.output} can't be read: {error.message}")
        # Missing files can't be committed.
        return fate or Fate(Known.ABORTED, f"{len(gone)} of its staged files are gone")

    def audit(self, committed: Sequence[Part]) -> list[Audited | None]:
        """See ``Participant``: by the branch's files, and by its snapshots for replaced ones."""
        table = self.table.find()
        if table is None:
            return [None] * len(committed)
        return table.audit([_own(part) for part in committed])

    def readable(self, aborted: Sequence[Part]) -> Sequence[Part]:
        """See ``Participant``: those with a file in the branch."""
        table = self.table.find() if aborted else None
        live = table.live_files() if table is not None else {}
        return [part for part in aborted if _own(part).attempt_id in live]

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Forget the attempt's files."""
        self._staged.pop(str(_own(part).attempt_id), None)

    def close(self) -> None:
        """See ``Participant``."""
        with suppress(Exception):
            self.table.close()


def _own(part: Part) -> IcebergPart:
    assert isinstance(part, IcebergPart)
    return part
