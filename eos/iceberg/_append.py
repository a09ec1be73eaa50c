"""An attempt's snapshot: its manifest list, and the commit that adds it to a branch."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final

from pyiceberg.manifest import (
    UNASSIGNED_SEQ,
    DataFile,
    ManifestContent,
    ManifestFile,
    construct_partition_summaries,
    write_manifest_list,
)
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

from eos.iceberg.data_file_entry import check_name
from eos.iceberg.part import IcebergPart

APP_ID: Final = "eos.app-id"
VERSION: Final = "eos.version"
"""Properties of a snapshot."""


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
        # By alias: the names of the fields are known to pydantic only.
        to_branch = SetSnapshotRefUpdate.model_validate(
            {
                "ref-name": self._branch,
                "type": SnapshotRefType.BRANCH,
                "snapshot-id": self._snapshot.snapshot_id,
            }
        )
        is_unchanged = AssertRefSnapshotId.model_validate(
            {"ref": self._branch, "snapshot-id": self._head_id}
        )
        return (AddSnapshotUpdate(snapshot=self._snapshot), to_branch), (is_unchanged,)


def _summary(part: IcebergPart, head: Snapshot | None) -> Summary:
    added = {"added-data-files": part.files, "added-records": part.records}
    counts = {name: str(count) for name, count in added.items() if count}
    if part.files:
        counts["added-files-size"] = str(part.bytes)
    own = {APP_ID: part.app_id, VERSION: str(part.version)}
    summary = Summary(operation=Operation.APPEND, **counts, **own)
    before = None if head is None or head.summary is None else head.summary
    return update_snapshot_summaries(summary, before)


def new_snapshot(table: Table, part: IcebergPart, head: Snapshot | None) -> Snapshot:
    """Write the manifest list of the attempt's snapshot, whose parent is ``head``."""
    metadata, io = table.metadata, table.io
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
        avro_compression=avro_compression(table),
    ) as writer:
        writer.add_manifests(manifests)
    return Snapshot.model_validate(
        {
            "snapshot-id": part.snapshot_id,
            "parent-snapshot-id": parent_id,
            "manifest-list": path,
            "sequence-number": sequence,
            "schema-id": metadata.current_schema_id,
            "summary": _summary(part, head),
        }
    )


def _own_manifest(table: Table, part: IcebergPart) -> ManifestFile:
    spec = table.specs()[int(str(part.spec_id))]
    partitions = [one.partition for one in data_files(table, part)]
    summaries = construct_partition_summaries(spec, table.schema(), partitions)
    return manifest_file(part, str(part.manifest), part.manifest_bytes or 0, summaries)


def manifest_file(
    part: IcebergPart, path: str, size: int, partitions: Sequence[Any] = ()
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
        partitions=list(partitions),
        key_metadata=None,
    )


def data_files(
    table: Table, part: IcebergPart, path: str | None = None, size: int | None = None
) -> list[DataFile]:
    """Read the data files in the attempt's manifest, by default that of PREPARED.

    Raises:
        ValueError: one belongs to another attempt.
    """
    manifest = manifest_file(part, path or str(part.manifest), size or part.manifest_bytes or 0)
    found = [one.data_file for one in manifest.fetch_manifest_entry(table.io)]
    for one in found:
        check_name(one.file_path, str(part.attempt_id))
    return found


def avro_compression(table: Table) -> Any:
    """Return the table's codec for manifests."""
    return table.properties.get(
        TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    )
