"""Phase two, in the driver and in recovery: staged files become part of the table, once.

A commit carries Delta's transaction identifier ``(app id, version)``. Three facts of ``deltalake``
1.6 make it exactly once, and shape the code:

- Of several commits with one app id from handles that stand at the same version of the table, or
  behind it, one succeeds; the others fail, whatever else was committed between.
- From a handle that has seen an identifier, the same one is accepted again: that check is ours,
  on a handle opened for this commit.
- A commit checks neither that its files are there, nor their types, nor that the table is the same
  one: these checks are ours too.

Every question opens the table anew, so no answer is older than the question.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.delta import _features as features
from eos.delta import columns, opening
from eos.delta._partitions import can_partition
from eos.delta.files import StagedFile
from eos.delta.folder import Folder
from eos.errors import ConfigurationError, Fatal, Fenced, InputError

_LOG_FOLDER: Final = "_delta_log"
_CHECKPOINT_INTERVAL: Final = "delta.checkpointInterval"
_COMMITS_PER_CHECKPOINT: Final = 100
"""Where the table does not say; as ``deltalake`` does it."""


class TargetTable:
    """A Delta table that a sink appends to.

    Args:
        uri: an absolute path, ``file:///path`` or ``s3://bucket/prefix``.
        storage_options: as ``deltalake`` takes them; in no ``repr`` and no message.

    Every method raises ``Retriable`` when the storage or the table can't be read, and all but
    ``exists``, ``create`` and the ones about files ``ConfigurationError`` when no table is there.

    Raises:
        ConfigurationError: ``uri`` is none of these.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.folder: Final = Folder(uri, storage_options)
        self._synced: set[str] = set()

    def __repr__(self) -> str:
        return f"TargetTable({self.folder.uri!r})"

    def exists(self) -> bool:
        """Whether a Delta table is there."""
        return opening.maybe_open(self.folder) is not None

    def create(self, schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
        """Make an empty table, unless one is there; safe against other creators.

        Somebody else's may have other columns: ``check_schema`` tells.

        Raises:
            InputError: two columns have one name.
            ConfigurationError: Delta has no such columns, or can't partition by one.
        """
        if self.exists():
            return
        columns.check_names(schema)
        _check_has_data(self.folder.uri, schema.names, partition_by)
        for name in partition_by:
            if not name or name not in schema.names or not can_partition(schema.field(name).type):
                raise ConfigurationError(
                    f"Delta table {self.folder.uri}: can't be partitioned by {name!r}.",
                    hint="Partition by columns of text, numbers, booleans, dates or times.",
                )
        opening.create(self.folder, schema, partition_by)
        self._make_log_durable()

    def check_writable(self) -> None:
        """Refuse a table that demands of its writers what an append of ready files can't keep.

        Raises:
            ConfigurationError: it does; the message names each feature.
        """
        self._check_demands(self._opened())

    def _check_demands(self, table: DeltaTable) -> None:
        with self._reading():
            demands = features.table_objections(table)
        if demands:
            raise ConfigurationError(
                f"Delta table {self.folder.uri} demands what eos can't keep: {', '.join(demands)}.",
                hint="Drop it from the table (ALTER TABLE ... DROP CONSTRAINT, or DROP FEATURE), "
                "or write to a table without it and MERGE from there.",
            )

    @property
    def table_id(self) -> str:
        """The table's own id: another one for a table that was dropped and made anew."""
        table = self._opened()
        with self._reading():
            return str(table.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, as Arrow has them."""
        table = self._opened()
        with self._reading():
            return opening.arrow_schema(table)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The columns that the table is partitioned by, in their order."""
        table = self._opened()
        with self._reading():
            return tuple(table.metadata().partition_columns)

    def same_table(self, table_id: str) -> bool:
        """Whether the table is still the one that had this id."""
        return self.table_id == table_id

    def compared(self, have: pa.Schema) -> tuple[list[str], list[str]]:
        """The columns, and fields of structs, that rows have and the table lacks; and those that it
        has and they lack."""
        return columns.compared(have, self.schema)

    def check_staged(self, schema: pa.Schema, *, merge: bool) -> None:
        """Whether files that were staged for ``schema`` can still be appended.

        Raises:
            InputError: the table's columns have changed; the message names one.
            ConfigurationError: the table has come to demand what an append can't keep.
        """
        self.check_writable()
        self._merged(schema, self.schema, merge)

    def check_schema(self, have: pa.Schema, *, merge: bool = False) -> pa.Schema:
        """The table's columns behind an append of rows with the columns ``have``.

        Args:
            merge: columns that the table lacks are added to it by the commit, as nullable ones.

        Returns:
            What ``StagingTarget.schema`` and ``commit`` need.

        Raises:
            InputError: the rows don't fit; the message names each column, with both types.
            ConfigurationError: Delta has no such type.
        """
        merged = columns.check(have, self.schema, may_add=merge)
        _check_has_data(self.folder.uri, merged.names, self.partition_columns)
        return pa.schema(opening.delta_schema(merged).to_arrow())

    def committed_version(self, app_id: str) -> int | None:
        """The version last committed with ``app_id``, for good; None: never one in this table."""
        table = self._opened()
        with self._reading():
            version: int | None = table.transaction_version(app_id)
        # Of a commit that a power failure could still take back, nobody may be told.
        self._make_log_durable()
        return version

    @property
    def forgets_transactions(self) -> bool:
        """Whether the table drops identifiers of commits after a time."""
        table = self._opened()
        with self._reading():
            return features.TXN_RETENTION in table.metadata().configuration

    def missing(self, files: Iterable[StagedFile]) -> list[StagedFile]:
        """Those of ``files`` that are not there any more, or have another size."""
        asked = list(files)
        with self.folder.failures("looking for staged files"):
            sizes = self.folder.size_bytes([file.path for file in asked])
        return [file for file, size in zip(asked, sizes, strict=True) if size != file.size_bytes]

    def discard(
        self, files: Iterable[StagedFile], *, unless_committed: tuple[str, int] | None = None
    ) -> None:
        """Delete staged files; one that is gone already is fine.

        Whoever calls knows that they are not, and never will be, in the table.

        Args:
            unless_committed: app id and version of their commit: looked up first, as a guard.

        Raises:
            Fatal: the guard found that they may be in the table; nothing was deleted.
        """
        if unless_committed is not None:
            app_id, version = unless_committed
            committed = self.committed_version(app_id)
            if committed is not None and committed >= version:
                raise Fatal(
                    f"Delta table {self.folder.uri}: {app_id!r} stands at {committed}, so files "
                    f"of version {version} may be in the table: none was deleted."
                )
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
        owner: str | None = None,
    ) -> None:
        """Append ``files`` as version ``version`` of ``app_id``, in one attempt; durable then.

        Does nothing when just this version was committed before. Without files the version is
        noted all the same. With ``merge`` columns that the table lacks are added first, in a commit
        of their own.

        Args:
            table_id: of the table that the files were staged for.
            schema: what ``check_schema`` gave when they were staged.
            owner: noted besides, as an identifier that does not change with ``app_id``.

        Raises:
            CommitUnconfirmed: the attempt failed, or its answer was lost: ``committed_version``
                tells whether it took effect. It may be made again.
            Fenced: a later version of ``app_id`` is in the table; nothing was appended.
            Fatal: the table is another one, has other columns or demands what an append can't keep,
                or files are gone; nothing was appended.
        """
        table = self._opened()
        with self._reading():
            found, committed = str(table.metadata().id), table.transaction_version(app_id)
        if found != table_id:
            raise Fatal(
                f"Delta table {self.folder.uri} is another one (id {found}) than the rows were "
                f"written for ({table_id}).",
                hint="It was dropped and recreated. The rows are in its folder, in no table.",
            )
        if committed is not None and committed > version:
            raise Fenced(
                f"Delta table {self.folder.uri}: {app_id!r} stands at {committed}, after {version}."
            )
        if committed != version:
            try:
                self._check_demands(table)
            except ConfigurationError as error:  # told as that, in the sink's next claim
                raise Fatal(error.message, hint=error.hint) from None
            self._check_files(table, files)
            with self._committing(app_id, version):
                self._add_columns(table, schema, merge)
                self._append(table, files, {app_id: version, **({owner: version} if owner else {})})
        with self._committing(app_id, version):
            self._make_log_durable()

    def checkpoint_when_due(self) -> None:
        """Now and then write a Delta checkpoint, and drop log files older than the table keeps.

        No commit does it by itself, so that none fails over it. Without it every reader reads
        every commit there ever was.

        Raises:
            Exception: it did not work; the table is as good as before.
        """
        table = self._opened()
        interval = table.metadata().configuration.get(_CHECKPOINT_INTERVAL)
        if table.version() % int(interval or _COMMITS_PER_CHECKPOINT):
            return
        with panics_as_errors():
            table.create_checkpoint()
            table.cleanup_metadata()

    def _check_files(self, table: DeltaTable, files: Sequence[StagedFile]) -> None:
        with self._reading():
            partition_by = set(table.metadata().partition_columns)
        if any(file.partition_values.keys() != partition_by for file in files):
            raise Fatal(
                f"Delta table {self.folder.uri} is partitioned by other columns than the staged "
                "files are."
            )
        gone = self.missing(files)
        if gone:
            raise Fatal(
                f"Delta table {self.folder.uri}: {len(gone)} of {len(files)} staged files are "
                f"missing or damaged, for example {gone[0].path}; nothing was appended.",
                hint="A VACUUM with a short retention may have taken them. Restore them, or give "
                "the epoch's rows up.",
            )

    def _add_columns(self, table: DeltaTable, schema: pa.Schema, merge: bool) -> None:
        """Give the table all columns of ``schema``, if ``merge`` allows that.

        Raises:
            InputError: a column is gone or has another type by now. No cast is good enough: the
                files are written.
        """
        there = opening.arrow_schema(table)
        merged = self._merged(schema, there, merge)
        grown = [field for field in merged if field not in there]
        if grown:
            if columns.local_times_in_maps(grown):
                opening.allow_local_times(table)
            added = opening.delta_schema(pa.schema(grown)).fields
            table.alter.add_columns(
                added,
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=NO_HOOKS,
            )

    def _merged(self, schema: pa.Schema, there: pa.Schema, merge: bool) -> pa.Schema:
        where = f"Delta table {self.folder.uri}"
        hint = "Change the columns back, or give the rows up."
        try:
            merged = columns.check(schema, there, may_add=merge)
        except InputError as error:
            raise InputError(
                f"{where} has changed in the meantime: {error.message}", hint=hint
            ) from None
        for path, now, then in columns.changed(schema, there):
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
            # Where identifiers expire, Spark drops one without a time at once.
            commit_properties=CommitProperties(
                app_transactions=[
                    Transaction(app_id, version, time.time_ns() // 1_000_000)
                    for app_id, version in identifiers.items()
                ]
            ),
            post_commithook_properties=NO_HOOKS,
        )

    def _make_log_durable(self) -> None:
        """Commits of a local table that this object has not flushed yet."""
        if self.folder.local is None:
            return
        log = self.folder.local / _LOG_FOLDER
        names = {f"{_LOG_FOLDER}/{path.name}" for path in log.glob("*.json")} - self._synced
        with self.folder.failures("making the commit durable"):
            self.folder.make_durable(names)
        self._synced |= names

    def _opened(self) -> DeltaTable:
        table = opening.maybe_open(self.folder)
        if table is None:
            raise ConfigurationError(
                f"No Delta table is at {self.folder.uri}.",
                hint="Check the path. A dropped table takes its staged files with it.",
            )
        return table

    def _reading(self) -> AbstractContextManager[None]:
        return opening.reading(self.folder)

    def _committing(self, app_id: str, version: int) -> AbstractContextManager[None]:
        return opening.committing(self.folder, f"version {version} of {app_id!r}")


def _check_has_data(uri: str, names: Sequence[str], partition_by: Sequence[str]) -> None:
    """Files without a column have no rows for most readers, whatever the table says of them."""
    if set(names) <= set(partition_by):
        raise ConfigurationError(
            f"Delta table {uri}: it is partitioned by all of its columns, so its files would hold "
            "nothing.",
            hint="Leave at least one column out of partition_by.",
        )
