"""The end of a topic, asked again and again on a connection that others use."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from eos.errors import TopicNotFound
from eos.standalone import PulsarStandalone
from tests.support.admin import call


def send(client: PulsarClient, topic: str, value: bytes, **more):
    return client.producer(topic, create=True).send(value, **more).result(timeout=20)


def test_it_is_the_last_entry_that_is_readable(client, name):
    client.create_unpartitioned(name)
    tail = client.tail(name)
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
    tail = client.tail(name)
    tail.last_id()
    call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    sent = send(client, name, b"1")
    assert tail.last_id().place == sent.place


@pytest.mark.broker
def test_it_goes_on_after_a_kill_of_the_broker(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=60) as client:
        sent = send(client, name, b"0")
        tail = client.tail(name)
        tail.last_id()
        broker.kill()
        broker.restart()
        assert tail.last_id().place == sent.place


def test_a_topic_that_is_not_there_or_not_any_more_is_an_error(client, name, pulsar_standalone):
    with pytest.raises(TopicNotFound):
        client.tail(name).last_id()
    send(client, name, b"0")
    tail = client.tail(name)
    assert tail.last_id() is not None
    admin = f"/v2/persistent/public/default/{name}"
    call(pulsar_standalone.admin_url, "DELETE", f"{admin}?force=true")
    with pytest.raises(TopicNotFound):
        tail.last_id()


def test_the_broker_keeps_one_subscription_for_it_until_it_is_closed(
    client, name, pulsar_standalone
):
    send(client, name, b"0")
    tail = client.tail(name)
    for _ in range(5):
        tail.last_id()
    admin = f"/v2/persistent/public/default/{name}/stats"
    assert len(call(pulsar_standalone.admin_url, "GET", admin)["subscriptions"]) == 1
    tail.close()
    tail.close()
    assert tail.last_id() is not None
