"""The staged manifest of an attempt: lists its data files, and no snapshot names it yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus, write_manifest
from pyiceberg.table import Table

from eos.errors import Retriable
from eos.iceberg._append import avro_compression, data_files
from eos.iceberg._catalog_errors import failures
from eos.iceberg.data_file_entry import DataFileEntry, check_name, make_durable
from eos.iceberg.part import IcebergPart, manifest_name
from eos.iceberg.table_address import TableAddress

_PARALLEL_REQUESTS: Final = 16


class StagedManifests:
    """Writes, checks and deletes the staged files of a table's attempts."""

    def __init__(self, address: TableAddress, table: Table) -> None:
        self._address = address
        self._table = table

    def stage(self, files: Sequence[DataFileEntry], attempt_id: str) -> dict[str, Any]:
        """Write the manifest of an attempt, and check that its data files exist.

        Returns:
            The fields of ``IcebergPart`` that describe it.

        Raises:
            Retriable: files are missing, or the table has changed: the epoch runs again.
        """
        metadata = self._table.metadata
        snapshot_id = metadata.new_snapshot_id()
        staged: dict[str, Any] = {"snapshot_id": snapshot_id}
        if not files:
            return staged
        schema = self._table.schema()
        try:
            spec = self._table.specs()[files[0].spec_id]
            entries = [one.data_file(spec, schema) for one in files]
        except (LookupError, ValueError) as error:
            raise Retriable(
                f"Iceberg table {self._address.identity} has changed in the meantime: {error}."
            ) from None
        path = self._manifest_path(attempt_id)
        with failures(self._address, "writing a manifest"):
            output = self._table.io.new_output(path)
            with write_manifest(
                format_version=metadata.format_version,
                spec=spec,
                schema=schema,
                output_file=output,
                snapshot_id=snapshot_id,
                avro_compression=avro_compression(self._table),
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
        gone = self._missing(entries)
        if gone:
            raise Retriable(f"{len(gone)} staged files are missing, for example {gone[0]}.")
        return staged | {"manifest": path, "manifest_bytes": size, "spec_id": spec.spec_id}

    def missing(self, part: IcebergPart) -> list[str]:
        """List the staged files that no longer exist, or have another size."""
        if part.manifest is None:
            return []
        with failures(self._address, "looking for staged files"):
            if self._size(part.manifest) != part.manifest_bytes:
                return [part.manifest]
            return self._missing(data_files(self._table, part))

    def discard(self, part: IcebergPart, files: Iterable[str]) -> None:
        """Delete the attempt's manifest, the data files that it lists, and ``files``."""
        attempt_id = str(part.attempt_id)
        manifest = part.manifest or self._manifest_path(attempt_id)
        paths = set(files)
        with failures(self._address, "deleting staged files"):
            if (size := self._size(manifest)) is not None:
                found = data_files(self._table, part, manifest, size)
                paths |= {one.file_path for one in found}
            for path in [*sorted(paths), manifest]:
                if path != manifest:
                    check_name(path, attempt_id)
                with suppress(FileNotFoundError):
                    self._table.io.delete(path)

    def _manifest_path(self, attempt_id: str) -> str:
        locations = self._table.location_provider()
        return locations.new_metadata_location(manifest_name(attempt_id))

    def _missing(self, files: Sequence[DataFile]) -> list[str]:
        with ThreadPoolExecutor(_PARALLEL_REQUESTS) as executor:
            sizes = executor.map(self._size, [one.file_path for one in files])
            pairs = zip(files, sizes, strict=True)
            return [one.file_path for one, size in pairs if size != one.file_size_in_bytes]

    def _size(self, path: str) -> int | None:
        try:
            return len(self._table.io.new_input(path))
        except FileNotFoundError:
            return None
