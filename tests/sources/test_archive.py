"""An archive has each message once, and all up to its places; judged by deltalake and by
``pulsar-client``."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from pulsar.schema import AvroSchema
from pyspark.errors import AnalysisException

from eos.client import PulsarClient, TopicBounds
from eos.errors import (
    CommitUnconfirmed,
    ConfigurationError,
    ConsumerBusy,
    DataLost,
    Fenced,
    IncompatibleSchema,
    Retriable,
)
from eos.sources.archive import Archive
from eos.testing import PulsarStandalone
from tests.commit_log.test_s3 import bucket, server, where
from tests.support.admin import call, create_partitioned
from tests.support.judge import drain, quiet_client

__all__ = ["bucket", "server", "where"]

Opened = Callable[..., Archive]


@pytest.fixture
def opened(pulsar_standalone: PulsarStandalone, name: str, tmp_path: Path) -> Opened:
    """Opens an archive of this test's topic."""

    def opened(table: str = "past", part_bytes: int = 2**29, **more: str) -> Archive:
        options = {"serviceUrl": pulsar_standalone.service_url, "topic": name, **more}
        return Archive(options, str(tmp_path / table), part_bytes=part_bytes)

    return opened


def run(archive: Archive) -> int:
    """Archive what there is; return the number of commits."""
    with archive:
        archive.limit()
        commits = 0
        while archive.add() is not None:
            commits += 1
            assert commits < 50, "it makes no progress"
        return commits


def rows(folder: Path) -> pa.Table:
    """The table's rows in the order of the topic, by deltalake."""
    found = pa.table(DeltaTable(folder / "past").to_pyarrow_table())
    order = ["__partition", "__ledger", "__entry", "__messageId"]
    return found.sort_by([(name, "ascending") for name in order])


def values(folder: Path) -> list[bytes]:
    return rows(folder)["value"].to_pylist()


def batches(client: PulsarClient, topic: str, entries: range, *, per_entry: int = 10) -> None:
    """Send entries of several messages."""
    with client.producer(
        topic, create="-partition-" not in topic, linger_ms=60_000, max_batch_messages=per_entry
    ) as producer:
        for number in range(entries.start * per_entry, entries.stop * per_entry):
            producer.send(b"%d" % number, key="k" if number % 3 else None)
        producer.flush()


def test_all_messages_come_once_in_several_runs_and_commits(
    opened, client, name, tmp_path, pulsar_standalone
):
    batches(client, name, range(5))
    assert run(opened()) == 1
    assert run(opened()) == 0
    batches(client, name, range(5, 12))
    # A commit ends between two entries, however small it is.
    assert run(opened(part_bytes=1)) == 7
    found = rows(tmp_path)
    seen = drain(pulsar_standalone.service_url, name)
    assert found["value"].to_pylist() == [one.value for one in seen]
    assert found["__key"].to_pylist() == [one.key.encode() or None for one in seen]
    assert list(zip(*(found[c].to_pylist() for c in ("__ledger", "__entry")), strict=True)) == [
        one.position[:2] for one in seen
    ]


def test_nothing_after_an_open_transaction_is_archived_before_its_end(
    opened, client, name, tmp_path
):
    batches(client, name, range(2))
    txn = client.transaction(timeout_s=60)
    with client.producer(name) as producer:
        producer.send(b"in", txn=txn)
    batches(client, name, range(2, 4))
    run(opened())
    assert len(values(tmp_path)) == 20
    txn.abort()
    run(opened())
    assert values(tmp_path) == [b"%d" % number for number in range(40)]


