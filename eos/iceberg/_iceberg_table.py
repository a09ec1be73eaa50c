"""Phase two, in the driver and in recovery: staged files become a snapshot of the table, once.

Each commit is one snapshot with an id that was chosen before, and in the same commit sets a table
property: the newest version of the log. Snapshots expire, properties stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of
from pyiceberg.transforms import parse_transform

from eos.delta import column_rules
from eos.errors import ConfigurationError, Fatal, Fenced
from eos.iceberg._catalog_errors import committing, failures
from eos.iceberg._snapshots import (
    APP_ID,
    VERSION,
    Append,
    StagedManifests,
    lacks_column,
    new_snapshot,
)
from eos.iceberg.data_file_entry import arrow_schema, make_durable
from eos.iceberg.data_files import ICEBERG, IcebergTarget
from eos.iceberg.part import IcebergPart
from eos.iceberg.table_address import MAIN, TableAddress, parse_partition_field
from eos.participant import Audited, Kept

# A table property is this and the app id.
_OWN: Final = "eos."
# Format 3 has row lineage, which pyiceberg does not write (0.12).
_WRITABLE: Final = (1, 2)
# In the name of a data file.
_ATTEMPT: Final = re.compile(r"eos-([0-9a-f-]{36})-[^/]*$")
# Key of a column's comment in Arrow, for pyiceberg.
_DOC: Final = b"doc"


class IcebergTable:
    """A table in a catalog; each question loads its newest metadata.

    Every method raises ``Retriable`` if catalog or storage can't be reached, and
    ``ConfigurationError`` if the catalog's properties are wrong or it refuses access.
    """

    def __init__(self, address: TableAddress) -> None:
        self.address: Final = address
        self._catalog: Catalog | None = None

    def __repr__(self) -> str:
        return f"IcebergTable({self.address.identity!r})"

    def find(self) -> LoadedTable | None:
        """Return the table as it is now; None if the catalog does not have it."""
        catalog = self._connected()
        with failures(self.address, "reading it"):
            try:
                return LoadedTable(self.address, catalog.load_table(self.address.table))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None

    def load(self) -> LoadedTable:
        """Return the table as it is now.

        Raises:
            ConfigurationError: it does not exist.
        """
        found = self.find()
        if found is None:
            raise ConfigurationError(
                f"Iceberg table {self.address.identity} does not exist.",
                hint="Check the catalog and the name.",
            )
        return found

    def create(self, schema: pa.Schema, partition_by: Sequence[str] = ()) -> None:
        """Create an empty table; another creator's table is left as it is.

        Raises:
            InputError: two columns have the same name.
            ConfigurationError: it can't be partitioned like this, or the branch is not ``main``.
        """
        if self.address.branch != MAIN:
            raise ConfigurationError(
                f"Iceberg table {self.address.identity} does not exist, and a new one has no "
                f"branch {self.address.branch}.",
                hint="Create the table, with a first snapshot, and its branch.",
            )
        column_rules.check_names(schema, ICEBERG)
        catalog = self._connected()
        namespace = Catalog.namespace_from(self.address.table)
        with failures(self.address, "creating it"):
            catalog.create_namespace_if_not_exists(namespace)
            # Of two creators one wins; which error the other gets depends on the catalog.
            with suppress(TableAlreadyExistsError, CommitFailedException):
                creation = catalog.create_table_transaction(self.address.table, _plain(schema))
                self._partition(creation, partition_by)
                creation.commit_transaction()

    def _partition(self, creation: Transaction, partition_by: Sequence[str]) -> None:
        for text in partition_by:
            transform, column = parse_partition_field(text)
            try:
                with creation.update_spec() as update:
                    update.add_field(column, parse_transform(transform))
            except ValueError as error:
                raise ConfigurationError(
                    f"Iceberg table {self.address.identity} can't be partitioned by {text!r}: "
                    f"{error}."
                ) from None

    def close(self) -> None:
        """Close the connections to the catalog."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def _connected(self) -> Catalog:
        if self._catalog is None:
            with failures(self.address, "opening its catalog", configuring=True):
                properties: Mapping[str, Any] = self.address.properties
                self._catalog = load_catalog(self.address.catalog_name, **properties)
        return self._catalog


