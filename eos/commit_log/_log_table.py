"""The Delta table of a commit log: create, read, append conditionally, checkpoint.

The fence: each append carries the transaction identifier ``(app id, seq)``, through a handle that
has seen ``seq - 1`` as the newest one. Of all such handles, in any process, one commits. On a file
system the next version is committed directly (``_own_commit``), elsewhere by ``deltalake``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from eos import _storage as storage
from eos import failpoints
from eos.commit_log import _own_commit as own_commit
from eos.commit_log import corruption, delta_table
from eos.commit_log.corruption import LostRace, newest_append, panics_as_errors, unreadable
from eos.commit_log.delta_table import Stopwatch, require_exclusive
from eos.commit_log.location import LOG_FOLDER, Location
from eos.commit_log.schema import SCHEMA, deduplicate, rows_of, to_table
from eos.errors import CommitLogError, ConfigurationError
from eos.protocol import LogRecord
from eos.steps import LogStep

CHECKPOINT_INTERVAL: Final = 12
"""Refreshes of Delta's view between two checkpoints; compaction writes one in each round."""

# How long a handle may rely on its view. Even with ``_DOUBTFUL_APPEND_S`` on top this is much less
# than the time for which commits are kept: the name of a cleaned up commit is free again.
_FRESH_S: Final = 5.0

# The protocol of new tables. If it was raised later, commits may need more.
_PLAIN_WRITER: Final = 2


class CompactionIds(NamedTuple):
    """Transaction identifiers of compaction's commits; ``LogTable`` has a property for each."""

    rounds: str
    horizon: str
    kept: str


