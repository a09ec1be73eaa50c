"""History from a table, then the topic: each message once, without a gap."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from eos.client import PulsarClient
from eos.testing import PulsarStandalone
from tests.support.admin import create_partitioned

Archive = Callable[..., Path]

_CONFIGURED = {
    "deletionVectors": {"delta.enableDeletionVectors": "true"},
    "columnMapping": {"delta.columnMapping.mode": "name"},
}


@pytest.fixture
def archive(load, tmp_path: Path) -> Archive:
    """Appends the topic's current messages to a table; only rows that ``keep`` selects."""
    path = tmp_path / "past"

    def archive(keep: Callable[[pa.Table], Any] | None = None, **more: Any) -> Path:
        rows = load(metadata=True, **more).toArrow()
        write_deltalake(path, rows if keep is None else rows.filter(keep(rows)), mode="append")
        return path

    return archive


@pytest.fixture
def a_file_each(pulsar_standalone: PulsarStandalone) -> dict[str, Any]:
    """Options for one file of the history in each epoch."""
    admin_url = pulsar_standalone.admin_url
    return {"startingOffsets": None, "maxBytesPerTrigger": 1, "adminUrl": admin_url}


def values(frame) -> list[bytes]:
    return [bytes(row["value"]) for row in frame.collect()]


def flat(epochs: dict[int, list[bytes]]) -> list[bytes]:
    return [value for _, epoch in sorted(epochs.items()) for value in epoch]


def test_a_batch_reads_the_table_and_later_messages(load, send, archive):
    send(b"0", b"1")
    past = archive()
    send(b"2", b"3")
    assert values(load(history=past)) == [b"0", b"1", b"2", b"3"]


def test_a_stream_reads_the_table_and_then_the_topic(run, send, archive):
    send(b"0", b"1")
    past = archive()
    send(b"2")
    assert run(startingOffsets=None, history=past) == {0: [b"0", b"1"], 1: [b"2"]}
    send(b"3")
    assert run(startingOffsets=None, history=past) == {2: [b"3"]}


def test_history_is_divided_into_epochs_and_continues_after_a_restart(
    run, send, archive, a_file_each
):
    for n in range(3):
        send(b"%d" % n)
        past = archive(lambda rows, n=n: pc.equal(rows["value"], b"%d" % n))
    send(b"3")
    limited = a_file_each | {"history": past}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=1, **limited)
    # Later appends are in other versions than the query's.
    archive()
    assert run(**limited) == {1: [b"1"], 2: [b"2"], 3: [b"3"]}


def test_the_rest_of_a_partly_archived_entry_is_read(
    run, load, client: PulsarClient, name, archive
):
    with client.producer(name, create=True, linger_ms=60_000) as producer:
        for n in range(5):
            producer.send(b"%d" % n)
        producer.flush()
    past = archive(lambda rows: pc.less(rows["value"], b"2"))
    assert sorted(values(load(history=past))) == [b"%d" % n for n in range(5)]
    assert run(startingOffsets=None, history=past) == {0: [b"0", b"1"], 1: [b"2", b"3", b"4"]}


def test_each_partition_has_its_own_boundary(
    run, send, name, archive, pulsar_standalone, topic_admin
):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    send(b"a0", b"a1", topic=f"{name}-partition-0")
    send(b"b0", topic=f"{name}-partition-1")
    past = archive()
    send(b"b1", topic=f"{name}-partition-1")
    topic_admin("POST", "/partitions", 3)
    send(b"c0", topic=f"{name}-partition-2")
    found = run(startingOffsets=None, history=past)
    assert sorted(found[0]) == [b"a0", b"a1", b"b0"]
    assert sorted(found[1]) == [b"b1", b"c0"]


def test_a_topic_added_while_the_history_is_read_has_no_history(
    run, send, name, archive, a_file_each
):
    for n in range(2):
        send(b"a%d" % n)
        send(b"b%d" % n, topic=f"{name}-b")
    both = {"topic": None, "topics": f"{name},{name}-b"}
    for n in (b"0", b"1"):
        past = archive(lambda rows, n=n: pc.ends_with(rows["value"].cast(pa.string()), n), **both)
    limited = a_file_each | {"history": past}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=1, **limited)
    found = run(**limited, **both)
    assert found[1] == [b"a1"]
    assert sorted(value for epoch in found if epoch > 1 for value in found[epoch]) == [b"b0", b"b1"]


