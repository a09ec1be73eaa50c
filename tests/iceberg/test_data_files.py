"""Staging without Spark: files, bounds, memory, failures; on local disks and in S3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from eos import _storage
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.errors import InputError, Retriable
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.data_file_entry import DataFileEntry
from eos.iceberg.data_files import IcebergTarget, stage
from eos.iceberg.part import IcebergPart
from eos.iceberg.participant import IcebergParticipant
from eos.iceberg.table_address import TableAddress
from eos.protocol import BATCH, Known, LogRecord
from tests.commit_log.test_s3 import bucket, server, where
from tests.iceberg.tables import NAME, SCHEMA, catalog_of

__all__ = ["bucket", "server", "where"]

ATTEMPT = "6f1d2f0a-2d5f-4f6e-8a55-0d0a4c1f5b11"
TWO = pa.schema([("id", pa.int64()), ("value", pa.string())])


@pytest.fixture
def table(tmp_path) -> IcebergTable:
    found = IcebergTable(TableAddress(NAME, properties=catalog_of(tmp_path)))
    found.create(TWO, ["bucket(4, id)"])
    return found


@pytest.fixture
def target(table) -> IcebergTarget:
    return table.load().target(1024 * 1024, "zstd")


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch(
        [pa.array(ids, pa.int64()), pa.array(map(str, ids), pa.string())], schema=TWO
    )


def staged(batches, target) -> tuple[DataFileEntry, ...]:
    return stage(batches, target, attempt_id=ATTEMPT, spark_partition=7)


def on_disk(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "warehouse").rglob("*.parquet"))


def test_a_file_has_field_ids_bounds_and_the_attempts_name(target, tmp_path):
    entries = staged([batch(1, 5), batch(9)], target)
    assert sum(one.records for one in entries) == 3
    paths = on_disk(tmp_path)
    assert {f"file://{path}" for path in paths} == {one.path for one in entries}
    assert all(path.name.startswith(f"eos-{ATTEMPT}-00007-") for path in paths)
    ids = [one.metadata[b"PARQUET:field_id"] for one in pq.read_schema(paths[0])]
    assert ids == [b"1", b"2"]
    # Each value is another one: a dictionary would not pay.
    assert not pq.read_metadata(paths[0]).row_group(0).column(0).has_dictionary_page
    assert [path.stat().st_size for path in paths] == [
        next(one.size_bytes for one in entries if one.path == f"file://{path}") for path in paths
    ]
    for one in entries:
        assert one.lower_bounds.keys() == one.upper_bounds.keys() == {1, 2}
        assert DataFileEntry.from_json(one.to_json(), ATTEMPT) == one


@pytest.mark.parametrize(
    "change",
    [
        {"path": "file:///etc/passwd"},
        {"path": "file:///w/eos-00000000-0000-4000-8000-000000000000-00000-1.parquet"},
    ],
)
def test_an_entry_of_another_file_is_refused(target, change):
    (entry,) = staged([batch(1)], target)
    with pytest.raises(ValueError, match="not a file of attempt"):
        DataFileEntry.from_json(replace(entry, **change).to_json(), ATTEMPT)
    with pytest.raises(ValueError, match="not the entry"):
        DataFileEntry.from_json('{"path": "x"}', ATTEMPT)


def test_no_file_is_left_after_an_error_of_the_rows(target, tmp_path):
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(*range(100))
        raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"):
        staged(rows(), target)
    assert on_disk(tmp_path) == []
    wrong = pa.record_batch([pa.array(["x"])], names=["id"])
    with pytest.raises(InputError, match="don't fit the Iceberg table"):
        staged([batch(1), wrong], target)
    assert on_disk(tmp_path) == []


def test_zero_and_minus_zero_have_a_partition_each(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("x", pa.float64())])
    found = IcebergTable(TableAddress(NAME, properties=catalog_of(tmp_path)))
    found.create(schema, ["x"])
    pairs = {"id": [1, 2, 3], "x": [-0.0, 0.0, None]}, {"id": [4], "x": [0.0]}
    rows = [pa.record_batch(one, schema) for one in pairs]
    entries = staged(rows, found.load().target(1024 * 1024, "zstd"))
    table = load_catalog("default", **catalog_of(tmp_path)).load_table(NAME)
    files = [one.data_file(table.spec(), table.schema()) for one in entries]
    ids = {repr(one.partition[0]): pq.read_table(one.file_path)["id"].to_pylist() for one in files}
    assert ids == {"-0.0": [1], "0.0": [2, 4], "None": [3]}


def test_files_and_folders_are_on_the_disk_whatever_the_partition(tmp_path, monkeypatch):
    flushed = set()

    def noted(path: Path) -> None:
        sync_file(path)
        flushed.add(path)

    sync_file = _storage.sync_file
    monkeypatch.setattr(_storage, "sync_file", noted)
    found = IcebergTable(TableAddress(NAME, properties=catalog_of(tmp_path)))
    found.create(TWO, ["value"])
    values = ["plain", "a b", "a/b", "ü", "50%", "x:y", "", "#x", "a?b", "%2F", None]
    rows = pa.record_batch([pa.array(range(len(values)), pa.int64()), pa.array(values)], TWO)
    staged([rows], found.load().target(1024 * 1024, "zstd"))
    files = on_disk(tmp_path)
    assert len(files) == len(values)
    assert flushed >= {*files, *(one.parent for one in files)}


def test_a_text_without_an_upper_bound_is_no_error(target):
    long = "x" * 15 + "\ud7ff" * 2  # after U+D7FF come the surrogates
    (entry,) = staged([pa.record_batch([pa.array([1]), pa.array([long])], schema=TWO)], target)
    assert entry.lower_bounds.keys() == entry.upper_bounds.keys() == {1}
    assert entry.value_counts == {1: 1, 2: 1}


@pytest.mark.parametrize("kind", [pa.int64(), pa.decimal128(19, 0)])
def test_numbers_that_a_truncation_would_leave_are_refused(tmp_path, kind):
    schema = TWO.set(0, pa.field("id", kind))
    found = IcebergTable(TableAddress(NAME, properties=catalog_of(tmp_path)))
    found.create(schema, ["truncate(10, id)"])
    smallest = -(2**63) if kind == pa.int64() else Decimal(1 - 10**19)
    batch = pa.record_batch([pa.array([smallest], kind), pa.array(["a"])], schema=schema)
    target = found.load().target(1024 * 1024, "zstd")
    with pytest.raises(InputError, match="too small"):
        stage([batch], target, attempt_id=ATTEMPT, spark_partition=0)


def test_an_error_of_the_storage_can_be_retried_and_hides_credentials(target, tmp_path):
    where = tmp_path / "a file"
    where.write_text("")
    broken = replace(target, location=f"file://{where}", io={"s3.secret-access-key": "a file"})
    with pytest.raises(Retriable, match=r"writing .* failed") as caught:
        staged([batch(1)], broken)
    assert "secret" not in repr(broken)
    assert "'a file'" not in str(caught.value)


def test_partitions_have_a_file_each_while_their_rows_fit_into_memory(table, tmp_path, monkeypatch):
    monkeypatch.setattr("eos.delta.open_files._OPEN_FILES", 2)
    given = [batch(*range(50)), batch(*range(50, 99))]
    assert len(staged(given, table.load().target(2**20, "zstd"))) == 4
    for size in (1, 2000, 3000, 4000, 7000):
        monkeypatch.setattr("eos.delta.open_files._ROW_GROUP_BYTES", size)
        entries = staged(given, table.load().target(2**20, "zstd"))
        assert len(entries) > 4 or size > 1
        assert sum(one.records for one in entries) == 99
        assert len({one.path for one in entries}) == len(entries)
    rows = [one.as_py() for path in on_disk(tmp_path) for one in pq.read_table(path)["id"]]
    assert sorted(rows) == sorted([*range(99)] * 6)


def test_a_rare_partition_does_not_keep_the_rows_of_others_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("eos.delta.open_files._ROW_GROUP_BYTES", 256 * 1024)
    found = IcebergTable(TableAddress(NAME, properties=catalog_of(tmp_path)))
    found.create(TWO, ["value"])
    high = []

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, 400_000, 10_000):
            values = ["rare", *["often"] * 9_999]
            yield pa.record_batch([pa.array(range(start, start + 10_000)), values], schema=TWO)
            high.append(pa.total_allocated_bytes())

    assert len(staged(rows(), found.load().target(2**24, "zstd"))) == 2
    assert max(high) < 1.5 * high[4]


def test_rows_are_written_as_they_come(target, monkeypatch):
    """The rows of a task need not fit into memory."""
    monkeypatch.setattr("eos.delta.open_files._ROW_GROUP_BYTES", 64 * 1024)
    high = []

    def rows() -> Iterator[pa.RecordBatch]:
        for start in range(0, 200_000, 10_000):
            yield batch(*range(start, start + 10_000))
            high.append(pa.total_allocated_bytes())

    entries = staged(rows(), target)
    assert sum(one.records for one in entries) == 200_000
    assert max(high) < 1.5 * high[2]


def test_tables_in_s3_are_written_and_cleaned(server, bucket, where, tmp_path, monkeypatch):
    """The catalog's properties reach the tasks, and its secrets neither errors nor the log."""
    secrets = {
        "s3.endpoint": server,
        "s3.access-key-id": "somebody",
        "s3.secret-access-key": "hunter2hunter2",
        "s3.region": "us-east-1",
    }
    catalog = catalog_of(tmp_path) | {"warehouse": f"s3://{bucket[1]}/lake"} | secrets
    address = TableAddress(NAME, properties=catalog)
    IcebergTable(address).create(SCHEMA)

    def plan(begun):
        def write() -> list:
            part = begun()[0]
            rows = [pa.record_batch([pa.array(["a", "b"])], schema=SCHEMA)]
            found = IcebergTable(address).load().target(2**20, "snappy")
            return [stage(rows, found, attempt_id=part.attempt_id, spark_partition=0)]

        return write

    log = CommitLog.open(tmp_path / "log", "lake")
    participant = IcebergParticipant("lake", address)
    Committer(log, [participant]).run_epoch(BATCH, "a", plan)
    read = lambda: opened(catalog).scan().to_arrow()["value"].to_pylist()  # noqa: E731
    assert read() == ["a", "b"]
    assert "hunter2" not in "".join(str(record) for record in log.records())
    Committer(log, [participant]).run_epoch(BATCH, "b", plan)
    assert len(read()) == 4
    part = last_part(log)
    never = replace(part, version=9)
    assert participant.outcome(never, timeout_s=1).known is Known.UNKNOWN
    assert participant.abort(never, deadline_s=1, is_own=False).known is Known.ABORTED
    assert participant.outcome(never, timeout_s=1).known is Known.ABORTED


def opened(catalog: dict[str, str]) -> Table:
    return load_catalog("default", **catalog).load_table(NAME)


def last_part(log: CommitLog) -> IcebergPart:
    records: list[LogRecord] = log.records()
    (part,) = next(
        one for one in records if (one.epoch, one.state) == ("b", "PREPARED")
    ).participants
    assert isinstance(part, IcebergPart)
    return part