def test_partitions_keep_their_own_places(opened, client, name, tmp_path, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    batches(client, f"{name}-partition-0", range(3))
    assert run(opened()) == 1
    batches(client, f"{name}-partition-1", range(4))
    batches(client, f"{name}-partition-0", range(3, 5))
    assert run(opened(part_bytes=200)) > 2
    found = rows(tmp_path)
    for index, count in ((0, 50), (1, 40)):
        mine = found.filter(pa.compute.equal(found["__partition"], index))
        assert mine["value"].to_pylist() == [b"%d" % number for number in range(count)]


def test_an_archive_in_s3_is_the_same(client, name, where, monkeypatch, pulsar_standalone):
    url, keys = where
    for key, value in keys.items():
        monkeypatch.setenv(key, value)
    options = {"serviceUrl": pulsar_standalone.service_url, "topic": name}
    for entries in (range(3), range(3, 5)):
        batches(client, name, entries)
        assert run(Archive(options, f"{url}/past")) == 1
    table = DeltaTable(f"{url}/past", storage_options=keys)
    found = {one.decode() for one in table.to_pyarrow_table()["value"].to_pylist()}
    assert found == {str(number) for number in range(50)}
    with Archive(options, f"{url}/past") as one:
        assert [problem.is_urgent for problem in one.check()] == [False]


KILLED = """
import os, sys
from eos.delta.target_table import TargetTable
from eos.sources.archive import Archive

url, topic, table, where, count = sys.argv[1:]
commit, calls = TargetTable.commit, 0

def killing(*given, **more):
    global calls
    calls += 1
    if calls == int(count) and where == "before":
        os._exit(9)
    commit(*given, **more)
    if calls == int(count):
        os._exit(9)

TargetTable.commit = killing
with Archive({"serviceUrl": url, "topic": topic}, table, part_bytes=1) as one:
    one.limit()
    while one.add() is not None:
        pass
"""


def test_a_killed_archive_goes_on_from_its_last_commit(
    opened, client, name, tmp_path, pulsar_standalone
):
    batches(client, name, range(8))
    for moment, count in (("before", 1), ("behind", 1), ("before", 3), ("behind", 2)):
        arguments = [
            pulsar_standalone.service_url,
            name,
            str(tmp_path / "past"),
            moment,
            str(count),
        ]
        ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], timeout=60, check=False)
        assert ended.returncode == 9
    assert values(tmp_path) == [b"%d" % number for number in range(50)]
    run(opened())
    assert values(tmp_path) == [b"%d" % number for number in range(80)]


def test_deleted_entries_are_a_loss_unless_that_is_wanted(
    opened, client, name, tmp_path, topic_admin
):
    batches(client, name, range(2))
    run(opened())
    (subscription,) = topic_admin("GET", "/stats")["subscriptions"]
    assert subscription == f"eos-archive-{DeltaTable(tmp_path / 'past').metadata().id}"
    topic_admin("DELETE", f"/subscription/{subscription}?force=true")
    batches(client, name, range(2, 4))
    topic_admin("DELETE", "?force=true")
    batches(client, name, range(5, 6))
    with pytest.raises(DataLost):
        run(opened())
    assert len(values(tmp_path)) == 20
    run(opened(failOnDataLoss="false"))
    assert values(tmp_path)[20:] == [b"%d" % number for number in range(50, 60)]


def test_a_table_that_cannot_tell_its_places_is_refused(opened, client, name, tmp_path):
    batches(client, name, range(1))
    write_deltalake(tmp_path / "past", pa.table({"value": [b"not ours"]}))
    with pytest.raises(ConfigurationError, match="no archive has written"):
        run(opened())
    run(opened("other"))
    properties = {"delta.setTransactionRetentionDuration": "interval 90 days"}
    DeltaTable(tmp_path / "other").alter.set_table_properties(properties)
    with pytest.raises(ConfigurationError, match="forgets up to where"):
        run(opened("other"))


