"""A staged data file: a Parquet file that no snapshot of the table names yet.

Executors send it to the driver as JSON, which writes it to a manifest.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from eos import _storage as storage
from eos.errors import Retriable


@dataclass(frozen=True)
class DataFileEntry:
    """One Parquet file that is not committed yet: the fields of its entry in a manifest.

    Partition values and bounds are in Iceberg's single-value binary form, as base64.

    Raises:
        ValueError: a field holds a value that staging never writes.
    """

    path: str
    size_bytes: int
    records: int
    spec_id: int
    partition: tuple[str | None, ...]
    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_counts: Mapping[int, int]
    lower_bounds: Mapping[int, str]
    upper_bounds: Mapping[int, str]
    split_offsets: tuple[int, ...]

    def to_json(self) -> str:
        """Return one line of JSON, for the driver."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, attempt_id: str) -> DataFileEntry:
        """The inverse of ``to_json``.

        Raises:
            ValueError: it is not an entry of this attempt's file.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or found.keys() != {one.name for one in fields(cls)}:
            raise ValueError("not the entry of a data file")
        check_name(str(found["path"]), attempt_id)
        for name in ("column_sizes", "value_counts", "null_counts", "lower_bounds", "upper_bounds"):
            # JSON has text keys only.
            found[name] = {int(key): value for key, value in found[name].items()}
        for name in ("partition", "split_offsets"):
            found[name] = tuple(found[name])
        return cls(**found)

    def data_file(self, spec: PartitionSpec, schema: Schema) -> DataFile:
        """Return it as ``pyiceberg`` writes it to a manifest."""
        kinds = [one.field_type for one in spec.partition_type(schema).fields]
        values = [
            None if text is None else from_bytes(primitive(kind), base64.b64decode(text))
            for kind, text in zip(kinds, self.partition, strict=True)
        ]
        found = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self.path,
            file_format=FileFormat.PARQUET,
            partition=Record(*values),
            record_count=self.records,
            file_size_in_bytes=self.size_bytes,
            column_sizes=dict(self.column_sizes),
            value_counts=dict(self.value_counts),
            null_value_counts=dict(self.null_counts),
            nan_value_counts={},  # unknown, as in all files of pyiceberg
            lower_bounds={key: base64.b64decode(one) for key, one in self.lower_bounds.items()},
            upper_bounds={key: base64.b64decode(one) for key, one in self.upper_bounds.items()},
            key_metadata=None,
            split_offsets=list(self.split_offsets),
            equality_ids=None,
            sort_order_id=None,
        )
        # Not a field of the file: manifests have one spec for all of their files.
        found.spec_id = spec.spec_id
        return found


def check_name(path: str, attempt_id: str) -> None:
    """Check that a file belongs to the attempt: only such files are ever deleted.

    Raises:
        ValueError: it does not.
    """
    # Not at the start: object storage layouts put a hash before the name, in some tables with "-".
    if f"eos-{attempt_id}-" not in path.rsplit("/", 1)[-1]:
        raise ValueError(f"{path[:200]!r} is not a file of attempt {attempt_id}")


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return a table's columns in Arrow, with Iceberg's field ids, and Spark's Arrow types."""
    return pa.schema([_small(one) for one in schema_to_pyarrow(schema)])


def _small(one: pa.Field) -> pa.Field:
    """``pyiceberg`` has the large types, whose offsets have 64 bits."""
    kind = one.type
    if pa.types.is_large_string(kind):
        kind = pa.string()
    elif pa.types.is_large_binary(kind):
        kind = pa.binary()
    elif pa.types.is_struct(kind):
        kind = pa.struct([_small(child) for child in kind])
    elif pa.types.is_map(kind):
        kind = pa.map_(_small(kind.key_field), _small(kind.item_field))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = pa.list_(_small(kind.value_field))
    return one.with_type(kind)


def make_durable(locations: Iterable[str]) -> None:
    """Flush local files and their folders to the disk; object stores do so themselves.

    Raises:
        Retriable: the disk did not confirm it.
    """
    for location in locations:
        parsed = urlparse(location)
        if parsed.scheme not in ("", "file"):
            continue
        # As pyiceberg opens it: a partition value's percent signs are in the file's name.
        path = Path(parsed.path if parsed.scheme else location)
        try:
            storage.sync(path.parent, [path.name])
        except (OSError, storage.NotDurable) as error:
            raise Retriable(f"{location} could not be made durable: {error}.") from None


def primitive(kind: Any) -> PrimitiveType:
    """Return the type of a partition value, which is never a nested one."""
    assert isinstance(kind, PrimitiveType)
    return kind
