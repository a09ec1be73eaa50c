"""Tables of other applications: their layouts, metrics, codecs and types are kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    FixedType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimeType,
    UUIDType,
)

from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.errors import ConfigurationError
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.data_file_entry import DataFileEntry
from eos.iceberg.data_files import stage
from eos.iceberg.participant import IcebergParticipant
from eos.iceberg.table_address import TableAddress
from eos.protocol import BATCH
from tests.iceberg.tables import NAME, catalog_of

# Types that no column of Spark has, and required ones at several levels.
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "text", StringType()),
    NestedField(3, "uuid", UUIDType()),
    NestedField(4, "time", TimeType()),
    NestedField(5, "fixed", FixedType(4)),
    NestedField(6, "inner", StructType(NestedField(7, "n", LongType(), required=True))),
    NestedField(8, "list", ListType(9, LongType(), element_required=True)),
    identifier_field_ids=[1],
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"))
HASHED = {"write.object-storage.enabled": "true"}


def epoch(address: TableAddress, rows: pa.RecordBatch) -> Any:
    def write(attempt_id: str) -> list[DataFileEntry]:
        target = IcebergTable(address).load().target(2**20, "zstd")
        files = stage([rows], target, attempt_id=attempt_id, spark_partition=0)
        return [DataFileEntry.from_json(one.to_json(), attempt_id) for one in files]

    return lambda begun: lambda: [write(begun()[0].attempt_id)]


@pytest.mark.parametrize(
    "properties",
    [
        HASHED,
        HASHED | {"write.object-storage.partitioned-paths": "false"},
        {"write.metadata.metrics.default": "none"},
        {"write.metadata.metrics.default": "counts"},
        {
            "write.metadata.compression-codec": "gzip",
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "1",
        },
        {"write.avro.compression-codec": "zstd"},
        {"write.format.default": "orc"},
        {"commit.manifest-merge.enabled": "true"},
    ],
    ids=lambda one: " ".join(one),
)
def test_epochs_follow_the_tables_properties(tmp_path, properties):
    catalog = load_catalog("default", **catalog_of(tmp_path))
    catalog.create_namespace("shop")
    catalog.create_table(NAME, SCHEMA, partition_spec=SPEC, properties=properties)
    address = TableAddress(NAME, properties=catalog_of(tmp_path))
    committer = Committer(CommitLog.open(tmp_path / "log", "x"), [IcebergParticipant("x", address)])
    rows = pa.record_batch(
        {
            "id": pa.array([1, 2]),
            "text": pa.array(["x" * 300, None]),
            "inner": pa.array([{"n": 1}, None]),
            "list": pa.array([[1], None]),
        }
    )
    for key in "ab":
        committer.run_epoch(BATCH, key, epoch(address, rows))
    wide = pa.schema([("id", pa.int64()), ("new", pa.struct([("a", pa.int32())]))])
    loaded = IcebergTable(address).load()
    loaded.add_columns(loaded.lacking(loaded.check_schema(wide, merge=True)))
    more = pa.RecordBatch.from_pylist([{"id": 7, "new": {"a": 1}}], schema=wide)
    committer.run_epoch(BATCH, "c", epoch(address, more))
    table = catalog.load_table(NAME)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 7]
    assert table.scan(row_filter="id = 7").to_arrow()["new"].to_pylist() == [{"a": 1}]
    assert table.schema().find_field("id").required
    if "write.metadata.previous-versions-max" in properties:
        assert len(list(tmp_path.rglob("*metadata.json"))) == 2


def test_a_codec_that_is_not_installed_is_named(tmp_path):
    catalog = load_catalog("default", **catalog_of(tmp_path))
    catalog.create_namespace("shop")
    catalog.create_table(NAME, SCHEMA, properties={"write.avro.compression-codec": "snappy"})
    address = TableAddress(NAME, properties=catalog_of(tmp_path))
    committer = Committer(CommitLog.open(tmp_path / "log", "x"), [IcebergParticipant("x", address)])
    rows = pa.record_batch({"id": pa.array([1])})
    try:
        import snappy  # noqa: F401
    except ImportError:
        with pytest.raises(ConfigurationError, match=r"pyiceberg\[snappy\]"):
            committer.run_epoch(BATCH, "a", epoch(address, rows))
