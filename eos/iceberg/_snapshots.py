"""An attempt's manifest, staged before the decision, and its snapshot, which the commit adds."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    construct_partition_summaries,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    UpdatesAndRequirements,
    UpdateTableMetadata,
)
from pyiceberg.types import UnknownType

from eos._storage import NOT_SHARED
from eos.errors import Retriable
from eos.iceberg._catalog_errors import failures
from eos.iceberg.data_file_entry import DataFileEntry, check_name, make_durable
from eos.iceberg.part import IcebergPart, manifest_name
from eos.iceberg.table_address import TableAddress

APP_ID: Final = "eos.app-id"
VERSION: Final = "eos.version"
"""Properties of a snapshot."""
_PARALLEL_REQUESTS: Final = 16


class StagedManifests:
    """Writes, checks and deletes the staged files of a table's attempts."""

    def __init__(self, address: TableAddress, table: Table) -> None:
        self._address = address
        self._table = table

    def stage(self, files: Sequence[DataFileEntry], part: IcebergPart) -> IcebergPart:
        """Write the manifest of an attempt, read it again, and check that its data files exist.

        Returns:
            The part, with the fields that describe it.

        Raises:
            Retriable: files are missing, or the table has changed: the epoch runs again.
        """
        # Entries of a manifest name the snapshot that adds them, so its id is chosen here. A table
        # takes an id once: a second guard against a commit that is repeated.
        metadata = self._table.metadata
        snapshot_id = metadata.new_snapshot_id()
        part = replace(part, snapshot_id=snapshot_id)
        if not files:
            return part
        schema = self._table.schema()
        try:
            # Not the newest one, which may be newer than the files.
            spec = self._table.specs()[files[0].spec_id]
            if lacks_column(spec, schema):
                raise ValueError("the column of a partition field was dropped")
            entries = [one.data_file(spec, schema) for one in files]
        except (LookupError, ValueError) as error:
            raise Retriable(
                f"Iceberg table {self._address.identity} has changed in the meantime: {error}."
            ) from None
        path = self._manifest_path(str(part.attempt_id))
        with failures(self._address, "writing a manifest"):
            output = self._table.io.new_output(path)
            with write_manifest(
                format_version=metadata.format_version,
                spec=spec,
                schema=schema,
                output_file=output,
                snapshot_id=snapshot_id,
                avro_compression=_avro_compression(self._table),
            ) as writer:
                for entry in entries:
                    writer.add(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED,
                            snapshot_id=snapshot_id,
                            sequence_number=None,
                            data_file=entry,
                        )
                    )
            size = len(output)
        make_durable([path])
        part = replace(part, manifest=path, manifest_bytes=size, spec_id=spec.spec_id)
        # From the manifest itself: after PREPARED, one that nobody can read has no way out.
        if gone := self.missing(part):
            raise Retriable(
                f"{len(gone)} staged files are missing, for example {gone[0]}.", hint=NOT_SHARED
            )
        return part

    def missing(self, part: IcebergPart) -> list[str]:
        """List the staged files that no longer exist, or have another size."""
        if part.manifest is None:
            return []
        with failures(self._address, "looking for staged files"):
            if self._size(part.manifest) != part.manifest_bytes:
                return [part.manifest]
            # By name: if it is damaged, a person can bring it back, or decide.
            with failures(self._address, f"reading {part.manifest}"):
                found = _data_files(self._table, part)
            return self.absent(found)

    def discard(self, part: IcebergPart, files: Iterable[str]) -> None:
        """Delete the attempt's manifest, the data files that it lists, and ``files``.

        Raises:
            Retriable: data files may be left; the manifest too, if the storage can't be reached.
        """
        attempt_id = str(part.attempt_id)
        # A driver that died before PREPARED may have left a manifest, by which its files are found.
        manifest = part.manifest or self._manifest_path(attempt_id)
        paths = set(files)
        with failures(self._address, "deleting staged files"):
            try:
                if (size := self._size(manifest)) is not None:
                    found = _data_files(self._table, part, manifest, size)
                    paths |= {one.file_path for one in found}
                for path in sorted(paths):
                    check_name(path, attempt_id)
                    self._delete(path)
            finally:
                # Also one that can't be read: that it is gone proves that nothing was committed.
                self._delete(manifest)

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._table.io.delete(path)

    def _manifest_path(self, attempt_id: str) -> str:
        locations = self._table.location_provider()
        return locations.new_metadata_location(manifest_name(attempt_id))

    def absent(self, files: Sequence[DataFile]) -> list[str]:
        """List those that no longer exist, or have another size."""
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as executor:
            sizes = executor.map(self._size, [one.file_path for one in files])
            pairs = zip(files, sizes, strict=True)
            return [one.file_path for one, size in pairs if size != one.file_size_in_bytes]

    def _size(self, path: str) -> int | None:
        try:
            return len(self._table.io.new_input(path))
        except FileNotFoundError:
            return None


