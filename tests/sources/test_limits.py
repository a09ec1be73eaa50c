"""Limits of epochs, and their division among tasks."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.admin import create_partitioned


@pytest.fixture
def admin(pulsar_standalone):
    return {"adminUrl": pulsar_standalone.admin_url}


@pytest.mark.parametrize(
    "limit", [{"maxEntriesPerTrigger": 4}, {"maxBytesPerTrigger": 200}, {"maxRowsPerTrigger": 4}]
)
def test_epochs_are_limited_and_complete(run, send, admin, topic_admin, limit):
    everything = [b"%d" % n for n in range(10)]
    send(*everything[:5])
    topic_admin("PUT", "/unload")
    send(*everything[5:])
    epochs = run(**admin, **limit)
    assert [value for _, values in sorted(epochs.items()) for value in values] == everything
    assert max(map(len, epochs.values())) in (4, 5)
    assert len(epochs) in (2, 3)


def test_limits_count_markers_and_aborted_entries(run, send, client, name, admin):
    expected = []
    for n in range(6):
        txn = client.transaction()
        producer = client.entry_producer(name, create=True)
        sent = [producer.send(b"%d-%d" % (n, k), txn=txn) for k in range(3)]
        [one.result(timeout=20) for one in sent]
        producer.close()
        if n % 2:
            txn.abort()
        else:
            txn.commit()
            expected += [b"%d-%d" % (n, k) for k in range(3)]
    epochs = run(**admin, maxEntriesPerTrigger=2)
    assert [value for _, values in sorted(epochs.items()) for value in values] == expected
    assert max(map(len, epochs.values())) == 2


def test_a_partition_is_split_into_ranges_over_its_ledgers(
    load, send, admin, topic_admin, client, name
):
    everything = [b"%03d" % n for n in range(40)]
    for part in range(4):
        send(*everything[part * 10 : part * 10 + 10])
        client.subscribe_durably(name, "keeper")  # else closed ledgers may be deleted
        topic_admin("PUT", "/unload")
    df = load(**admin, minPartitions=6)
    assert df.rdd.getNumPartitions() == 6
    parts = df.rdd.glom().collect()
    assert [bytes(row["value"]) for part in parts for row in part] == everything
    assert {len(part) for part in parts} == {6, 7}


def test_split_by_keys_keeps_each_key_in_one_task_and_in_order(load, client, name):
    producer = client.entry_producer(name, create=True)
    expected = defaultdict(list)
    for n in range(300):
        key = None if n % 7 == 0 else "hot" if n % 2 else f"k{n % 23}"
        producer.send(b"%d" % n, key=key)
        expected[key and key.encode()].append(b"%d" % n)
    producer.send(b"last").result(timeout=20)
    expected[None].append(b"last")
    df = load("__key binary, value binary", minPartitions=3, splitBy="keys")
    parts = df.rdd.glom().collect()
    assert len(parts) == 3
    assert all(parts)
    seen = defaultdict(list)
    where = defaultdict(set)
    for number, part in enumerate(parts):
        for row in part:
            key = None if row["__key"] is None else bytes(row["__key"])
            seen[key].append(bytes(row["value"]))
            where[key].add(number)
    assert seen == expected
    assert all(len(numbers) == 1 for numbers in where.values())
    assert where[None] == {0}


@pytest.mark.parametrize(("most", "sizes"), [(2, [2, 3]), (3, [1, 2, 2]), (9, [1] * 5)])
def test_several_partitions_are_read_by_one_task(load, send, name, pulsar_standalone, most, sizes):
    create_partitioned(pulsar_standalone.admin_url, name, 5)
    for index in range(5):
        send(b"%d" % index, topic=f"{name}-partition-{index}")
    parts = load(maxPartitions=most).rdd.glom().collect()
    assert [len(part) for part in parts] == sizes
    assert [bytes(row["value"]) for part in parts for row in part] == [b"0", b"1", b"2", b"3", b"4"]
