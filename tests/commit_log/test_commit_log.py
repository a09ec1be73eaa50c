"""The commit log as its owner sees it: open, append, read, list."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from eos.commit_log import SCHEMA, CommitLog, list_sinks
from eos.commit_log.location import Location
from eos.errors import CommitLogError, ConfigurationError
from eos.protocol import State
from tests.protocol.epochs import (
    EMPTY,
    EXPIRED,
    FAILED,
    FIGURES,
    QUERY,
    claim,
    committed_epoch,
    opened,
    step,
)


def test_appended_records_are_read_back_unchanged(root):
    log = CommitLog.open(root, "orders")
    claimed = log.append(claim())
    drafts = committed_epoch(claimed, "0")
    lost = opened(claimed, "1")
    drafts += [lost, step(lost, State.PREPARED, claimed)]
    drafts.append(step(drafts[-1], State.ABORTED, claimed, EXPIRED))
    for reason, end in ((FAILED, State.ABORTED), (EMPTY, State.EMPTY)):
        again = opened(claimed, "1", attempt=3 if reason is EMPTY else 2)
        aborting = step(again, State.ABORTING, claimed, reason)
        drafts += [again, aborting, step(aborting, end, claimed)]
    drafts.append(opened(claimed, "Schlüssel 🗝 'x'", query_id="batch"))
    written = [claimed, *(log.append(draft) for draft in drafts)]
    assert [record.seq for record in written] == list(range(1, 15))

    again = CommitLog.open(root, "orders")
    assert again.records() == written
    assert vars(again.history) == vars(log.history)
    assert again.log_table_id == log.log_table_id


def test_the_log_assigns_seq_and_time(root):
    moments = iter([datetime(2026, 11, 20, 12, 0, 0, 1, tzinfo=UTC) + timedelta(days=-1)] * 2)
    log = CommitLog.open(root, "orders", clock=lambda: next(moments))
    record = log.append(claim())
    assert (record.seq, record.written_at) == (1, datetime(2026, 11, 19, 12, 0, 0, 1, tzinfo=UTC))
    assert log.history.last == record


def test_a_record_that_breaks_a_rule_is_not_written(log):
    with pytest.raises(CommitLogError, match="after no record comes FAILED, OPEN"):
        log.append(step(opened(claim(), "2"), State.PREPARED, claim()))
    assert log.history.last_seq == 7
    assert len(log.records()) == 7


def test_a_log_continues_after_a_restart(root, log):
    restarted = CommitLog.open(root, "orders")
    claimed = restarted.append(claim("run-2"))
    assert claimed.seq == 8
    assert restarted.append(opened(claimed, "2")).seq == 9


def test_refresh_shows_what_another_driver_wrote(root, log):
    watcher = CommitLog.open_read_only(root, "orders")
    log.append(opened(log.history.last_claim, "2"))
    assert watcher.history.last_seq == 7
    watcher.refresh()
    assert watcher.history.newest(QUERY, "2").state is State.OPEN


def test_a_read_only_log_appends_nothing(root, log):
    watcher = CommitLog.open_read_only(root, "orders")
    with pytest.raises(CommitLogError, match="read only"):
        watcher.append(claim("run-2"))
    assert len(log.records()) == 7


def test_opening_to_read_creates_nothing(root):
    with pytest.raises(ConfigurationError, match="does not exist"):
        CommitLog.open_read_only(root, "orders")
    assert not root.exists()


def test_new_folders_are_private_to_their_owner(root):
    before = os.umask(0)
    try:
        CommitLog.open(root, "orders")
    finally:
        os.umask(before)
    for folder in (root, root / "orders"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_an_existing_folder_keeps_its_mode(root):
    root.mkdir(mode=0o750)
    root.chmod(0o750)
    CommitLog.open(root, "orders")
    assert stat.S_IMODE(root.stat().st_mode) == 0o750


def test_a_root_that_is_a_file_is_an_error_that_names_it(root):
    root.write_text("")
    with pytest.raises(CommitLogError, match=r"commit log/orders can't be created"):
        CommitLog.open(root, "orders")


def test_a_file_url_is_the_folder_that_it_names(root, log):
    assert CommitLog.open_read_only(root.as_uri(), "orders").history.last_seq == 7


def test_each_sink_has_its_own_log(root, log):
    other = CommitLog.open(root, "a.b-c_1")
    other.append(claim(sink_id="a.b-c_1"))
    (root / "not a sink").mkdir()
    (root / "empty").mkdir()
    (root / "file").touch()
    assert list_sinks(root) == ["a.b-c_1", "orders"]
    assert other.log_table_id != log.log_table_id


def test_a_missing_root_has_no_sinks(root):
    assert list_sinks(root) == []


@pytest.mark.parametrize("sink_id", ["", "..", "../orders", "a/b", ".hidden", "x" * 101])
def test_a_sink_id_never_leaves_the_root(root, sink_id):
    with pytest.raises(ConfigurationError, match="sink_id"):
        CommitLog.open(root, sink_id)


@pytest.mark.parametrize("url", ["s3://key:hunter2@bucket/x", "s3://bucket/x?token=hunter2"])
def test_credentials_in_the_url_are_refused_and_not_repeated(url):
    with pytest.raises(ConfigurationError) as caught:
        CommitLog.open(url, "orders")
    assert "hunter2" not in str(caught.value)


def test_storage_options_are_never_shown():
    location = Location("s3://bucket/eos", "orders", {"aws_secret_access_key": "hunter2"})
    shown = f"{location!r} {location.uri} {location.clean(RuntimeError('got hunter2, sorry'))}"
    assert shown == "Location('s3://bucket/eos/orders') s3://bucket/eos/orders got ***, sorry"
    assert location.cause(RuntimeError("hunter2")) is None


def test_sql_reads_the_log_and_finds_checksums_by_their_number(root, log):
    query = QueryBuilder().register("log", DeltaTable(root / "orders"))

    def rows(sql):
        return pa.table(query.execute(sql).read_all()).to_pylist()

    assert rows("select sum(records) as n from log where state = 'COMMITTED'") == [{"n": 8}]
    assert rows("select seq from log where checksum = 2 and state = 'PREPARED' order by seq") == [
        {"seq": 3},
        {"seq": 6},
    ]
    biggest = "select distinct p['topic'] as topic from (select unnest(partitions) as p from log)"
    assert rows(f"{biggest} where p['checksum'] = 18446744073709551615") == [
        {"topic": FIGURES[0].topic}
    ]


def test_a_checksum_above_two_to_the_63_is_found_by_sql(root):
    log = CommitLog.open(root, "orders")
    claimed = log.append(claim())
    first = log.append(opened(claimed))
    log.append(step(first, State.PREPARED, claimed, partitions=FIGURES[:1]))
    query = QueryBuilder().register("log", DeltaTable(root / "orders"))
    sql = "select seq from log where checksum > 18446744073709551614"
    assert pa.table(query.execute(sql).read_all()).to_pylist() == [{"seq": 3}]
    assert "checksum" not in (root / "orders" / "_delta_log" / f"{3:020}.json").read_text()


def test_any_parquet_reader_reads_the_log(root, log):
    files = [pq.read_table(path) for path in (root / "orders").glob("*.parquet")]
    table = pa.concat_tables(files).sort_by("seq")
    assert table.column_names == SCHEMA.names
    assert table["seq"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    assert str(table.schema.field("checksum").type) == "decimal128(20, 0)"


@pytest.mark.slow
def test_a_process_that_read_the_log_exits_cleanly(root, log):
    code = (
        "import sys; from eos.commit_log import CommitLog\n"
        "for _ in range(3): CommitLog.open(sys.argv[1], 'orders').records()"
    )
    for _ in range(6):
        done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True)
        assert done.returncode == 0, done.stderr