def record(*names: str) -> str:
    fields = [{"name": one, "type": ["null", "string"], "default": None} for one in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


@pytest.fixture
def send_records(pulsar_standalone, name):
    """Sends Avro records by ``pulsar-client``, with these fields."""

    def send_records(*rows: dict[str, str]) -> None:
        with closing(quiet_client(pulsar_standalone.service_url)) as plain:
            for row in rows:
                schema = AvroSchema(None, schema_definition=json.loads(record(*row)))
                producer = plain.create_producer(name, schema=schema)
                producer.send(row)
                producer.close()

    return send_records


def test_a_field_that_the_newest_schema_lacks_is_not_lost(opened, send_records, tmp_path):
    send_records({"a": "1", "b": "1"})
    run(opened(schema="auto"))
    # A column of the user's own is no field.
    DeltaTable(tmp_path / "past").alter.add_columns([Field("mine", "string")])
    send_records({"a": "2", "b": "2"})
    assert run(opened(schema="auto")) == 1
    send_records({"a": "3", "b": "3"}, {"a": "4"})
    with pytest.raises(IncompatibleSchema, match="newest schema lacks b: messages of earlier"):
        run(opened(schema="auto"))
    with opened("other", schema="auto") as archive:  # a new table would lose it as well
        assert "newest schema lacks b" in archive.check()[0].what
        with pytest.raises(IncompatibleSchema, match="newest schema lacks b"):
            archive.add()
        assert not archive.table.exists()
    run(opened("other", schema="bytes"))
    run(opened(schema="avro", schemaDefinition=record("a", "b")))
    found = DeltaTable(tmp_path / "past").to_pyarrow_table().select(["a", "b"])
    assert sorted(row["b"] or "" for row in found.to_pylist()) == ["", "1", "2", "3"]


@pytest.mark.parametrize(
    ("path", "wrap"),
    [
        ("w.b", lambda one: one),
        ("w.element.b", lambda one: {"type": "array", "items": one}),
        ("w.value.b", lambda one: {"type": "map", "values": one}),
        ("value.b", None),
    ],
)
def test_a_field_within_that_the_newest_schema_lacks_is_not_lost(
    opened, client, name, pulsar_standalone, path, wrap
):
    client.create_unpartitioned(name)
    for names in (("a", "b"), ("a",)):
        kind, schema = "AVRO", record(*names)
        if wrap is None:
            kind, schema = "KEY_VALUE", json.dumps({"key": "", "value": json.loads(schema)})
            pair = {"key.schema.type": "STRING", "value.schema.type": "AVRO"}
        else:
            fields = [{"name": "w", "type": wrap(json.loads(schema))}]
            schema = json.dumps({"type": "record", "name": "Outer", "fields": fields})
        where = f"/v2/schemas/public/default/{name}/schema"
        body = {"type": kind, "schema": schema, "properties": {} if wrap else pair}
        call(pulsar_standalone.admin_url, "POST", where, body)
    with pytest.raises(IncompatibleSchema, match=f"newest schema lacks {path}: messages"):
        run(opened(schema="auto"))


def test_a_record_without_fields_is_refused_before_there_is_a_table(
    opened, client, name, pulsar_standalone
):
    client.create_unpartitioned(name)
    date = {"type": "record", "name": "Date", "namespace": "java.util", "fields": []}
    fields = [{"name": "id", "type": "int"}, {"name": "at", "type": ["null", date]}]
    schema = json.dumps({"type": "record", "name": "Event", "fields": fields})
    where = f"/v2/schemas/public/default/{name}/schema"
    body = {"type": "JSON", "schema": schema, "properties": {}}
    call(pulsar_standalone.admin_url, "POST", where, body)
    with opened(schema="auto") as archive:
        assert "'at' is a record without fields" in archive.check()[0].what
        for step in (archive.plan, archive.add):
            with pytest.raises(IncompatibleSchema, match="'at' is a record without fields"):
                step()
        assert not archive.table.exists()


def test_a_new_column_of_an_archive_is_null_before(opened, send_records, tmp_path, caplog):
    send_records({"a": "1"})
    run(opened(schema="auto"))
    assert "keep null there" not in caplog.text
    send_records({"a": "2", "b": "2"})
    run(opened(schema="auto"))
    assert "gets b. Rows that it has keep null there" in caplog.text
    found = DeltaTable(tmp_path / "past").to_pyarrow_table().select(["a", "b"]).to_pylist()
    assert {row["a"]: row["b"] for row in found} == {"1": None, "2": "2"}


def test_bytes_and_fields_do_not_share_a_table(opened, send_records, tmp_path):
    send_records({"a": "1"})
    run(opened())
    send_records({"a": "2"})
    with pytest.raises(IncompatibleSchema, match="has values as value; now they are read as a"):
        run(opened(schema="auto"))


def test_a_topic_that_does_not_fit_the_table_gets_no_subscription(
    opened, client, name, send_records, topic_admin
):
    other = f"{name}-other"
    batches(client, other, range(1))
    assert run(opened(topic=other)) == 1
    send_records({"a": "1"})
    with pytest.raises(IncompatibleSchema, match="has values as value"):
        run(opened(schema="auto"))
    assert topic_admin("GET", "/stats")["subscriptions"] == {}


def test_a_restore_to_a_time_is_refused_and_undone_by_a_version(opened, client, name, tmp_path):
    for entries in (range(2), range(2, 3)):
        batches(client, name, entries)
        run(opened())
    table = DeltaTable(tmp_path / "past")
    last = table.version()
    table.restore(datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC))
    with pytest.raises(ConfigurationError, match="what it was restored to can't be found"):
        run(opened())
    table.update_incremental()
    table.restore(last)
    batches(client, name, range(3, 4))
    run(opened())
    assert values(tmp_path) == [b"%d" % number for number in range(40)]


