"""A query whose topics change over restarts reads each message once, and names former topics."""

from __future__ import annotations

import pytest

from tests.support.admin import create_partitioned
from tests.support.judge import drain


def flat(*runs: dict[int, list[bytes]]) -> list[bytes]:
    return [value for run in runs for _, epoch in sorted(run.items()) for value in epoch]


def test_a_topic_that_is_read_again_continues_where_the_query_stopped(
    run, send, name, pulsar_standalone, topic_admin
):
    a, b = f"{name}-a", f"{name}-b"
    create_partitioned(pulsar_standalone.admin_url, a, 1)
    both, without = {"topic": None, "topics": f"{a},{b}"}, {"topic": b}

    def send_both(n: int) -> None:
        send(b"a%d" % n, topic=f"{a}-partition-0")
        send(b"b%d" % n, topic=b)

    send_both(0)
    read = [run(**both)]
    send_both(1)
    with pytest.raises(Exception, match=rf"no longer name\. .*droppedTopics=\S*{a}\."):
        run(**without)
    read.append(run(**without, droppedTopics=a))
    assert flat(read[-1]) == [b"b1"]
    send_both(2)
    topic_admin("POST", "/partitions", 2, topic=a)
    send(b"a3", topic=f"{a}-partition-1")
    read.append(run(**without))  # reported only once
    # Other ways to name it mean the same, and startingOffsets are for new queries.
    pattern = {"topic": None, "topicsPattern": f"{name}-.*", "startingOffsets": "latest"}
    read.append(run(**pattern))
    assert sorted(flat(read[-1])) == [b"a1", b"a2", b"a3"]
    send_both(4)
    # The option also drops a topic of a pattern.
    read.append(run(**pattern, droppedTopics=a))
    send_both(5)
    read.append(run(**both))
    judged = [
        seen.value for topic in (a, b) for seen in drain(pulsar_standalone.service_url, topic)
    ]
    assert sorted(flat(*read)) == sorted(judged)


def test_a_former_topic_that_was_recreated_is_a_loss(run, send, name, topic_admin):
    a, b = f"{name}-a", f"{name}-b"
    both = {"topic": None, "topics": f"{a},{b}"}
    send(b"a0", b"a1", topic=a)
    send(b"b0", topic=b)
    run(**both)
    send(b"b1", topic=b)
    assert run(topic=b, failOnDataLoss=False) == {1: [b"b1"]}  # its place is still kept
    topic_admin("DELETE", "?force=true", topic=a)
    send(b"new", topic=a)
    with pytest.raises(Exception, match=f"DataLost.*{a}"):
        run(**both)
    assert run(**both, failOnDataLoss=False) == {2: [b"new"]}


def test_a_topic_and_its_partition_are_read_once(load, run, send, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    send(b"0", b"1", topic=f"{name}-partition-0")
    named_twice = {"topic": None, "topics": f"{name},{name}-partition-0"}
    assert sorted(row.value for row in load(**named_twice).collect()) == [b"0", b"1"]
    assert flat(run(**named_twice)) == [b"0", b"1"]