class LogTable:
    """One handle on one sink's table. Created by ``create_or_open`` or ``open_if_exists``."""

    def __init__(self, location: Location, sink_id: str, table: DeltaTable) -> None:
        self.location = location
        self.sink_id = sink_id
        self._table = table
        self.app_id = f"eos/{sink_id}"
        self._refreshes = 0
        self._all_columns_seen = False
        self._since_seen: Stopwatch | None = None
        """Time since the table was seen at this handle's version; None: not measured."""
        self._own = (-1, 0)
        """Version and ``seq`` of the newest append that ``_table`` may not have read yet."""
        # "housekeeping" is in the commits of existing logs: another text would start at round 0.
        ids = (f"{self.app_id}/{what}" for what in ("housekeeping", "horizon", "kept"))
        self.compaction_ids = CompactionIds(*ids)
        self.doubled = 0
        """Number of duplicate rows that the last ``read`` left out."""
        self.durable: set[str] = set()
        """Files that ``make_all_durable`` has already flushed."""

    @classmethod
    def create_or_open(cls, location: Location, sink_id: str) -> LogTable:
        """Open the table, or create it if it does not exist; safe against other creators.

        Raises:
            ConfigurationError: the storage can't keep two drivers apart.
            CommitLogError: it can't be opened or created, or only parts of one exist.
        """
        opened = cls.open_if_exists(location, sink_id)
        if opened is not None:
            return opened
        problem = "another creator is half-way"
        try:
            require_exclusive(location)
            location.make_folder()
            delta_table.create_table(location)
        except ConfigurationError:
            raise
        except Exception as error:
            problem = location.clean(error)
        # Also after an error: another process may have created it.
        opened = cls.open_if_exists(location, sink_id)
        if opened is None:
            raise CommitLogError(
                f"Commit log {location.uri} can't be created: {problem}.",
                hint="Check that the folder or bucket exists and may be written to.",
                sink_id=sink_id,
            )
        return opened

    @classmethod
    def open_if_exists(cls, location: Location, sink_id: str) -> LogTable | None:
        """Open the table; None if it does not exist.

        Raises:
            CommitLogError: it can't be opened, or only parts of one exist.
            UsedAfterFork: Delta's library does not work in this process.
        """
        delta_table.check_not_forked()
        for attempt in range(2):
            try:
                with panics_as_errors():
                    return cls(location, sink_id, delta_table.open_table(location))
            except TableNotFoundError:
                # Another process may be creating the table just now: look twice.
                if not corruption.has_table_files(location, sink_id):
                    return None
                if attempt:
                    raise corruption.broken(location, sink_id, corruption.NO_LOG, None) from None
            except Exception as error:
                if not attempt:
                    continue  # a clean-up may have happened between listing and reading
                raise unreadable(location, sink_id, error, None) from location.cause(error)
        raise AssertionError

    @property
    def id(self) -> str:
        """The table's own id: stays while the table lives; a recreated table has another one."""
        return str(self._table.metadata().id)

    @property
    def delta(self) -> DeltaTable:
        """Delta's own handle, at the same version."""
        if self._is_ahead:
            self._table.update_incremental()
        return self._table

    @property
    def version(self) -> int:
        """The newest known version of the table."""
        seen: int = self._table.version()
        return max(self._own[0], seen)

    @property
    def _is_ahead(self) -> bool:
        return bool(self._own[0] > self._table.version())

    @property
    def is_plain(self) -> bool:
        """Whether a commit needs no more than this module writes."""
        return bool(self._table.protocol().min_writer_version <= _PLAIN_WRITER)

    @property
    def position(self) -> int:
        """``seq`` of the newest append."""
        return self._own[1] if self._is_ahead else self._committed(self.app_id)

    @property
    def rounds(self) -> int:
        """How often compaction has rewritten the records; its fence."""
        return self._committed(self.compaction_ids.rounds)

    @property
    def horizon(self) -> int:
        """The ``seq`` up to which retention may have dropped records; 0: never."""
        return self._committed(self.compaction_ids.horizon)

    @property
    def kept(self) -> int:
        """Number of records that retention has left at or below the horizon."""
        return self._committed(self.compaction_ids.kept)

    @property
    def files(self) -> dict[str, int]:
        """The data files that a read opens, with their sizes in bytes; each append adds one."""
        return dict(corruption.active_files(self.delta))

    def read(self) -> list[dict[str, Any]]:
        """Read all rows in the order of ``seq``, as this handle sees them, without duplicates.

        Raises:
            CommitLogError: a file is broken or missing, or rows were deleted; names the file.
        """
        try:
            # deltalake 1.6 reads an empty newest commit as one that did nothing: a lost record.
            with corruption.errors_as_unreadable(self.location, self.sink_id):
                self._newest_append()
        except ValueError as error:
            raise self.broken(str(error)) from None
        try:
            with panics_as_errors():
                # After ``DeltaTable.to_pyarrow_table`` the process often aborts at its exit.
                query = QueryBuilder().register("log", self.delta)
                found = query.execute("select * from log")
                rows = rows_of(pa.RecordBatchReader.from_stream(found).read_all())
            rows.sort(key=lambda row: int(row["seq"]))
            # Concurrent compactions by Delta's own tools duplicate every row, in equal copies.
            rows, self.doubled = deduplicate(rows)
            last = rows[-1]["seq"] if rows else 0
        except KeyError:
            raise self.broken("this is not a commit log: it has no column seq") from None
        except Exception as error:
            raise self._unreadable(error) from self.location.cause(error)
        if last != self.position:
            raise self.broken(
                f"the rows end at seq {last}, but {self.position} were appended: "
                "rows were rolled back or deleted"
            )
        self._check_kept(rows)
        return rows

    def _check_kept(self, rows: Sequence[dict[str, Any]]) -> None:
        """Check the number of rows up to the horizon, where gaps are normal."""
        horizon = self.horizon
        if not horizon:
            return
        kept = self.kept
        found = sum(row["seq"] <= horizon for row in rows)
        # More are no damage: Delta's ``optimize`` during a compaction restores some (measured).
        if found < kept:
            raise self.broken(
                f"{found} rows up to seq {horizon}, but retention has kept {kept}: rows were "
                "rolled back or deleted"
            )

    def _committed(self, app_id: str) -> int:
        """The number last committed under an identifier; 0 without one."""
        try:
            with panics_as_errors():
                return self.delta.transaction_version(app_id) or 0
        except Exception as error:
            raise self._unreadable(error) from self.location.cause(error)

    def _unreadable(self, error: Exception) -> CommitLogError:
        return unreadable(self.location, self.sink_id, error, self._table)

    def append(self, record: LogRecord) -> None:
        """Commit ``record``, if the table is at ``record.seq - 1``.

        Raises:
            LostRace: it is not known to be: the log must be read again.
            Exception: any other error, from a conflict to a full disk; the record may be in the
                table or not. Only reading it again shows.
        """
        with panics_as_errors():
            # The fast path; again after a refresh, if this view was old or a compaction has taken
            # the version. Delta commits to object stores, newer protocols and logs of version 1.
            if not self._commit_directly(record):
                self._check_position(record)
                if not self._commit_directly(record):
                    self._commit_by_delta(record)
                    self.make_durable()
        failpoints.reached(LogStep.APPEND)

    def _commit_directly(self, record: LogRecord) -> bool:
        """Commit durably after the version that was the newest one a moment ago, or return False.

        Raises:
            LostRace: it is written, but maybe not visible to readers.
            NotWritten, NotDurable: as ``own_commit.commit``.
        """
        folder, newest = self.location.folder, self.version
        if folder is None or not self._is_fresh(folder) or self.position != record.seq - 1:
            return False
        if not self.is_plain or not self._has_all_columns():
            return False
        since, row = Stopwatch(), to_table(record)
        if not own_commit.commit(folder, newest + 1, row, app_id=self.app_id, seq=record.seq):
            return False
        if self._may_be_cleaned_up(folder, newest):
            raise LostRace(f"version {newest + 1} may have been cleaned up before")
        self._own, self._since_seen = (newest + 1, record.seq), since
        return True

    def is_newest(self) -> bool:
        """Whether the table is known to be at this handle's version, by a look at some names."""
        folder, following = self.location.folder, corruption.commit_name(self.version + 1)
        return folder is not None and self._is_fresh(folder) and not (folder / following).exists()

    def _is_fresh(self, folder: Path) -> bool:
        if self._since_seen is None or self._since_seen.elapsed_s > _FRESH_S:
            return False
        return not self._may_be_cleaned_up(folder, self.version)

    def _may_be_cleaned_up(self, folder: Path, version: int) -> bool:
        """Whether a later version has a checkpoint: only then can this one's name be free again."""
        # Two signs, because a repair may remove the pointer.
        commit = folder / corruption.commit_name(version)
        return corruption.last_checkpoint(self.location) > version or not commit.exists()

    def _check_position(self, record: LogRecord) -> None:
        """Refresh Delta's view, in which a fresh handle accepts an identifier that was used before.

        Raises:
            LostRace: it is not before ``record``; or there were other commits than appends and
                compaction: the remaining records must be read.
            CommitLogError: one of the commits since is empty, or garbage.
        """
        seen, since, self._since_seen = self.version, Stopwatch(), None
        self._table.update_incremental()
        self._refreshes += 1
        # Direct appends must be there, too: otherwise the table was rolled back.
        if self._is_ahead or self.position != record.seq - 1:
            raise LostRace(f"the log is not at seq {record.seq - 1}")
        try:
            for version in range(seen + 1, self.version + 1):
                # A commit that was cleaned up can't be checked.
                actions = corruption.commit_actions(self.location, version) or {}
                if not corruption.writers(actions).intersection(self.compaction_ids):
                    raise LostRace(f"another process has written version {version}")
        except ValueError as error:
            raise self.broken(str(error)) from None
        self._since_seen = since

    def _commit_by_delta(self, record: LogRecord) -> None:
        write_deltalake(
            self._table,
            to_table(record),
            mode="append",
            schema_mode=self.schema_mode(),
            commit_properties=CommitProperties(
                app_transactions=[Transaction(self.app_id, record.seq)]
            ),
            post_commithook_properties=delta_table.NO_HOOKS,
        )

    def schema_mode(self) -> Literal["merge"] | None:
        """Mode that adds columns to a log of version 1, and keeps those that other tools added."""
        return None if self._columns() == set(SCHEMA.names) else "merge"

    def _has_all_columns(self) -> bool:
        self._all_columns_seen = self._all_columns_seen or self._columns().issuperset(SCHEMA.names)
        return self._all_columns_seen

    def _columns(self) -> set[str]:
        return {field.name for field in self._table.schema().fields}

    def checkpoint_when_due(self) -> None:
        """Now and then, write a Delta checkpoint and open the table again from it.

        Raises:
            Exception: it failed; the table is as good as before.
        """
        # Each commit that a handle has seen slows Delta's later ones (docs/facts.md).
        if self._refreshes < CHECKPOINT_INTERVAL:
            return
        self._refreshes = 0
        with panics_as_errors():
            self.make_all_durable()  # a checkpoint must not outlive the files that it names
            self.write_checkpoint()
            self._table = delta_table.open_table(self.location)

    def write_checkpoint(self) -> None:
        """Write a Delta checkpoint of this handle's view, durably; raises the same."""
        self.delta.create_checkpoint()
        if self.location.folder is not None:
            name = corruption.checkpoint_name(self.version)
            storage.sync(self.location.folder, [name, f"{LOG_FOLDER}/_last_checkpoint"])

    def make_durable(self) -> None:
        """Flush the newest append of any writer to the disk. Object stores do so themselves.

        Raises:
            NotDurable: the disk did not confirm it.
            ValueError: the newest commit's file is broken.
        """
        if self.location.folder is None:
            return
        found = self._newest_append()
        if found is not None:
            version, actions = found
            paths = [action["path"] for action in actions.get("add", [])]
            storage.sync(self.location.folder, [*paths, corruption.commit_name(version)])

    def make_all_durable(self) -> None:
        """Flush all files that a reader needs: their writers may have been killed before.

        Raises:
            NotDurable, ValueError: as ``make_durable``.
        """
        if self.location.folder is None:
            return
        self._newest_append()
        since = f"{corruption.last_checkpoint(self.location):020}"
        logs = [name for name in self.location.names(LOG_FOLDER) if name >= since]
        names = {*self.files, *(f"{LOG_FOLDER}/{name}" for name in logs)}
        storage.sync(self.location.folder, sorted(names - self.durable))
        self.durable = names

    def file_of(self, seq: int) -> str | None:
        """The data file that holds ``seq``, by the statistics in the Delta log."""
        return corruption.file_of(self.delta, seq)

    def broken(self, what: str) -> CommitLogError:
        """Return the error for an unreliable log; looks for the broken file."""
        return corruption.broken(self.location, self.sink_id, what, self._table)

    def _newest_append(self) -> tuple[int, dict[str, list[Any]]] | None:
        return newest_append(self.location, self.version, self.app_id, self.compaction_ids)