class Append(UpdateTableMetadata["Append"]):
    """Adds one snapshot to a branch, on condition that the branch has the head that was read."""

    # pyiceberg's own append retries with new metadata, without asking whether another process has
    # committed the same version; and it writes its own manifest, and picks the snapshot's id.

    def __init__(
        self, transaction: Transaction, snapshot: Snapshot, branch: str, head: Snapshot | None
    ) -> None:
        super().__init__(transaction)
        self._snapshot = snapshot
        self._branch = branch
        self._head_id = None if head is None else head.snapshot_id

    def _commit(self) -> UpdatesAndRequirements:
        # A branch keeps its retention. By alias: names of fields are known to pydantic only.
        now = self._transaction.table_metadata.refs.get(self._branch)
        kept = {} if now is None else now.model_dump(by_alias=True)
        to_branch = SetSnapshotRefUpdate.model_validate(
            kept
            | {
                "ref-name": self._branch,
                "type": SnapshotRefType.BRANCH,
                "snapshot-id": self._snapshot.snapshot_id,
            }
        )
        is_unchanged = AssertRefSnapshotId.model_validate(
            {"ref": self._branch, "snapshot-id": self._head_id}
        )
        return (AddSnapshotUpdate(snapshot=self._snapshot), to_branch), (is_unchanged,)


def _summary(part: IcebergPart, head: Snapshot | None, own: Mapping[str, str]) -> Summary:
    added = {"added-data-files": part.files, "added-records": part.records}
    counts = {name: str(count) for name, count in added.items() if count}
    if part.files:
        counts["added-files-size"] = str(part.bytes)
    summary = Summary(operation=Operation.APPEND, **counts, **own)
    before = None if head is None or head.summary is None else head.summary
    # Adds the totals, which engines use for planning.
    return update_snapshot_summaries(summary, before)


def new_snapshot(
    table: Table, part: IcebergPart, head: Snapshot | None, own: Mapping[str, str]
) -> Snapshot:
    """Write the manifest list of the attempt's snapshot, with the parent ``head`` and the
    properties ``own``."""
    metadata, io = table.metadata, table.io
    # A fast append: older manifests are listed again as they are, except empty ones.
    manifests = [_own_manifest(table, part)] if part.manifest is not None else []
    for one in head.manifests(io) if head is not None else []:
        if one.has_added_files() or one.has_existing_files():
            manifests.append(one)
    assert part.snapshot_id is not None
    sequence = metadata.next_sequence_number()
    # Each attempt at the commit has its own list: two drivers may try at the same time.
    name = f"snap-{part.snapshot_id}-{uuid.uuid4()}.avro"
    path = table.location_provider().new_metadata_location(name)
    parent_id = None if head is None else head.snapshot_id
    with write_manifest_list(
        format_version=metadata.format_version,
        output_file=io.new_output(path),
        snapshot_id=part.snapshot_id,
        parent_snapshot_id=parent_id,
        sequence_number=sequence,
        avro_compression=_avro_compression(table),
    ) as writer:
        writer.add_manifests(manifests)
    return Snapshot.model_validate(
        {
            "snapshot-id": part.snapshot_id,
            "parent-snapshot-id": parent_id,
            "manifest-list": path,
            "sequence-number": sequence,
            "schema-id": metadata.current_schema_id,
            "summary": _summary(part, head, own),
        }
    )


def _own_manifest(table: Table, part: IcebergPart) -> ManifestFile:
    spec, schema = table.specs()[int(str(part.spec_id))], table.schema()
    summaries = None
    if not lacks_column(spec, schema):
        partitions = [one.partition for one in _data_files(table, part)]
        # Without these, readers open the manifest for every query.
        summaries = construct_partition_summaries(spec, schema, partitions)
    return _manifest_file(part, str(part.manifest), part.manifest_bytes or 0, summaries)


def lacks_column(spec: PartitionSpec, schema: Schema) -> bool:
    """Whether a field's column was dropped: then pyiceberg can't read what it writes."""
    return any(
        isinstance(one.field_type, UnknownType) for one in spec.partition_type(schema).fields
    )


def _manifest_file(
    part: IcebergPart, path: str, size: int, partitions: list[Any] | None = None
) -> ManifestFile:
    """Return an attempt's manifest as an entry of a manifest list."""
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=size,
        partition_spec_id=part.spec_id or 0,
        content=ManifestContent.DATA,
        sequence_number=UNASSIGNED_SEQ,
        min_sequence_number=UNASSIGNED_SEQ,
        added_snapshot_id=part.snapshot_id,
        added_files_count=part.files or 0,
        existing_files_count=0,
        deleted_files_count=0,
        added_rows_count=part.records or 0,
        existing_rows_count=0,
        deleted_rows_count=0,
        partitions=partitions,
        key_metadata=None,
    )


def _data_files(
    table: Table, part: IcebergPart, path: str | None = None, size: int | None = None
) -> list[DataFile]:
    """Read the data files in the attempt's manifest, by default that of PREPARED.

    Raises:
        ValueError: one belongs to another attempt.
    """
    manifest = _manifest_file(part, path or str(part.manifest), size or part.manifest_bytes or 0)
    found = [one.data_file for one in manifest.fetch_manifest_entry(table.io)]
    for one in found:
        check_name(one.file_path, str(part.attempt_id))
    return found


def _avro_compression(table: Table) -> Any:
    """Return the table's codec for manifests."""
    return table.properties.get(
        TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    )