class LoadedTable:
    """A table at one version of its metadata."""

    def __init__(self, address: TableAddress, table: Table) -> None:
        self._address = address
        self._table = table
        self.staged: Final = StagedManifests(address, table)

    @property
    def uuid(self) -> str:
        """The table's own id; a recreated table has another one."""
        return str(self._table.metadata.table_uuid)

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return arrow_schema(self._table.schema())

    def committed_version(self, app_id: str) -> int | None:
        """Return the newest version that was committed with ``app_id``; None without one."""
        # The property is there unless a person removed it; snapshots are there until they expire.
        # Those of all branches count: a rollback does not make a version uncommitted.
        found = [self._table.properties.get(_OWN + app_id, "")]
        for snapshot in self._table.metadata.snapshots:
            if snapshot.summary is not None and snapshot.summary.get(APP_ID) == app_id:
                found.append(str(snapshot.summary.get(VERSION)))
        return max((int(text) for text in found if text.isdecimal()), default=None)

    def audit(self, parts: Sequence[IcebergPart]) -> list[Audited | None]:
        """Return how much of each committed attempt the branch has; None: it is another table's."""
        live = self.live_files()
        files = [live.get(str(part.attempt_id), []) for part in parts]
        with failures(self._address, "looking for its files"):
            absent = set(self.staged.absent([one.file for tasks in files for one in tasks]))
        lineage = list(ancestors_of(self._head(), self._table.metadata))
        return [
            self._audited(part, tasks, absent, lineage) if part.table_uuid == self.uuid else None
            for part, tasks in zip(parts, files, strict=True)
        ]

    def live_files(self) -> dict[str, list[FileScanTask]]:
        """Return the branch's data files by the id of the attempt that wrote them."""
        found: dict[str, list[FileScanTask]] = {}
        head = self._head()
        if head is not None:
            with failures(self._address, "reading its manifests"):
                for task in self._table.scan(snapshot_id=head.snapshot_id).plan_files():
                    if (name := _ATTEMPT.search(task.file.file_path)) is not None:
                        found.setdefault(name[1], []).append(task)
        return found

    def _audited(
        self,
        part: IcebergPart,
        files: Sequence[FileScanTask],
        absent: Set[str],
        lineage: Sequence[Snapshot],
    ) -> Audited:
        gone = [one.file.file_path for one in files if one.file.file_path in absent]
        if gone:
            return Audited(Kept.LOST, f"file {gone[0]} is not in the storage, or has another size")
        if sum(one.file.record_count for one in files) == part.records:
            if any(one.delete_files for one in files):
                return Audited(Kept.CHANGED, "rows were deleted by delete files")
            return Audited(Kept.WHOLE)
        ids = [one.snapshot_id for one in lineage]
        if part.snapshot_id in ids:
            later = [one.summary for one in lineage[: ids.index(part.snapshot_id)]]
            by = {str(one.operation.value) for one in later if one} - {Operation.APPEND.value}
            # A replace changes no row; an overwrite may be an update as well as a new content.
            kept = Kept.WHOLE if by <= {Operation.REPLACE.value} else Kept.CHANGED
            return Audited(kept, f"files were replaced by later snapshots ({', '.join(by)})")
        if self.has_snapshot(part) and lineage and lineage[-1].parent_snapshot_id is None:
            return Audited(Kept.LOST, "snapshot was rolled back")
        if (self.committed_version(part.app_id) or 0) < (part.version or 0):
            return Audited(Kept.LOST, "commit is missing: an older copy of the table was restored")
        return Audited(
            Kept.UNKNOWN, "not checkable: their files were replaced, and snapshots have expired"
        )

    def app_ids(self) -> list[str]:
        """List the app ids of all logs that have committed to the table."""
        names = self._table.properties
        return [name.removeprefix(_OWN) for name in names if name.startswith(_OWN)]

    def check_writable(self) -> None:
        """Check that a snapshot can be added to the branch.

        Raises:
            ConfigurationError: it can't.
        """
        self._check_format()
        # A removed field of format version 1 stays, and its column may be dropped.
        if lacks_column(self._table.spec(), self._table.schema()):
            raise ConfigurationError(
                f"A partition field of Iceberg table {self._address.identity} is of a column that "
                "was dropped; pyiceberg can't read what it writes to such a table.",
                hint="Write to a new table, with format version 2.",
            )
        self._head()

    def _check_format(self) -> None:
        version = self._table.format_version
        if version not in _WRITABLE:
            raise ConfigurationError(
                f"Iceberg table {self._address.identity} has format version {version}, which "
                "pyiceberg does not write.",
                hint="Use a table with format version 2.",
            )

    def check_schema(self, have: pa.Schema, *, merge: bool) -> pa.Schema:
        """Return the table's columns after an append of rows with the columns ``have``.

        Raises:
            InputError: the rows don't fit; the message names each column, with both types.
        """
        return column_rules.check(have, self.schema, may_add=merge, table_format=ICEBERG)

    def compared(self, have: pa.Schema) -> tuple[list[str], list[str]]:
        """List the columns and fields that only the rows have, and those only the table has."""
        return column_rules.compared(have, self.schema)

    def lacking(self, merged: pa.Schema) -> pa.Schema:
        """Return the columns of the result of ``check_schema`` that the table lacks."""
        now = _plain(self.schema)
        return pa.schema([one for one in _plain(merged) if one not in now])

    def add_columns(self, columns: pa.Schema) -> None:
        """Add columns that the table lacks, in a separate commit, as Spark's writer does."""
        # Not together with the rows: the files need the ids of the new columns, which are known
        # only when the catalog has accepted them.
        with failures(self._address, "adding columns"), self._table.update_schema() as update:
            update.union_by_name(columns)

    def target(self, file_bytes: int, compression: Any) -> IcebergTarget:
        """Return the table as tasks need it."""
        return IcebergTarget(
            location=self._table.location(),
            schema=self._table.schema().model_dump_json(),
            spec=self._table.spec().model_dump_json(),
            properties=dict(self._table.properties),
            io=dict(self._table.io.properties),
            file_bytes=file_bytes,
            compression=compression,
        )

    def commit(self, part: IcebergPart) -> None:
        """Add the attempt's snapshot, in one attempt, if the branch is still as it was loaded.

        Does nothing if this version was committed before. Without rows, the snapshot is empty.

        Raises:
            Retriable: another commit came first; nothing was committed.
            CommitUnconfirmed: it may have taken effect: ``committed_version`` shows it.
            Fenced: a later version is in the table; nothing was committed.
            Fatal: the table is another one, or files are missing; nothing was committed.
        """
        assert part.version is not None
        if self.uuid != part.table_uuid:
            raise Fatal(
                f"Iceberg table {self._address.identity} is another one (uuid {self.uuid}) than "
                f"the rows were written for ({part.table_uuid}).",
                hint="It was dropped and recreated. The rows are in files that no table names.",
            )
        # Asked of the same metadata whose head the commit requires: a process that commits this
        # version in between moves the head, and this commit fails.
        committed = self.committed_version(part.app_id)
        if committed == part.version:
            return
        if committed is not None and committed > part.version:
            raise Fenced(
                f"Iceberg table {self._address.identity}: {part.app_id!r} is at version "
                f"{committed}, after {part.version}."
            )
        # Also by the driver that has just staged them: it may have slept, and a person has called
        # the attempt aborted meanwhile, which deleted its files.
        if gone := self.staged.missing(part):
            raise Fatal(
                f"Iceberg table {self._address.identity}: {len(gone)} staged files are missing, "
                f"for example {gone[0]}; nothing was committed.",
                hint="remove_orphan_files may have deleted them. Restore them, or give up the "
                "epoch's rows.",
            )
        # Not of the columns: the manifest was written while they fitted.
        self._check_format()
        self._add_snapshot(part, {APP_ID: part.app_id, VERSION: str(part.version)})

    def has_snapshot(self, part: IcebergPart) -> bool:
        """Whether the attempt's snapshot id is used up."""
        return self._table.metadata.snapshot_by_id(part.snapshot_id or 0) is not None

    def fence(self, part: IcebergPart) -> None:
        """Use up the attempt's snapshot id by an empty snapshot: no commit of it succeeds then.

        Raises:
            Retriable: another commit came first.
            CommitUnconfirmed: it may not be done.
        """
        self._add_snapshot(replace(part, manifest=None, files=0, records=0), {})

    def _add_snapshot(self, part: IcebergPart, own: Mapping[str, str]) -> None:
        head = self._head()
        with failures(self._address, "writing a manifest list"):
            snapshot = new_snapshot(self._table, part, head, own)
        # Property and snapshot are one commit. The property alone would have no condition in a
        # REST catalog, so an attempt without rows adds an empty snapshot, too. The list stays after
        # any failure: a client that repeats a request whose answer was lost meets its own commit,
        # and calls it another one (pyiceberg's of Glue; measured).
        with committing(self._address, f"version {part.version} of {part.app_id!r}"):
            transaction = self._table.transaction()
            Append(transaction, snapshot, self._address.branch, head).commit()
            if own:
                transaction.set_properties({_OWN + part.app_id: str(part.version)})
            transaction.commit_transaction()
        # pyiceberg leaves that to the kernel.
        make_durable([snapshot.manifest_list, self._table.metadata_location])

    def _head(self) -> Snapshot | None:
        branch = self._address.branch
        ref = self._table.metadata.refs.get(branch)
        if ref is None and branch == MAIN:  # a table without snapshots
            return None
        # pyiceberg would create the branch, without the rows of main.
        if ref is None:
            raise ConfigurationError(
                f"Iceberg table {self._address.identity} has no branch {branch}.",
                hint=f"Create it: ALTER TABLE {self._address.identity} CREATE BRANCH {branch}.",
            )
        if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            raise ConfigurationError(
                f"{branch} of Iceberg table {self._address.identity} is a tag, not a branch.",
                hint="Name a branch.",
            )
        return self._table.metadata.snapshot_by_id(ref.snapshot_id)


def _plain(schema: pa.Schema) -> pa.Schema:
    """Return the columns with comments as their only metadata."""
    # Spark's other metadata is not Iceberg's. Ids of new columns are the catalog's business, and a
    # schema in which only some columns have ids is an error.
    return pa.schema([_without_ids(one) for one in schema])


def _without_ids(one: pa.Field) -> pa.Field:
    kind = one.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_without_ids(child) for child in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_without_ids(kind.key_field), _without_ids(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_without_ids(kind.value_field))
    metadata = one.metadata or {}
    comment = json.loads(metadata.get(column_rules.SPARK_METADATA.encode(), b"{}")).get("comment")
    doc = metadata.get(_DOC) or comment
    return pa.field(one.name, kind, one.nullable, {_DOC: doc} if doc else None)
