"""Phase two, in the driver and in recovery: staged files become part of the table, once.

A commit carries Delta's transaction identifier ``(app id, version)``: of several commits with one
app id from handles at one version of the table, or an older one, one succeeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction

from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.delta import column_rules, opening, upserts
from eos.delta.files import StagedFile
from eos.delta.folder import Folder
from eos.delta.rows import can_partition
from eos.errors import ConfigurationError, Fatal, Fenced, InputError
from eos.participant import Upsert

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOG_FOLDER: Final = "_delta_log"
_CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
_CLEANUP: Final = "delta.enableExpiredLogCleanup"  # not asked by ``deltalake``, if called directly
# Default if the table does not set it; as in ``deltalake``.
_COMMITS_PER_CHECKPOINT: Final = 100


class TargetTable:
    """A Delta table that a sink appends to.

    Args:
        uri: an absolute path, ``file:///path`` or ``s3://bucket/prefix``.
        storage_options: passed to ``deltalake``; in no ``repr`` and no message.

    Every method raises ``Retriable`` if the storage or the table can't be read, and all except
    ``exists``, ``create`` and those about files ``ConfigurationError`` if the table does not exist.

    Raises:
        ConfigurationError: ``uri`` is none of these.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.folder: Final = Folder(uri, storage_options)
        self._synced: set[str] = set()

    def __repr__(self) -> str:
        return f"TargetTable({self.folder.uri!r})"

    def exists(self) -> bool:
        """Whether the Delta table exists."""
        return opening.open_if_exists(self.folder) is not None

    def create(self, schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
        """Create an empty table if it does not exist; safe against other creators.

        Another creator's table may have other columns: see ``check_schema``.

        Raises:
            InputError: two columns have the same name.
            ConfigurationError: Delta does not support these columns, or this partitioning.
        """
        if self.exists():
            return
        column_rules.check_names(schema)
        _check_has_data(self.folder.uri, schema.names, partition_by)
        for name in partition_by:
            if not name or name not in schema.names or not can_partition(schema.field(name).type):
                raise ConfigurationError(
                    f"Delta table {self.folder.uri}: can't be partitioned by {name!r}.",
                    hint="Partition by columns of text, numbers, booleans, dates or times.",
                )
        opening.create(self.folder, schema, partition_by)
        self._make_log_durable()

    def check_writable(self, *, upsert: bool = False) -> None:
        """Refuse a table whose requirements for writers this sink's commits can't meet.

        Raises:
            ConfigurationError: the message names each feature.
        """
        self._check_features(self._open(), upsert=upsert)

    def _check_features(self, table: DeltaTable, *, upsert: bool, is_decided: bool = False) -> None:
        with self._reading():
            unsupported = opening.unsupported_features(table, upsert=upsert, is_decided=is_decided)
        if unsupported:
            raise ConfigurationError(
                f"Delta table {self.folder.uri} requires what eos can't do: "
                f"{', '.join(unsupported)}.",
                hint="Drop it from the table (ALTER TABLE ... DROP CONSTRAINT, or DROP FEATURE ... "
                "TRUNCATE HISTORY), or write to a table without it and MERGE from there.",
            )

    @property
    def table_id(self) -> str:
        """The table's own id; a recreated table has another one."""
        return self._ask(lambda table: str(table.metadata().id))

    @property
    def schema(self) -> pa.Schema:
        """The table's columns as an Arrow schema."""
        return self._ask(opening.arrow_schema)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The table's partition columns, in order."""
        return self._ask(lambda table: tuple(table.metadata().partition_columns))

    def is_table(self, table_id: str) -> bool:
        """Whether the table still has this id."""
        return self.table_id == table_id

    def compared(self, have: pa.Schema) -> tuple[list[str], list[str]]:
        """List the columns and fields that only the rows have, and those only the table has."""
        return column_rules.compared(have, self.schema)

    def check_staged(self, schema: pa.Schema, *, merge: bool, upsert: bool = False) -> None:
        """Check that files staged for ``schema`` can still be appended.

        Raises:
            InputError: the table's columns have changed; the message names one.
            ConfigurationError: the table now requires something that an append can't do.
        """
        self.check_writable(upsert=upsert)
        self._merged(schema, self.schema, merge)

    def check_schema(self, have: pa.Schema, *, merge: bool = False) -> pa.Schema:
        """Return the table's columns after an append of rows with the columns ``have``.

        Args:
            merge: the commit adds columns that the table lacks, as nullable ones.

        Returns:
            The schema for ``StagingTarget.schema`` and ``commit``.

        Raises:
            InputError: the rows don't fit; the message names each column, with both types.
            ConfigurationError: Delta has no such type.
        """
        merged = column_rules.check(have, self.schema, may_add=merge)
        _check_has_data(self.folder.uri, merged.names, self.partition_columns)
        return pa.schema(opening.delta_schema(merged).to_arrow())

    def committed_version(self, app_id: str) -> int | None:
        """Return the version last committed with ``app_id``, durably; None without one."""
        found: int | None = self._ask(lambda table: table.transaction_version(app_id))
        # A commit that a power failure could still undo must not be reported.
        self._make_log_durable()
        return found

    @property
    def forgets_transactions(self) -> bool:
        """Whether the table drops identifiers of commits after a while."""
        return self._ask(lambda table: opening.TXN_RETENTION in table.metadata().configuration)

    def missing(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """List those of ``files`` that no longer exist, or have another size."""
        asked = list(files)
        with self.folder.failures("looking for staged files"):
            sizes = self.folder.size_bytes([file.path for file in asked])
        return [file for file, size in zip(asked, sizes, strict=True) if size != file.size_bytes]

    def discard(self, files: Iterable[StagedFile]) -> None:
        """Delete staged files, which never will be in the table; missing ones are ignored."""
        with self.folder.failures("deleting staged files"):
            for file in files:
                self.folder.delete(file.path)

    def commit(
        self,
        files: Sequence[StagedFile],
        app_id: str,
        version: int,
        *,
        table_id: str,
        schema: pa.Schema,
        merge: bool = False,
        upsert: Upsert | None = None,
        more: Callable[[DeltaTable], Mapping[str, int]] | None = None,
    ) -> None:
        """Append ``files`` as version ``version`` of ``app_id``, in one attempt, durably.

        Does nothing if exactly this version was committed before. Without files, only the version
        is recorded. With ``merge``, columns that the table lacks are added first, in a separate
        commit.

        Args:
            table_id: id of the table for which the files were staged.
            schema: the result of ``check_schema`` when they were staged.
            upsert: the files' rows change others by key; see ``eos.delta.upserts``.
            more: returns further identifiers of the same commit, asked with the version that it
                follows; its errors end the commit.

        Raises:
            CommitUnconfirmed: the attempt failed, or its answer was lost: ``committed_version``
                shows whether it took effect. It may be repeated.
            Fenced: a later version of ``app_id`` is in the table; nothing was appended.
            Fatal: the table is another one, has other columns or new requirements, or files are
                missing; nothing was appended.
        """
        # A handle that has seen an identifier accepts it again, and a commit checks neither its
        # files nor which table it is (deltalake 1.6): all this is checked here, on a fresh handle.
        table = self._open()
        self._check_id(table, table_id)
        with self._reading():
            committed = table.transaction_version(app_id)
        if committed is not None and committed > version:
            raise Fenced(
                f"Delta table {self.folder.uri}: {app_id!r} is at version {committed}, after "
                f"{version}."
            )
        if committed != version:
            try:
                self._check_features(table, upsert=upsert is not None, is_decided=True)
            except ConfigurationError as error:  # the sink's next claim raises it as such
                raise Fatal(error.message, hint=error.hint) from None
            self._check_files(table, files, may_differ=upsert is not None)
            identifiers = {app_id: version, **(more(table) if more else {})}
            with self._committing(app_id, version):
                self._add_columns(table, schema, merge)
                if upsert is None or not files:
                    self._append(table, files, identifiers)
                else:
                    system, paths = self.folder.file_system(), [file.path for file in files]
                    if not upserts.merge(table, system, paths, upsert, identifiers):
                        self._append(table, (), identifiers)
        with self._committing(app_id, version):
            self._make_log_durable()

    def fence(self, app_id: str, table_id: str) -> None:
        """Make commits fail that are under way now and record a version of ``app_id``.

        Raises:
            EosError: it may not be done; the table does not exist, or is another one (``Fatal``).
        """
        # For Delta each commit that records an identifier is a conflict for the others that do
        # (measured). Its version stays.
        table = self._open()
        self._check_id(table, table_id)
        with self._reading():
            version = table.transaction_version(app_id) or 0
        with self._committing(app_id, version):
            self._append(table, (), {app_id: version})

    def _check_id(self, table: DeltaTable, table_id: str) -> None:
        with self._reading():
            found = str(table.metadata().id)
        if found != table_id:
            raise Fatal(
                f"Delta table {self.folder.uri} is another one (id {found}) than the rows were "
                f"written for ({table_id}).",
                hint="It was dropped and recreated. The rows are in its folder, but in no table.",
            )

    def checkpoint_when_due(self) -> None:
        """Now and then write a Delta checkpoint, and drop log files beyond the table's retention.

        If it fails, a warning is logged, and the table is as good as before.
        """
        # No commit does so itself, so that none fails because of it. Without checkpoints, every
        # reader reads every commit of the table's life.
        try:
            with panics_as_errors():
                table = self._open()
                settings = table.metadata().configuration
                interval = int(settings.get(_CHECKPOINT_INTERVAL) or _COMMITS_PER_CHECKPOINT)
                if table.version() % interval == 0:
                    table.create_checkpoint()
                    if settings.get(_CLEANUP, "").lower() != "false":
                        table.cleanup_metadata()
        except Exception as error:
            logger.warning("Table %s: no checkpoint: %s", self.folder.uri, self.folder.clean(error))

    def _check_files(
        self, table: DeltaTable, files: Sequence[StagedFile], *, may_differ: bool
    ) -> None:
        with self._reading():
            partition_by = set(table.metadata().partition_columns)
        if not may_differ and any(file.partition_values.keys() != partition_by for file in files):
            where = f"Delta table {self.folder.uri}"
            raise Fatal(f"{where} is partitioned by other columns than the staged files.")
        gone = self.missing(files)
        if gone:
            raise Fatal(
                f"Delta table {self.folder.uri}: {len(gone)} of {len(files)} staged files are "
                f"missing or damaged, for example {gone[0].path}; nothing was appended.",
                hint="A VACUUM with a short retention may have deleted them. Restore them, or give "
                "up the epoch's rows.",
            )

    def _add_columns(self, table: DeltaTable, schema: pa.Schema, merge: bool) -> None:
        """Add all columns of ``schema`` to the table, if ``merge`` allows that.

        Raises:
            InputError: a column was dropped, or has another type now. No cast helps: the files are
                written.
        """
        there = opening.arrow_schema(table)
        merged = self._merged(schema, there, merge)
        grown = [field for field in merged if field not in there]
        if grown:
            if column_rules.local_times_in_maps(grown):
                opening.allow_local_times(table)
            added = opening.delta_schema(pa.schema(grown)).fields
            table.alter.add_columns(
                added,
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=NO_HOOKS,
            )

    def _merged(self, schema: pa.Schema, there: pa.Schema, merge: bool) -> pa.Schema:
        where = f"Delta table {self.folder.uri}"
        hint = "Change the columns back, or give up the rows."
        try:
            merged = column_rules.check(schema, there, may_add=merge)
        except InputError as error:
            raise InputError(
                f"{where} has changed in the meantime: {error.message}", hint=hint
            ) from None
        for path, now, then in column_rules.changed(schema, there):
            raise InputError(
                f"{where}: {path} is now {now}, but {then} in the staged files.", hint=hint
            )
        return merged

    def _append(
        self, table: DeltaTable, files: Sequence[StagedFile], identifiers: Mapping[str, int]
    ) -> None:
        table.create_write_transaction(
            [
                AddAction(
                    path=file.path,
                    size=file.size_bytes,
                    partition_values=dict(file.partition_values),
                    modification_time=file.written_at_ms,
                    data_change=True,
                    stats=file.stats,
                )
                for file in files
            ],
            mode="append",
            schema=table.schema(),
            partition_by=table.metadata().partition_columns,
            commit_properties=opening.commit_properties(identifiers),
            post_commithook_properties=NO_HOOKS,
        )

    def _make_log_durable(self) -> None:
        """Flush the commits of a local table that this object has not flushed yet."""
        if self.folder.local is None:
            return
        log = self.folder.local / _LOG_FOLDER
        names = {f"{_LOG_FOLDER}/{path.name}" for path in log.glob("*.json")}
        with self.folder.failures("making the commit durable"):
            self.folder.make_durable(names - self._synced)
        self._synced = names

    def _open(self) -> DeltaTable:
        table = opening.open_if_exists(self.folder)
        if table is None:
            raise ConfigurationError(
                f"Delta table {self.folder.uri} does not exist.",
                hint="Check the path. Dropping a table deletes its staged files, too.",
            )
        return table

    def _ask(self, question: Callable[[DeltaTable], T]) -> T:
        table = self._open()  # again each time: no answer is older than its question
        with self._reading():
            return question(table)

    def _reading(self) -> AbstractContextManager[None]:
        return opening.reading(self.folder)

    def _committing(self, app_id: str, version: int) -> AbstractContextManager[None]:
        return opening.committing(self.folder, f"version {version} of {app_id!r}")


def _check_has_data(uri: str, names: Sequence[str], partition_by: Sequence[str]) -> None:
    """Refuse files without a column: most readers find no rows in them."""
    if set(names) <= set(partition_by):
        raise ConfigurationError(
            f"Delta table {uri}: it is partitioned by all of its columns, so its files would be "
            "empty.",
            hint="Leave at least one column out of partition_by.",
        )
