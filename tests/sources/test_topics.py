"""Several topics, patterns, and reads between publish times."""

from __future__ import annotations

import json
import time

import pulsar
import pytest

from tests.support.admin import create_partitioned


def values(df):
    return sorted(bytes(row["value"]) for row in df.select("value").collect())


def test_a_pattern_reads_its_topics_and_no_others(load, send, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, f"{name}-a", 2)
    send(b"a0", topic=f"{name}-a-partition-0")
    send(b"a1", topic=f"{name}-a-partition-1")
    send(b"b", topic=f"{name}-b")
    send(b"c", topic=f"x{name}-a")
    df = load(topic=None, topicsPattern=f"public/default/{name}-.*", metadata=True)
    assert values(df) == [b"a0", b"a1", b"b"]
    topics = {row["__topic"].rpartition("/")[2] for row in df.collect()}
    assert topics == {f"{name}-a", f"{name}-b"}


def test_a_pattern_skips_topics_with_unsupported_names(load, send, name, pulsar_standalone):
    client = pulsar.Client(pulsar_standalone.service_url)
    client.create_producer(f"persistent://public/default/{name}-we ird").close()
    client.close()
    send(b"a", topic=f"{name}-a")
    assert values(load(topic=None, topicsPattern=f"public/default/{name}-.*")) == [b"a"]


def test_later_topics_are_read_from_their_beginning(run, send, name):
    pattern = {"topic": None, "topicsPattern": f"{name}-.*", "startingOffsets": "latest"}
    send(b"before", topic=f"{name}-a")
    assert not any(run(**pattern).values())
    send(b"0", topic=f"{name}-a")
    send(b"1", topic=f"{name}-b")
    (read,) = run(**pattern).values()
    assert sorted(read) == [b"0", b"1"]


def test_a_deleted_topic_of_a_pattern_is_reported(run, send, name, topic_admin):
    pattern = {"topic": None, "topicsPattern": f"{name}-.*"}
    send(b"0", topic=f"{name}-a")
    send(b"1", topic=f"{name}-b")
    run(**pattern)
    topic_admin("DELETE", "?force=true", topic=f"{name}-a")
    send(b"2", topic=f"{name}-b")
    with pytest.raises(Exception, match=f"{name}-a was deleted"):
        run(**pattern)
    assert run(**pattern, failOnDataLoss=False) == {1: [b"2"]}
    send(b"3", topic=f"{name}-b")
    assert run(**pattern) == {2: [b"3"]}


def test_each_topic_has_its_own_beginning(load, send, name):
    a, b = f"{name}-a", f"{name}-b"
    ids = send(b"a0", b"a1", topic=a)
    send(b"b0", b"b1", topic=b)
    both = {"topic": None, "topics": f"{a}, {b}"}
    starts = json.dumps({a: f"{ids[1].ledger}:{ids[1].entry}", b: "latest"})
    assert values(load(**both, startingOffsets=starts)) == [b"a1"]
    assert values(load(**both, endingOffsets=json.dumps({b: "earliest"}))) == [b"a0", b"a1"]


def test_a_read_begins_and_ends_at_publish_times(load, send, name, topic_admin):
    times = []
    for n in range(4):
        times.append(int(time.time() * 1000))
        send(b"%d" % n)
        time.sleep(0.05)
        if n == 1:
            topic_admin("PUT", "/unload")
    assert values(load(startingTime=times[2])) == [b"2", b"3"]
    assert values(load(endingTime=times[2])) == [b"0", b"1"]
    assert values(load(startingTime=times[1], endingTime=times[3])) == [b"1", b"2"]
    with pytest.raises(Exception, match=r"the start, \d+, is after the end, \d+"):
        load(startingTime=times[3], endingTime=times[1]).collect()
    assert values(load(startingTime=json.dumps({name: times[3]}))) == [b"3"]
    assert values(load(startingTime="1970-01-01T00:00:00Z")) == [b"0", b"1", b"2", b"3"]
    assert values(load(startingTime=times[3] + 3_600_000)) == []
