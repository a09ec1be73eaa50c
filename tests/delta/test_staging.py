"""Staging: rows become files that readers don't see, or no file is left."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eos import _storage as storage
from eos.delta import open_files
from eos.delta.folder import Folder
from eos.delta.staging import StagingTarget, stage
from eos.errors import ConfigurationError, InputError, Retriable
from tests.delta.tables import SCHEMA, appended, batch, ids, made, numbered, staged
from tests.support.processes import ROOT


@pytest.fixture
def table(tmp_path):
    return made(tmp_path / "a table")


def parquet(table) -> set[str]:
    root = table.folder.local
    return {path.relative_to(root).as_posix() for path in root.rglob("*.parquet")}


def test_staged_files_are_complete_and_invisible(table):
    files, _ = staged(table, numbered(0, 3), numbered(3, 4))
    assert parquet(table) == {file.path for file in files}
    assert sum(file.records for file in files) == 7
    assert table.missing(files) == []
    assert ids(table) == []


def test_names_contain_attempt_and_partition_and_are_unique(table):
    first, _ = staged(table, numbered(0, 1))
    again, _ = staged(table, numbered(0, 1))
    assert first[0].path != again[0].path
    assert first[0].path.startswith("eos-run-1-00007-")


def test_without_rows_there_is_no_file(table):
    assert staged(table, numbered(0, 0))[0] == ()
    assert parquet(table) == set()


def test_a_file_that_is_large_enough_is_closed_and_the_next_one_begun(table):
    files, _ = staged(table, *(numbered(n * 500, 500) for n in range(8)), file_bytes=10_000)
    assert len(files) > 2
    read = [row for file in files for row in pq.read_table(table.folder.local / file.path)["id"]]
    assert [value.as_py() for value in read] == list(range(4000))


def test_small_batches_share_a_row_group(table):
    files, _ = staged(table, *(numbered(n, 1) for n in range(50)))
    assert pq.ParquetFile(table.folder.local / files[0].path).num_row_groups == 1


@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_the_requested_compression_is_used(table, compression):
    files, _ = staged(table, numbered(0, 3), compression=compression)
    metadata = pq.ParquetFile(table.folder.local / files[0].path).metadata
    assert metadata.row_group(0).column(0).compression == compression.upper()


def test_only_columns_whose_values_repeat_have_a_dictionary(tmp_path):
    numbers = range(1_000)
    columns = {
        "unique": pa.array(map(str, numbers)),
        "repeats": pa.array([str(n % 10) for n in numbers]),
        "empty": pa.nulls(1_000, pa.int64()),
        "s": pa.array([{"unique": n, "repeats": n % 10} for n in numbers]),
        "l": pa.array([[n, n + 1] for n in numbers]),
        "m": pa.array(
            [[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())
        ),
    }  # fmt: skip
    rows = pa.record_batch(columns)
    table = made(tmp_path / "t", rows.schema)
    files, _ = staged(table, rows)
    group = pq.read_metadata(table.folder.local / files[0].path).row_group(0)
    found = [group.column(n) for n in range(group.num_columns)]
    assert {one.path_in_schema for one in found if "RLE_DICTIONARY" in one.encodings} == {
        "repeats", "empty", "s.repeats", "l.list.element", "m.key_value.key",
    }  # fmt: skip
    assert pq.read_table(table.folder.local / files[0].path).to_batches()[0].equals(rows)


def test_more_partitions_than_open_files_lose_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "_OPEN_FILES", 2)
    table = made(tmp_path / "t", SCHEMA, ["name"])
    batches = [numbered(0, 9), numbered(0, 9)]
    for row_group_bytes in (2**20, 2000, 1):
        monkeypatch.setattr(open_files, "_ROW_GROUP_BYTES", row_group_bytes)
        files, _ = staged(table, *batches)
        # Files beyond one a partition only where the rows don't fit into memory.
        assert (len(files) == 9) is (row_group_bytes == 2**20)
        assert sum(file.records for file in files) == 18
        assert {file.partition_values["name"] for file in files} == {f"row {n}" for n in range(9)}


def test_a_text_like_the_folder_of_a_long_one_keeps_its_own_partition(tmp_path):
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = made(tmp_path / "t", schema, ["p"])
    (first,), _ = staged(table, pa.record_batch({"id": [1], "p": ["x" * 200]}, schema))
    like = unquote(first.path.split("/")[0]).removeprefix("p=")
    rows = [{"id": 1, "p": "x" * 200}, {"id": 2, "p": like}]
    appended(table, pa.RecordBatch.from_pylist(rows, schema))
    found = DeltaTable(table.folder.uri).to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == rows


def test_a_rare_partition_does_not_keep_the_rows_of_others_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(open_files, "_ROW_GROUP_BYTES", 256 * 1024)
    table = made(tmp_path / "t", SCHEMA, ["name"])
    high = []

    def rows():
        for start in range(0, 400_000, 10_000):
            names = ["rare", *["often"] * 9_999]
            yield pa.record_batch({"id": pa.array(range(start, start + 10_000)), "name": names})
            high.append(pa.total_allocated_bytes())

    target = StagingTarget(table.folder.uri, table.schema, ("name",))
    assert len(stage(rows(), target, attempt_id="a", spark_partition=0)) == 2
    # From batch 20 on Parquet's own memory stays as it is.
    assert high[-1] < 1.2 * high[20]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sizes=st.lists(st.integers(0, 300), max_size=6), file_bytes=st.integers(1, 20_000))
def test_every_row_is_in_exactly_one_file(table, sizes, file_bytes):
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    batches = [numbered(start, size) for start, size in zip(starts, sizes, strict=True)]
    files, _ = staged(table, numbered(0, 0), *batches, file_bytes=file_bytes)
    read = [pq.read_table(table.folder.local / file.path) for file in files]
    assert [each.num_rows for each in read] == [file.records for file in files]
    found = [number.as_py() for each in read for number in each["id"]]
    assert found == list(range(sum(sizes)))


def failing(error, *batches):
    yield from batches
    raise error


@pytest.mark.parametrize("error", [ValueError("of the user"), KeyboardInterrupt()], ids=repr)
def test_an_error_of_the_rows_is_raised_unchanged_and_no_file_is_left(tmp_path, error):
    table = made(tmp_path / "t", SCHEMA, ["name"])
    target = StagingTarget(table.folder.uri, table.schema, ("name",), file_bytes=10)
    with pytest.raises(type(error)) as caught:
        stage(failing(error, numbered(0, 5)), target, attempt_id="a", spark_partition=0)
    assert caught.value is error
    assert parquet(table) == set()


def test_rows_that_do_not_fit_are_refused_and_no_file_is_left(table):
    target = StagingTarget(table.folder.uri, table.schema)
    wrong = pa.RecordBatch.from_pylist([{"id": "x"}])
    with pytest.raises(InputError, match="id is int64 in the table, and string here"):
        stage([numbered(0, 5), wrong], target, attempt_id="a", spark_partition=0)
    assert parquet(table) == set()


def test_a_disk_that_does_not_confirm_is_an_error_and_no_file_is_left(table, monkeypatch):
    synced = []

    def refuse(path):
        synced.append(path)
        raise storage.NotDurable("no")

    target = StagingTarget(table.folder.uri, table.schema)
    monkeypatch.setattr(storage, "_sync_if_present", refuse)
    with pytest.raises(Retriable, match="durable"):
        stage([numbered(0, 5)], target, attempt_id="a", spark_partition=0)
    assert synced
    assert parquet(table) == set()


def test_files_and_all_their_folders_are_flushed_before_they_are_reported(tmp_path, monkeypatch):
    schema = pa.schema([*SCHEMA, ("p", pa.int32()), ("q", pa.int32())])
    table = made(tmp_path / "t", schema, ["p", "q"])
    synced: list[Path] = []
    monkeypatch.setattr(storage, "_sync_if_present", synced.append)
    files, _ = staged(table, batch({"id": 1, "p": 1, "q": 2}, schema=schema))
    path = table.folder.local / files[0].path
    assert {path, *list(path.parents)[:3]} <= set(synced)


def test_a_failing_storage_is_a_retriable_error(tmp_path):
    (tmp_path / "t").write_text("a file in the way")
    target = StagingTarget(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(Retriable, match="writing eos-a"):
        stage([numbered(0, 1)], target, attempt_id="a", spark_partition=0)


@pytest.mark.parametrize(
    "uri",
    ["relative", "gs://bucket/x", "s3://", "s3://a:secret9@bucket/x", "s3://b/x?k=secret9", "a\0b"],
)
def test_an_invalid_location_is_refused_and_secrets_are_not_shown(uri):
    with pytest.raises(ConfigurationError) as caught:
        Folder(uri)
    assert "secret9" not in str(caught.value)


def test_an_invalid_attempt_id_is_refused(table):
    target = StagingTarget(table.folder.uri, table.schema)
    with pytest.raises(ConfigurationError, match="attempt_id"):
        stage([], target, attempt_id="../x", spark_partition=0)


def test_a_target_can_be_pickled_and_shows_no_secret():
    target = StagingTarget("s3://b/t", SCHEMA, ("id",), {"AWS_SECRET_ACCESS_KEY": "hunter2"})
    assert pickle.loads(pickle.dumps(target)) == target
    assert "hunter2" not in repr(target)
    assert "hunter2" not in repr(Folder(target.uri, target.storage_options))


def test_a_secret_in_an_error_of_the_storage_is_not_shown():
    folder = Folder("s3://b/t", {"AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu"})
    with pytest.raises(Retriable, match=r"no \*\*\* in eu") as caught, folder.failures("writing"):
        raise OSError("no hunter2 in eu")
    assert caught.value.__cause__ is None


def test_executors_do_not_need_deltalake_or_the_drivers_packages():
    code = (
        "import sys\n"
        "for name in ('deltalake', 'pydantic', 'tenacity', 'typer', 'rich'):"
        " sys.modules[name] = None\n"
        "import eos.delta.files, eos.delta.staging"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)
