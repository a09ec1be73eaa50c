"""Durable subscriptions of a topic, and their removal."""

from __future__ import annotations

import pytest

from tests.support.admin import call, create_partitioned


@pytest.fixture
def admin(pulsar_standalone):
    return ("--admin-url", pulsar_standalone.admin_url)


@pytest.fixture
def topic(pulsar_standalone, client, name):
    """Two partitions; the subscription ``gone`` on both, ``busy`` on one."""
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    for number in range(2):
        partition = f"{name}-partition-{number}"
        producer = client.entry_producer(partition)
        sent = [producer.send(b"x").result(timeout=20) for _ in range(3)]
        gone = client.cursor(partition, "gone")
        gone.acknowledge(sent[number])
        gone.close()
    busy = client.cursor(partition, "busy")
    busy.place()
    yield name
    busy.close()


def test_subscriptions_are_shown_with_their_backlog(recovery, admin, topic):
    shown = recovery("subscriptions", topic, *admin, "--json")
    assert shown.code == 0
    found = {one["name"]: one for one in shown.json["subscriptions"]}
    assert {name: (one["partitions"], one["backlog"]) for name, one in found.items()} == {
        "busy": (1, 3),
        "gone": (2, 3),
    }
    assert found["busy"]["consumers"] == 1
    told = recovery("subscriptions", topic, *admin)
    assert "gone │ 2 of 2" in told.out
    assert f"unsubscribe {topic} NAME" in told.out


def test_unused_subscription_is_removed_from_all_partitions(
    recovery, admin, topic, pulsar_standalone
):
    plan = recovery("unsubscribe", topic, "gone", *admin)
    assert plan.code == 1
    assert "It keeps 2 messages, which may then be deleted." in plan.out
    assert len(subscriptions(pulsar_standalone, topic)) == 3
    done = recovery("unsubscribe", topic, "gone", *admin, "--apply", "--yes")
    assert done.code == 0, done.out
    assert subscriptions(pulsar_standalone, topic) == ["busy"]
    again = recovery("unsubscribe", topic, "gone", *admin)
    assert again.code == 0
    assert f"There is no subscription gone. Those of {topic}: busy" in again.out


def test_subscription_in_use_is_refused(recovery, admin, topic, pulsar_standalone):
    refused = recovery("unsubscribe", topic, "busy", *admin, "--apply", "--yes")
    assert "the subscription has a consumer. Stop its query first." in refused.out
    assert refused.code == 1
    assert "busy" in subscriptions(pulsar_standalone, topic)


def test_subscription_in_use_on_one_partition_stays_on_all(
    recovery, admin, topic, client, pulsar_standalone
):
    idle = client.cursor(f"{topic}-partition-0", "busy")
    idle.place()
    idle.close()  # it has no consumer now, as after an unload
    refused = recovery("unsubscribe", topic, "busy", *admin, "--apply", "--yes", "--json")
    assert (refused.code, refused.json["steps"]) == (1, [])
    assert f"{topic}-partition-1: the subscription has a consumer" in refused.json["refused"][0]
    assert subscriptions(pulsar_standalone, topic).count("busy") == 2


def test_query_that_starts_after_the_plan_keeps_its_subscription(
    recovery, admin, topic, client, pulsar_standalone, monkeypatch
):
    running = client.cursor(f"{topic}-partition-0", "gone")
    monkeypatch.setattr("typer.confirm", lambda *_, **__: running.place())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    refused = recovery("unsubscribe", topic, "gone", *admin, "--apply")
    running.close()
    assert refused.code == 1
    assert "Failed:" in refused.out
    assert "Stop its query first." in refused.out
    assert subscriptions(pulsar_standalone, topic).count("gone") == 2


def test_missing_topic_exits_with_64(recovery, admin, name):
    for verb in (("subscriptions", name), ("unsubscribe", name, "s")):
        ended = recovery(*verb, *admin)
        assert ended.code == 64
        assert f"Topic {name} does not exist" in ended.err


def subscriptions(broker, topic):
    found = []
    for number in range(2):
        path = f"/v2/persistent/public/default/{topic}-partition-{number}/subscriptions"
        found += call(broker.admin_url, "GET", path)
    return sorted(found)