def partitioned(folder: Path) -> dict[tuple[str, int], list[bytes]]:
    """The values of each topic's partitions, in their order."""
    found: dict[tuple[str, int], list[bytes]] = {}
    for row in rows(folder).select(["__topic", "__partition", "value"]).to_pylist():
        found.setdefault((row["__topic"], row["__partition"]), []).append(row["value"])
    return found


@pytest.mark.parametrize("between", [None, "RESTORE", "archive"])
def test_after_a_restore_all_partitions_of_all_topics_are_archived_again(
    opened, client, name, tmp_path, pulsar_standalone, between
):
    names = [name, f"{name}-other"]
    for one in names:
        create_partitioned(pulsar_standalone.admin_url, one, 2)

    def send(of: list[str], partitions: tuple[int, ...], entries: range) -> None:
        for topic in of:
            for index in partitions:
                batches(client, f"{topic}-partition-{index}", entries)

    send(names[:1], (0, 1), range(2))
    send(names[1:], (0,), range(2))
    for one in names:
        run(opened(topic=one))
    first = DeltaTable(tmp_path / "past").version()
    send(names, (1,), range(2, 4))  # the other topic's second partition begins here
    send(names, (0,), range(2, 4))
    for one in names:
        run(opened(topic=one))
    DeltaTable(tmp_path / "past").restore(first)
    if between == "RESTORE":
        DeltaTable(tmp_path / "past").restore(first + 1)
        DeltaTable(tmp_path / "past").restore(first)
    with opened(part_bytes=1) as archive:  # ends within the first partition
        assert archive.add() is not None
    if between == "archive":
        DeltaTable(tmp_path / "past").restore(first + 2)
    for one in names:
        run(opened(topic=one))
    assert partitioned(tmp_path) == {
        (f"persistent://public/default/{topic}", index): [
            b"%d" % number for number in range(20 if (topic, index) == (names[1], 1) else 0, 40)
        ]
        for topic in names
        for index in (0, 1)
    }


@pytest.mark.parametrize("moment", ["_rows", "next"])
def test_a_restore_under_an_archive_takes_no_rows(
    opened, client, name, tmp_path, monkeypatch, moment
):
    for entries in (range(2), range(2, 4)):
        batches(client, name, entries)
        run(opened())
    batches(client, name, range(4, 6))
    with opened() as archive:
        where = archive if moment == "_rows" else archive._known
        then = getattr(where, moment)

        def restored(*given):
            found = then(*given)
            DeltaTable(tmp_path / "past").restore(1)
            return found

        monkeypatch.setattr(where, moment, restored)
        with pytest.raises((Retriable, CommitUnconfirmed), match=r"was restored|Metadata changed"):
            archive.add()
        monkeypatch.undo()
        archive.add()
    assert values(tmp_path) == [b"%d" % number for number in range(60)]