def test_a_history_with_partition_names_has_the_same_boundary(
    load, send, name, pulsar_standalone, tmp_path
):
    create_partitioned(pulsar_standalone.admin_url, name, 1)
    send(b"0", topic=f"{name}-partition-0")
    rows = load(metadata=True).toArrow()
    exact = pa.array([f"persistent://public/default/{name}-partition-0"])
    at = rows.column_names.index("__topic")
    write_deltalake(tmp_path / "past", rows.set_column(at, "__topic", exact))
    send(b"1", topic=f"{name}-partition-0")
    found = values(load("value binary", history=tmp_path / "past"))
    assert found == [b"0", b"1"]


def test_rows_of_other_topics_are_left_out(load, send, name, archive):
    send(b"mine")
    send(b"other", topic=f"{name}-other")
    past = archive(topic=None, topics=f"{name},{name}-other")
    send(b"new")
    send(b"new other", topic=f"{name}-other")
    assert values(load(history=past)) == [b"mine", b"new"]
    both = values(load(history=past, topic=None, topicsPattern=f"public/default/{name}.*"))
    assert sorted(both) == [b"mine", b"new", b"new other", b"other"]


def test_a_partitioned_table_with_missing_columns_is_read(load, send, tmp_path):
    send(b"0", b"1")
    # A copy: before PySpark 4.2 an empty array of texts has no offset, and deltalake panics.
    rows = load(metadata=True).toArrow().take([0, 1])
    day = pa.array(["a b", "c%d"])
    past = tmp_path / "by-day"
    write_deltalake(past, rows.append_column("day", day), partition_by=["day"])
    assert sorted(values(load(history=past))) == [b"0", b"1"]
    few = tmp_path / "few"
    write_deltalake(few, rows.select(["value", "__messageId"]))
    assert values(load(history=few)) == [b"0", b"1"]  # with one topic the column is not needed
    with pytest.raises(Exception, match="no column __key"):
        load(history=few, metadata=True).collect()
    without = tmp_path / "without"
    write_deltalake(without, rows.select(["value"]))
    with pytest.raises(Exception, match="no column __messageId"):
        load(history=without).collect()


@pytest.mark.parametrize("name", ["Value", "payload"])
def test_a_table_with_other_column_names_is_refused(load, send, tmp_path, name):
    send(b"0")
    rows = load(metadata=True).toArrow()
    past = tmp_path / "past"
    write_deltalake(past, rows.rename_columns([name, *rows.column_names[1:]]))
    with pytest.raises(Exception, match=f"no column value; it has {name}"):
        load(history=past).collect()


def test_columns_added_after_the_table_are_null(load, send, tmp_path):
    definition = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "old", "type": "int"}, {"name": "new", "type": "int", "default": 7}],
    }
    past = tmp_path / "past"
    send(b'{"old": 1}')
    ids = load("__messageId binary, __topic string").toArrow()
    write_deltalake(past, ids.append_column("old", pa.array([1], pa.int32())))
    send(b'{"old": 2, "new": 3}')
    rows = load(history=past, schema="json", schemaDefinition=json.dumps(definition)).collect()
    assert [(row.old, row.new) for row in rows] == [(1, None), (2, 3)]


def test_a_column_of_another_type_is_refused_before_reading(load, send, tmp_path):
    send(b"0")
    rows = load(metadata=True).toArrow()
    past = tmp_path / "past"
    value, time = rows.column_names.index("value"), rows.column_names.index("__publishTime")
    as_text = rows.set_column(value, "value", rows["value"].cast(pa.string()))
    write_deltalake(past, as_text)
    said = r"column value of .* is string, but that of the topic binary.* or read the topic with"
    with pytest.raises(Exception, match=said):
        load(history=past).collect()
    # This column does not depend on the topic's schema.
    as_number = rows.set_column(time, "__publishTime", rows["__publishTime"].cast(pa.int64()))
    write_deltalake(past, as_number, mode="overwrite", schema_mode="overwrite")
    said = r"column __publishTime of .* is bigint, .* timestamp.* Cast the table's column\."
    with pytest.raises(Exception, match=said) as refused:
        load(history=past, metadata=True).collect()
    assert "your own schema" not in str(refused.value)


