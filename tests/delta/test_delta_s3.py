"""A table in an object store: a real S3 server, options as ``deltalake`` takes them."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.delta._audit import open_audit
from eos.delta.part import DeltaPart
from eos.delta.participant import DeltaParticipant
from eos.delta.staging import StagingTarget, stage
from eos.delta.target_table import TargetTable
from eos.errors import CommitUnconfirmed, ConfigurationError, Retriable
from eos.participant import Audited, Kept
from eos.protocol import BATCH
from tests.commit_log.test_s3 import keys
from tests.delta.tables import SCHEMA, batch, commit, ids, made, numbered, rows, staged

PARTITIONED = pa.schema([*SCHEMA, ("p", pa.string())])


@pytest.fixture
def table(where):
    return made(f"{where[0]}/a table", options=where[1])


def parquet(bucket) -> list[str]:
    return [key for key in keys(bucket) if key.endswith(".parquet")]


def test_rows_with_any_partition_value_are_staged_committed_and_read(where):
    values = ["a b", "é/ü", "50%", "x=1&y?#", "", None, "..", "a+b", "~" * 300]
    given = [{"id": n, "name": "x", "p": value} for n, value in enumerate(values)]
    table = made(f"{where[0]}/t", PARTITIONED, ["p"], where[1])
    table.check_writable()
    files, schema = staged(table, batch(*given, schema=PARTITIONED))
    assert table.missing(files) == []
    assert ids(table) == []
    commit(table, files, 1, schema)
    commit(table, files, 1, schema)
    assert [row["p"] for row in rows(table)] == [value or None for value in values]


@pytest.mark.parametrize("is_local", [True, False])
def test_an_audit_finds_the_files_of_any_partition_and_what_is_missing(where, tmp_path, is_local):
    values = ["a b", "é/ü", "50%", "x=1&y?#", "", None, "..", "a+b", "~" * 300]
    given = [{"id": n, "name": "x", "p": value} for n, value in enumerate(values)]
    place = (tmp_path / "a table", None) if is_local else (f"{where[0]}/a table", where[1])
    table = made(place[0], PARTITIONED, ["p"], place[1])
    files, schema = staged(table, batch(*given, schema=PARTITIONED))
    commit(table, files, 1, schema)
    part = DeltaPart(
        table=table.folder.uri, app_id="a", version=1, table_id=table.table_id, files=files
    )
    assert open_audit(table.folder).committed([part]) == [Audited(Kept.WHOLE)]
    table.folder.delete(files[3].path)
    (lost,) = open_audit(table.folder).committed([part])
    assert (lost.kept, f"{files[3].path} is not in the storage" in lost.what) == (Kept.LOST, True)


def test_of_many_concurrent_commits_one_succeeds(table):
    staged_files = [staged(table, numbered(0, 2)) for _ in range(4)]
    barrier = threading.Barrier(4)
    failed = []

    def work(files, schema):
        mine = TargetTable(table.folder.uri, table.folder.storage_options)
        barrier.wait()
        try:
            commit(mine, files, 1, schema)
        except CommitUnconfirmed as error:
            failed.append(str(error))

    threads = [threading.Thread(target=work, args=each) for each in staged_files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) < 4
    assert table.committed_version("eos/orders") == 1
    assert ids(table) == [0, 1]


def test_an_error_of_the_rows_leaves_no_files(table, bucket):
    def failing():
        yield numbered(0, 5)
        raise ValueError("of the user")

    target = StagingTarget(
        table.folder.uri, table.schema, (), table.folder.storage_options, file_bytes=1
    )
    with pytest.raises(ValueError, match="of the user"):
        stage(failing(), target, attempt_id="a", spark_partition=0)
    assert parquet(bucket) == []


def test_files_in_s3_are_found_missing_or_discarded(table, bucket):
    files, _ = staged(table, numbered(0, 1), numbered(1, 1), file_bytes=1)
    store, name = bucket
    store.delete_object(Bucket=name, Key=f"eos/a table/{files[0].path}")
    assert table.missing(files) == [files[0]]
    table.discard(files)
    assert parquet(bucket) == []
    # The storage's client leaves an empty object where the folder was, which is harmless.
    later, schema = staged(table, numbered(7, 1))
    commit(table, later, 1, schema)
    delta = DeltaTable(table.folder.uri, storage_options=table.folder.storage_options)
    unlimited = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    delta.vacuum(**unlimited, full=True)
    assert ids(table) == [7]


def test_the_secret_is_in_no_error(where):
    nowhere = "s3://no-such-bucket-here/t"
    with pytest.raises(Retriable) as caught:
        made(nowhere, options=where[1])
    target = StagingTarget(nowhere, SCHEMA, (), where[1])
    with pytest.raises(Retriable) as also:
        stage([numbered(0, 1)], target, attempt_id="a", spark_partition=0)
    assert "hunter2" not in f"{caught.value}{also.value}"
    assert caught.value.__cause__ is None
    assert also.value.__cause__ is None


def test_one_table_by_two_names_is_refused_before_the_claim(where, tmp_path):
    """The second output would find the first one's version, and take it for its own."""
    uri = made(f"{where[0]}/t", options=where[1]).folder.uri
    names = [uri, uri.replace("s3://", "s3a://")]
    log = CommitLog.open(tmp_path / "log", "s")
    committer = Committer(log, [DeltaParticipant("s", name, where[1]) for name in names])
    with pytest.raises(ConfigurationError, match=r"Two outputs write to the same target.*s3a://"):
        committer.run_epoch(BATCH, "a", lambda _: pytest.fail("it must not begin"))
    assert not log.history.last_claim