def test_a_check_says_if_a_restore_cannot_be_seen(opened, client, name, tmp_path):
    batches(client, name, range(2))
    run(opened(part_bytes=1))
    table = DeltaTable(tmp_path / "past")
    table.optimize.compact()
    table.create_checkpoint()
    with opened() as archive:
        assert not any("restored" in one.what for one in archive.check())
        for version in range(table.version()):
            (tmp_path / "past" / "_delta_log" / f"{version:020d}.json").unlink()
        assert any("was restored before can't be seen" in one.what for one in archive.check())


def test_a_second_archive_of_a_table_is_refused(opened, client, name, tmp_path):
    batches(client, name, range(3))
    with opened(part_bytes=1) as first:
        assert first.add() is not None
        with opened(requestTimeoutS="6") as second, pytest.raises(ConsumerBusy):
            second.add()
        assert run(first) == 2
    assert values(tmp_path) == [b"%d" % number for number in range(30)]


def test_of_two_archives_that_read_the_same_one_commits(
    opened, client, name, tmp_path, monkeypatch
):
    """As if the first one had lost its subscription without knowing it."""
    batches(client, name, range(6))
    with opened(part_bytes=1) as slow, opened() as quick:
        for archive in (slow, quick):
            monkeypatch.setattr(archive._planner._topics, "_is_exclusive", False)
        assert slow.add() is not None  # makes the table
        commit = slow.table.commit

        def late(*given, **more):
            assert quick.add() is not None
            commit(*given, **more)

        monkeypatch.setattr(slow.table, "commit", late)
        with pytest.raises(Fenced, match="Another archive writes"):
            slow.add()
    run(opened())
    assert values(tmp_path) == [b"%d" % number for number in range(60)]


def test_entries_deleted_after_the_planning_are_a_loss_in_each_commit(
    opened, client, name, tmp_path, send, topic_admin, trim, monkeypatch
):
    send(b"0")
    run(opened())
    last = send(b"1", b"2")[-1]
    topic_admin("PUT", "/unload")
    client.cursor(name, "other").acknowledge(last)
    send(b"3", b"4")
    with opened(part_bytes=1) as archive:
        ranges = archive._planner.ranges

        def late(offset):
            found = ranges(offset)
            names = topic_admin("GET", "/stats")["subscriptions"]
            (mine,) = (one for one in names if one.startswith("eos-archive-"))
            topic_admin("DELETE", f"/subscription/{mine}?force=true")
            trim()
            return found

        monkeypatch.setattr(archive._planner, "ranges", late)
        with pytest.raises(DataLost, match="were deleted before or while they were read"):
            archive.add()
    assert values(tmp_path) == [b"0"]


def test_spark_reads_the_archive_and_then_the_topic(opened, client, name, tmp_path, load):
    batches(client, name, range(3))
    run(opened(part_bytes=1))
    batches(client, name, range(3, 5))
    both = load(metadata=True, history=str(tmp_path / "past")).toArrow()
    plain = load(metadata=True).toArrow()
    assert both.sort_by("__messageId").equals(plain.sort_by("__messageId"))
    assert both.num_rows == 50


def test_rows_from_before_a_topic_was_partitioned_are_read(
    opened, client, name, tmp_path, load, topic_admin, pulsar_standalone
):
    batches(client, name, range(2))
    run(opened())
    topic_admin("DELETE", "?force=true")
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    batches(client, f"{name}-partition-1", range(2, 3))
    found = load(history=str(tmp_path / "past")).collect()
    assert sorted(int(row.value) for row in found) == list(range(30))


def test_an_end_behind_a_terminated_topic_is_its_end(opened, client, name, topic_admin, tmp_path):
    """For such a time the broker finds the beginning of the last ledger."""
    batches(client, name, range(2))
    topic_admin("PUT", "/unload")
    batches(client, name, range(2, 4))
    topic_admin("POST", "/terminate")
    topic_admin("PUT", "/unload")
    run(opened(endingTime=str(int(time.time() * 1000))))
    assert values(tmp_path) == [b"%d" % number for number in range(40)]


