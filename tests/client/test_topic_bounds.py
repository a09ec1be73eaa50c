"""Repeated requests for the end of a topic, on a shared connection."""

from __future__ import annotations

import time
from contextlib import closing
from functools import partial

import pytest

from eos.client import PulsarClient
from eos.errors import ConnectionLost, TopicNotFound
from eos.testing import PulsarStandalone
from tests.support.admin import call


def send(client: PulsarClient, topic: str, value: bytes, **more):
    return client.entry_producer(topic, create=True).send(value, **more).result(timeout=20)


def test_it_is_the_last_entry_that_is_readable(client, name):
    client.create_unpartitioned(name)
    tail = client.topic_bounds(name)
    assert tail.last_id() is None
    first = send(client, name, b"0")
    assert tail.last_id().place == first.place
    txn = client.transaction()
    within = send(client, name, b"1", txn=txn)
    behind = send(client, name, b"2")
    assert tail.last_id().place == first.place
    txn.abort()
    assert tail.last_id().place == behind.place > within.place


def test_it_goes_on_after_an_unload(client, name, pulsar_standalone):
    send(client, name, b"0")
    tail = client.topic_bounds(name)
    tail.last_id()
    call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    sent = send(client, name, b"1")
    assert tail.last_id().place == sent.place


@pytest.mark.broker
def test_it_goes_on_after_a_kill_of_the_broker(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=60) as client:
        sent = send(client, name, b"0")
        tail = client.topic_bounds(name)
        tail.last_id()
        broker.kill()
        broker.restart()
        assert tail.last_id().place == sent.place


def test_a_topic_that_is_not_there_or_not_any_more_is_an_error(client, name, pulsar_standalone):
    with pytest.raises(TopicNotFound):
        client.topic_bounds(name).last_id()
    send(client, name, b"0")
    tail = client.topic_bounds(name)
    assert tail.last_id() is not None
    admin = f"/v2/persistent/public/default/{name}"
    call(pulsar_standalone.admin_url, "DELETE", f"{admin}?force=true")
    with pytest.raises(TopicNotFound):
        tail.last_id()


def test_the_broker_keeps_one_subscription_for_it_until_it_is_closed(
    client, name, pulsar_standalone
):
    send(client, name, b"0")
    tail = client.topic_bounds(name)
    for _ in range(5):
        tail.last_id()
    admin = f"/v2/persistent/public/default/{name}/stats"
    assert len(call(pulsar_standalone.admin_url, "GET", admin)["subscriptions"]) == 1
    tail.close()
    tail.close()
    assert tail.last_id() is not None


def unload_and_trim(broker: PulsarStandalone, name: str) -> None:
    path = f"/v2/persistent/public/default/{name}"
    call(broker.admin_url, "PUT", f"{path}/unload")
    call(broker.admin_url, "POST", f"{path}/trim")


def test_it_says_where_the_topic_begins_also_when_entries_are_deleted(
    client, name, pulsar_standalone
):
    first = send(client, name, b"0")
    tail = client.topic_bounds(name)
    assert tail.bounds().first == (first.ledger, 0)
    unload_and_trim(pulsar_standalone, name)
    assert tail.bounds().last_id is None
    second = send(client, name, b"1")
    assert client.topic_bounds(name).bounds() == ((second.ledger, 0), second)
    assert second.ledger > first.ledger


def test_one_that_was_there_sees_exactly_what_was_deleted(client, name, pulsar_standalone):
    first = send(client, name, b"0")
    admin = f"/v2/persistent/public/default/{name}"
    call(pulsar_standalone.admin_url, "PUT", f"{admin}/unload")
    send(client, name, b"1")
    call(pulsar_standalone.admin_url, "PUT", f"{admin}/unload")
    tail = client.topic_bounds(name)
    assert tail.bounds().first == (first.ledger, 0)
    call(pulsar_standalone.admin_url, "POST", f"{admin}/trim")
    deadline = time.monotonic() + 60
    while tail.bounds().first <= first.place and time.monotonic() < deadline:
        time.sleep(0.05)
    assert tail.bounds().first > first.place


def test_the_place_of_a_time_is_found_and_leaves_nothing_behind(client, name, pulsar_standalone):
    ids, times = [], []
    for value in (b"0", b"1", b"2"):
        times.append(int(time.time() * 1000))
        ids.append(send(client, name, value))
        time.sleep(0.05)
    tail = client.topic_bounds(name)
    before = tail.bounds()
    assert [tail.place_at(one) for one in times] == [one.place for one in ids]
    assert tail.place_at(0) == ids[0].place
    assert tail.place_at(times[2] + 1000) == (ids[2].ledger, ids[2].entry + 1)
    assert tail.bounds() == before
    admin = f"/v2/persistent/public/default/{name}/stats"
    assert len(call(pulsar_standalone.admin_url, "GET", admin)["subscriptions"]) == 1


def test_an_entry_behind_all_that_was_written_is_not_reached(client, name, pulsar_standalone):
    ids = [send(client, name, value) for value in (b"0", b"1", b"2")]
    tail = client.topic_bounds(name)
    assert all(tail.reaches(one.place) for one in ids)
    assert not tail.reaches((ids[2].ledger, 7))
    assert not tail.reaches((ids[2].ledger + 10_000, 0))
    unload_and_trim(pulsar_standalone, name)
    assert all(tail.reaches(one.place) for one in ids)


def test_a_question_that_an_unload_leaves_unanswered_is_asked_again_at_once(client, name):
    """The broker closes the consumer and does not answer requests that were under way."""
    sent = send(client, name, b"0")
    tail = client.topic_bounds(name)
    tail.bounds()
    consumer = tail._consumer
    connection = consumer.subscribed()
    real, is_first = connection._write, [True]

    def lost(*args, **kwargs):
        if is_first.pop() if is_first else False:
            consumer.on_closed(ConnectionLost("The broker closed the consumer."))
            return
        real(*args, **kwargs)

    connection._write = lost
    began = time.monotonic()
    try:
        assert tail.last_id().place == sent.place
    finally:
        connection._write = real
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("ledgers", [1, 2])
def test_nothing_is_open_in_a_terminated_topic(client, name, pulsar_standalone, ledgers):
    """Its last ledger may be empty, and the entries before it may end with markers."""
    client.create_unpartitioned(name)
    admin = partial(call, pulsar_standalone.admin_url)
    path = f"/v2/persistent/public/default/{name}"
    with client.transaction(timeout_s=60) as txn:
        sent = send(client, name, b"0", txn=txn)
    if ledgers == 2:
        admin("PUT", f"{path}/unload")
        with closing(client.topic_bounds(name)) as bounds:
            bounds.last_id()  # loads it
    admin("POST", f"{path}/terminate")
    for _ in range(2):
        with closing(client.topic_bounds(name)) as bounds:
            assert bounds.final_bounds().last_id.place == sent.place
            assert bounds.first_undecided() is None
        admin("PUT", f"{path}/unload")