def test_a_gap_between_table_and_topic_is_an_error_before_reading(run, send, archive, topic_admin):
    send(b"0")
    past = archive()
    send(b"1")
    topic_admin("PUT", "/unload")
    send(b"2")
    topic_admin("PUT", "/unload")
    send(b"3")  # the ledgers before it are not kept
    topic_admin("POST", "/trim")
    with pytest.raises(Exception, match="no longer exist"):
        run(startingOffsets=None, history=past)
    found = run(startingOffsets=None, history=past, failOnDataLoss=False)
    assert found[0] == [b"0"]
    assert found[1][-1:] == [b"3"]


def test_messages_after_the_boundary_are_kept_while_the_history_is_read(
    run, send, archive, topic_admin
):
    send(b"0")
    past = archive()
    send(b"1")
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, startingOffsets=None, history=past)
    for n in (2, 3):
        topic_admin("PUT", "/unload")
        send(b"%d" % n)
    topic_admin("POST", "/trim")
    assert flat(run(startingOffsets=None, history=past)) == [b"0", b"1", b"2", b"3"]


def test_a_recreated_topic_is_a_loss(load, send, archive, topic_admin):
    for _ in range(3):
        send(b"0")
    past = archive()
    topic_admin("DELETE", "?force=true")
    send(b"1")
    with pytest.raises(Exception, match=r"recreated|no longer exist"):
        load(history=past).collect()


def test_a_query_keeps_its_history(run, send, archive, tmp_path):
    send(b"0")
    past = archive()
    run(startingOffsets=None, history=past)
    other = tmp_path / "other"
    shutil.copytree(past, other)
    with pytest.raises(Exception, match="was started with the history at"):
        run(startingOffsets=None, history=other)
    send(b"1")
    assert run(startingOffsets=None) == {1: [b"1"]}  # all of it is read, so it is no longer needed


def test_a_history_can_not_be_added_to_a_query(run, send, archive):
    send(b"0")
    run()
    with pytest.raises(Exception, match="was started without a history"):
        run(startingOffsets=None, history=archive())


def test_vacuumed_files_are_a_loss(run, send, archive, a_file_each):
    for n in range(2):
        send(b"%d" % n)
        past = archive(lambda rows, n=n: pc.equal(rows["value"], b"%d" % n))
    send(b"2")
    limited = a_file_each | {"history": past}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, **limited)
    table = DeltaTable(past)
    table.optimize.compact()
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(Exception, match="was the table vacuumed"):
        run(**limited)
    assert flat(run(**limited, failOnDataLoss=False)) == [b"2"]


def test_a_recreated_table_is_a_loss(run, send, archive, a_file_each):
    for n in range(2):
        send(b"%d" % n)
        past = archive(lambda rows, n=n: pc.equal(rows["value"], b"%d" % n))
    send(b"2")
    limited = a_file_each | {"history": past}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=0, **limited)
    shutil.rmtree(past)
    for _ in range(2):  # its newest version has the old one's number
        archive()
    with pytest.raises(Exception, match="no longer exists"):
        run(**limited)
    assert flat(run(**limited, failOnDataLoss=False)) == [b"2"]


def test_an_empty_table_has_no_messages(load, send, archive, client, name):
    client.create_unpartitioned(name)
    past = archive()
    send(b"0")
    assert values(load(history=past)) == [b"0"]


def test_missing_and_unsupported_tables_are_refused(spark, load, send, archive, tmp_path):
    send(b"0")
    with pytest.raises(Exception, match="has no Delta table"):
        load(history=tmp_path / "nothing").collect()
    past = archive()
    with pytest.raises(Exception, match=r"has no Delta table with version 7"):
        load(history=past, historyVersion=7).collect()
    assert values(load(history=past, historyVersion=0)) == [b"0"]
    for name, needs in (
        ("deletionVectors", "deletionVectors"),
        ("columnMapping", "column mapping"),
    ):
        other = tmp_path / name
        DeltaTable.create(other, schema=DeltaTable(past).schema(), configuration=_CONFIGURED[name])
        with pytest.raises(Exception, match=needs):
            load(history=other).collect()


def test_a_history_without_a_subscription_warns(run, send, archive, caplog):
    send(b"0")
    caplog.set_level(logging.WARNING)
    found = run(startingOffsets=None, history=archive(), durableSubscription=False)
    assert found == {0: [b"0"]}