def test_malformed_messages_in_an_archive_are_no_tombstones(opened, client, name, load, tmp_path):
    with closing(client.entry_producer(name, create=True)) as producer:
        for value in (struct.pack(">q", 7), b"bad", struct.pack(">q", 9)):
            producer.send(value).result(timeout=20)
    run(opened(schema="int64", mode="permissive"))
    past = {"schema": "int64", "history": str(tmp_path / "past")}
    with pytest.raises(AnalysisException, match="mode=permissive"):
        load(**past).collect()
    found = load(**past, mode="dropmalformed").select("value").collect()
    assert [row.value for row in found] == [7, 9]
    found = load(**past, mode="permissive").select("value", "__malformedValue").collect()
    assert [row[1] and bytes(row[1]) for row in found] == [None, b"bad", None]


def test_an_archive_follows_its_identifiers_from_commit_to_commit(
    opened, client, name, monkeypatch
):
    """deltalake reads all commits for each look-up."""
    batches(client, name, range(2))
    with opened() as archive:
        archive.add()
        asked, real = list[str](), DeltaTable.transaction_version
        monkeypatch.setattr(
            DeltaTable,
            "transaction_version",
            lambda self, one: asked.append(one) or real(self, one),
        )
        assert archive.add() is None
        assert asked == []
        batches(client, name, range(2, 3))
        assert archive.add().rows == 10
        assert set(asked) == {"eos-archive"}


def test_a_place_is_after_an_entry_and_not_at_the_first_of_a_ledger(
    opened, client, name, topic_admin
):
    """Its loss could not be noticed: an empty ledger disappears as well."""
    batches(client, name, range(2))
    topic_admin("PUT", "/unload")
    time.sleep(0.01)
    middle_ms = time.time_ns() // 1_000_000
    time.sleep(0.01)
    batches(client, name, range(2, 4))
    with opened(part_bytes=1) as archive:
        assert [archive.add().rows, archive.add().rows] == [10, 10]
        ((ledger, entry),) = archive.places().values()
        assert entry == 2
    run(opened(endingTime=str(middle_ms)))  # it comes to its end
    with opened() as archive:
        assert archive.places().popitem()[1] == (ledger, 2)
        assert archive.add().rows == 20


def test_an_end_is_by_the_time_of_producers_whatever_the_broker_finds(
    opened, client, name, tmp_path, monkeypatch
):
    """Brokers may search by another clock, which is later (KoP's interceptor)."""
    batches(client, name, range(3))
    place_at, asked = TopicBounds.place_at, time.time_ns() // 1_000_000 + 1
    monkeypatch.setattr(
        TopicBounds, "place_at", lambda self, _: (place_at(self, asked - 60_000)[0], 1)
    )
    while time.time_ns() // 1_000_000 <= asked:
        time.sleep(0.001)
    batches(client, name, range(3, 5))
    run(opened(endingTime=str(asked)))
    assert values(tmp_path) == [b"%d" % number for number in range(30)]


def test_an_end_that_the_broker_cannot_look_for_is_found_in_the_entries(
    opened, client, name, topic_admin, tmp_path, monkeypatch
):
    """In a terminated topic of one ledger, once it was loaded again: an error with code -14."""
    begin_ms = 1_700_000_000_000
    clock = iter(begin_ms + 200_000 * number for number in range(9))
    monkeypatch.setattr("time.time_ns", lambda: next(clock) * 1_000_000)
    with closing(client.entry_producer(name, create=True)) as producer:
        for number in range(9):
            producer.send(b"%d" % number).result(timeout=20)
    monkeypatch.undo()
    topic_admin("POST", "/terminate")
    topic_admin("PUT", "/unload")
    run(opened(endingTime=str(begin_ms + 900_000)))
    assert values(tmp_path) == [b"%d" % number for number in range(5)]
    run(opened(endingTime=str(begin_ms + 9_000_000)))
    assert values(tmp_path) == [b"%d" % number for number in range(9)]
