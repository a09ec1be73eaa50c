"""Streams from a real broker: each record once, also over restarts and replays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.admin import call, create_partitioned


def test_a_restart_continues_where_the_query_stopped(run, send):
    send(b"0", b"1")
    assert run() == {0: [b"0", b"1"]}
    assert run() == {}
    send(b"2")
    assert run() == {1: [b"2"]}


def test_a_first_epoch_that_runs_again_reads_the_same(run, send):
    send(b"0", b"1")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0)
    send(b"2")
    assert run() == {0: [b"0", b"1"], 1: [b"2"]}


def test_latest_is_fixed_when_the_query_begins(run, send):
    send(b"before")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, startingOffsets="latest")
    send(b"0", b"1")
    assert run(startingOffsets="latest") == {0: [], 1: [b"0", b"1"]}
    assert run(startingOffsets="latest") == {}


def test_a_later_epoch_that_runs_again_reads_the_same_over_an_unload(
    run, send, name, pulsar_standalone
):
    send(b"0")
    run()
    send(b"1", b"2")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=1)
    call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    send(b"3")
    assert run() == {1: [b"1", b"2"], 2: [b"3"]}


def test_only_committed_messages_are_read(run, send, client, name):
    send(b"0")
    producer = client.entry_producer(name)
    open_txn, aborted = client.transaction(), client.transaction()
    producer.send(b"aborted", txn=aborted).result(timeout=20)
    aborted.abort()
    producer.send(b"open", txn=open_txn).result(timeout=20)
    producer.send(b"behind").result(timeout=20)
    assert run() == {0: [b"0"]}
    assert run() == {}
    open_txn.commit()
    assert run() == {1: [b"open", b"behind"]}


def test_new_partitions_are_found_and_read_from_their_beginning(run, send, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 1)
    send(b"0", topic=f"{name}-partition-0")
    assert run() == {0: [b"0"]}
    admin = f"/v2/persistent/public/default/{name}/partitions"
    call(pulsar_standalone.admin_url, "POST", admin, 2)
    send(b"1", topic=f"{name}-partition-1")
    assert run() == {1: [b"1"]}


def test_a_running_query_reads_new_messages(spark, options, send, client, name, tmp_path):
    client.create_unpartitioned(name)
    seen: list[bytes] = []
    query = (
        spark.readStream.format("pulsar")
        .options(**options, startingOffsets="earliest")
        .load()
        .writeStream.foreachBatch(lambda df, _: seen.extend(row["value"] for row in df.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for n in range(3):
            send(b"%d" % n)
            query.processAllAvailable()
        assert seen == [b"0", b"1", b"2"]
    finally:
        query.stop()


def test_a_checkpoint_of_another_source_is_refused(run, send, tmp_path):
    send(b"0")
    run()
    offsets = tmp_path / "checkpoint" / "offsets"
    for path in offsets.iterdir():
        lines = path.read_text().splitlines() if not path.name.endswith(".crc") else None
        if lines is not None:
            path.write_text("\n".join([*lines[:-1], '{"orders": 17}']))
    for crc in offsets.glob(".*.crc"):
        crc.unlink()
    shutil.rmtree(Path(tmp_path / "checkpoint" / "commits"))
    with pytest.raises(Exception, match="invalid offset"):
        run()
