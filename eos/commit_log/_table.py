"""The Delta table below a commit log: create, read, append conditionally, keep small.

The fence is Delta's transaction identifier. Each append carries ``(app id, seq)`` and goes through
a table handle that was seen to stand at ``seq - 1``. Of all handles that stand there one commits;
the others conflict, whoever they belong to. Compaction carries identifiers of its own and
conflicts with itself only. In a file system a handle that stood at the newest version a moment ago
commits the next one by itself (``_own_commit``): a version's name is given once. ``deltalake``
commits elsewhere, and where somebody has changed the protocol. Facts of ``deltalake`` 1.6:

- An identifier that was used before is accepted from a fresh handle: the check is ours.
- An empty file of the newest commit is read as a commit that did nothing, so that the record in
  it is silently gone: ``read`` looks at the newest commit itself.
- The files of the Delta log are read at each call, and may have broken since the handle was opened.

``DeltaTable.to_pyarrow_table`` is never used: the process often aborts at its exit afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import TableNotFoundError

from eos import _disk as disk
from eos import failpoints
from eos.commit_log import _own_commit as own_commit
from eos.commit_log import corruption, delta_table
from eos.commit_log._stopwatch import Stopwatch
from eos.commit_log._storage_check import require_exclusive
from eos.commit_log.corruption import LostRace, newest_append, panics_as_errors, unreadable
from eos.commit_log.location import LOG_FOLDER, Location
from eos.commit_log.schema import SCHEMA, once, to_table
from eos.errors import CommitLogError, ConfigurationError
from eos.protocol import LogRecord
from eos.steps import LogStep

CHECKPOINT_INTERVAL: Final = 12
"""Appends between two checkpoints for which Delta was asked where the table stands; compaction
writes one at each round."""

_FRESH_S: Final = 5.0
"""So long a handle may rely on what it has seen. Even with ``_DOUBTFUL_APPEND_S`` on top it is much
less than the time for which commits are kept: the name of one that was cleaned away is free."""

_PLAIN_WRITER: Final = 2
"""The protocol of tables that we make. What somebody turns on in one may need more in a commit."""


class LogTable:
    """One handle on one sink's table. Made by ``create_or_open`` or ``maybe_open``."""

    def __init__(self, location: Location, sink_id: str, table: DeltaTable) -> None:
        self.location = location
        self.sink_id = sink_id
        self._table = table
        self.app_id = f"eos/{sink_id}"
        self._slow_appends = 0
        self._is_current = False
        self._since_seen: Stopwatch | None = None
        """Since the table stood as this handle believes; None: nobody has taken the time."""
        self._own = (-1, 0)
        """Version and ``seq`` of the newest append that ``_table`` may not have seen yet."""
        self.compaction_ids = tuple(
            f"{self.app_id}/{what}" for what in ("housekeeping", "horizon", "kept")
        )
        """Identifiers of compaction's commits: ``rounds``, ``horizon`` and ``kept``."""
        self.doubled = 0
        """How many rows the last ``read`` found a second time, and left out."""
        self.durable: set[str] = set()
        """Files that ``make_all_durable`` has flushed, and does not once more."""

    @classmethod
    def create_or_open(cls, location: Location, sink_id: str) -> LogTable:
        """Open the table, or create it when nothing is there; safe against other creators.

        Raises:
            ConfigurationError: the storage can't keep two drivers apart.
            CommitLogError: it can't be opened or created, or only remains of one are there.
        """
        opened = cls.maybe_open(location, sink_id)
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
        # Also after an error: somebody else may have been first.
        opened = cls.maybe_open(location, sink_id)
        if opened is None:
            raise CommitLogError(
                f"commit log {location.uri} can't be created: {problem}.",
                hint="Check that the folder or bucket exists and may be written to.",
                sink_id=sink_id,
            )
        return opened

    @classmethod
    def maybe_open(cls, location: Location, sink_id: str) -> LogTable | None:
        """Open the table; None when there is none.

        Raises:
            CommitLogError: it can't be opened, or only remains of one are there.
            UsedAfterFork: Delta's library does not work in this process.
        """
        delta_table.check_not_forked()
        for attempt in range(2):
            try:
                with panics_as_errors():
                    return cls(location, sink_id, delta_table.open_table(location))
            except TableNotFoundError:
                # Remains may be a table that somebody is creating just now: look twice.
                if not corruption.has_remains(location, sink_id):
                    return None
                if attempt:
                    raise corruption.broken(location, sink_id, corruption.NO_LOG, None) from None
            except Exception as error:
                if not attempt:
                    continue  # clean-up may have come between listing and reading
                raise unreadable(location, sink_id, error, None) from location.cause(error)
        raise AssertionError

    @property
    def id(self) -> str:
        """The table's own id: stays while the table lives, another for a table made anew."""
        return str(self._table.metadata().id)

    @property
    def delta(self) -> DeltaTable:
        """Delta's own handle, as new as this one."""
        if self._is_ahead:
            self._table.update_incremental()
        return self._table

    @property
    def version(self) -> int:
        """Of the table, the newest one that is known."""
        seen: int = self._table.version()
        return max(self._own[0], seen)

    @property
    def _is_ahead(self) -> bool:
        return bool(self._own[0] > self._table.version())

    @property
    def is_plain(self) -> bool:
        """Whether a commit needs no more than what we write."""
        return bool(self._table.protocol().min_writer_version <= _PLAIN_WRITER)

    @property
    def position(self) -> int:
        """``seq`` of the newest append."""
        return self._own[1] if self._is_ahead else self._committed(self.app_id)

    @property
    def rounds(self) -> int:
        """How often compaction has written the records anew; its fence."""
        return self._committed(self.compaction_ids[0])

    @property
    def horizon(self) -> int:
        """The ``seq`` up to which retention may have taken records away; 0: never yet."""
        return self._committed(self.compaction_ids[1])

    @property
    def kept(self) -> int:
        """How many records retention has left at or below the horizon."""
        return self._committed(self.compaction_ids[2])

    @property
    def files(self) -> dict[str, int]:
        """The data files that a read opens, with their sizes in bytes; each append adds one."""
        return dict(corruption.active_files(self.delta))

    def read(self) -> list[dict[str, Any]]:
        """All rows in the order of ``seq``, as this handle sees them; equal rows once.

        Two compactions at once, by Delta's own tools, leave every row twice: nothing is lost by
        that, and nothing is told apart.

        Raises:
            CommitLogError: a file is broken or missing, or rows were taken away; names the file.
        """
        try:
            self._walk_to_newest_append()
        except ValueError as error:
            raise self.broken(str(error)) from None
        try:
            with panics_as_errors():
                query = QueryBuilder().register("log", self.delta)
                rows: list[dict[str, Any]] = pa.table(
                    query.execute("select * from log").read_all()
                ).to_pylist()
            rows.sort(key=lambda row: int(row["seq"]))
            rows, self.doubled = once(rows)
            last = rows[-1]["seq"] if rows else 0
        except KeyError:
            raise self.broken("this is no commit log: it has no column seq") from None
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
        """Above the horizon a gap is seen by itself; below, only the number tells. More are no
        damage: Delta's ``optimize`` beside a compaction brings back what was dropped (measured)."""
        horizon = self.horizon
        if not horizon:
            return
        kept = self.kept
        found = sum(row["seq"] <= horizon for row in rows)
        if found < kept:
            raise self.broken(
                f"{found} rows up to seq {horizon}, but retention has kept {kept}: rows were "
                "rolled back or deleted"
            )

    def _committed(self, app_id: str) -> int:
        """The number last committed under an identifier; 0: none."""
        try:
            with panics_as_errors():
                return self.delta.transaction_version(app_id) or 0
        except Exception as error:
            raise self._unreadable(error) from self.location.cause(error)

    def _unreadable(self, error: Exception) -> CommitLogError:
        return unreadable(self.location, self.sink_id, error, self._table)

    def append(self, record: LogRecord) -> None:
        """Commit ``record``, if the table stands at ``record.seq - 1``.

        Raises:
            LostRace: it stands elsewhere.
            Exception: anything else, from a lost race to a full disk; the record may be in the
                table or not. Only reading it again tells.
        """
        with panics_as_errors():
            if not self._commit_alone(record):
                self._look(record)
                if not self._commit_alone(record):
                    self._commit_by_delta(record)
                    self.make_durable()
        failpoints.reached(LogStep.APPEND)

    def _commit_alone(self, record: LogRecord) -> bool:
        """Commit on top of the version that was the newest one a moment ago, durably.

        Returns:
            False: that is too long ago, or it was not ``record``'s predecessor, or it is not the
            newest one any more; or the table is none that we write to.

        Raises:
            LostRace: it is there, and nobody may see it.
            NotWritten, NotDurable: as ``own_commit.commit``.
        """
        folder, since, newest = self.location.folder, self._since_seen, self.version
        if folder is None or since is None or since.elapsed_s > _FRESH_S:
            return False
        if self._is_past(folder, newest) or self.position != record.seq - 1:
            return False
        if not self.is_plain or not self._has_all_columns():
            return False
        since, row = Stopwatch(), to_table(record)
        if not own_commit.commit(folder, newest + 1, row, app_id=self.app_id, seq=record.seq):
            return False
        if self._is_past(folder, newest):
            raise LostRace(f"version {newest + 1} may have been cleaned away before")
        self._own, self._since_seen = (newest + 1, record.seq), since
        return True

    def _is_past(self, folder: Path, version: int) -> bool:
        """Whether a later version has a checkpoint, and may have been cleaned away: before that no
        name of one becomes free. Of the two signs the pointer may be lost, or be repaired away."""
        commit = folder / corruption.commit_name(version)
        return corruption.last_checkpoint(self.location) > version or not commit.exists()

    def _look(self, record: LogRecord) -> None:
        """Ask Delta where the table stands.

        Raises:
            LostRace: not before ``record``; or others have been at work than appends and
                compaction: what is left of the records is to be read.
            CommitLogError: one of the commits since is empty, or garbage.
        """
        seen, since, self._since_seen = self.version, Stopwatch(), None
        self._table.update_incremental()
        self._slow_appends += 1
        # What was appended without Delta has to be there, too: else the table was rolled back.
        if self._is_ahead or self.position != record.seq - 1:
            raise LostRace(f"the log does not stand at seq {record.seq - 1}")
        try:
            for version in range(seen + 1, self.version + 1):
                # Of one that was cleaned away nobody can tell.
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
        """How a log of version 1 gets the columns that came later, with its first append; and how
        one keeps those that somebody has added."""
        return None if self._columns() == set(SCHEMA.names) else "merge"

    def _has_all_columns(self) -> bool:
        self._is_current = self._is_current or self._columns().issuperset(SCHEMA.names)
        return self._is_current

    def _columns(self) -> set[str]:
        return {field.name for field in self._table.schema().fields}

    def checkpoint_when_due(self) -> None:
        """Now and then, write a Delta checkpoint and open the table anew from it.

        Each commit that a handle has seen since slows Delta's later ones (docs/facts.md).

        Raises:
            Exception: it did not work; the table is as good as before.
        """
        if self._slow_appends < CHECKPOINT_INTERVAL:
            return
        self._slow_appends = 0
        with panics_as_errors():
            self.make_all_durable()  # a checkpoint must not outlive what it names
            self.write_checkpoint()
            self._table = delta_table.open_table(self.location)

    def write_checkpoint(self) -> None:
        """A Delta checkpoint of what this handle sees, durably; raises the same."""
        self.delta.create_checkpoint()
        if self.location.folder is not None:
            name = corruption.checkpoint_name(self.version)
            disk.sync(self.location.folder, [name, f"{LOG_FOLDER}/_last_checkpoint"])

    def make_durable(self) -> None:
        """Make the newest append of whoever survive a power failure. Object stores do it anyway.

        Raises:
            NotDurable: the disk did not confirm it.
            ValueError: the newest commit's file is broken.
        """
        if self.location.folder is None:
            return
        found = self._walk_to_newest_append()
        if found is not None:
            version, actions = found
            paths = [action["path"] for action in actions.get("add", [])]
            disk.sync(self.location.folder, [*paths, corruption.commit_name(version)])

    def make_all_durable(self) -> None:
        """The same for all that a reader needs, whoever has written it, and was killed before.

        Raises:
            NotDurable, ValueError: as ``make_durable``.
        """
        if self.location.folder is None:
            return
        self._walk_to_newest_append()
        since = f"{corruption.last_checkpoint(self.location):020}"
        logs = [name for name in self.location.names(LOG_FOLDER) if name >= since]
        names = {*self.files, *(f"{LOG_FOLDER}/{name}" for name in logs)}
        disk.sync(self.location.folder, sorted(names - self.durable))
        self.durable = names

    def file_of(self, seq: int) -> str | None:
        """The data file that holds ``seq``, by the statistics in the Delta log."""
        return corruption.file_of(self.delta, seq)

    def broken(self, what: str) -> CommitLogError:
        """The error for a log that can't be relied on; looks for the file that is to blame."""
        return corruption.broken(self.location, self.sink_id, what, self._table)

    def _walk_to_newest_append(self) -> tuple[int, dict[str, list[Any]]] | None:
        return newest_append(self.location, self.version, self.app_id, self.compaction_ids)
