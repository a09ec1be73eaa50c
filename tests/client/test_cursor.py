"""A durable subscription that is only moved."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from eos.errors import TopicNotFound
from eos.standalone import PulsarStandalone
from tests.support.admin import call


def sent(client: PulsarClient, topic: str, count: int):
    producer = client.entry_producer(topic, create=True)
    ids = [producer.send(b"%d" % n).result(timeout=20) for n in range(count)]
    producer.close()
    return ids


def test_it_begins_with_the_first_entry_and_never_goes_back(client, name):
    ids = sent(client, name, 4)
    cursor = client.cursor(name, "s")
    assert cursor.place() == ids[0].place
    for at, expected in ((2, 3), (0, 3), (3, 4)):
        cursor.acknowledge(ids[at])
        assert cursor.place() == (ids[0].ledger, ids[0].entry + expected)


def test_several_may_move_it_and_it_outlives_them_and_unloads(
    client, name, pulsar_standalone: PulsarStandalone
):
    ids = sent(client, name, 4)
    one, other = client.cursor(name, "s"), client.cursor(name, "s")
    one.acknowledge(ids[0])
    other.acknowledge(ids[1])
    assert one.place() == ids[2].place
    admin = f"/v2/persistent/public/default/{name}/unload"
    call(pulsar_standalone.admin_url, "PUT", admin)
    one.acknowledge(ids[2])
    one.close()
    other.close()
    assert client.cursor(name, "s").place() == ids[3].place


def test_a_topic_that_is_not_there_is_an_error_and_is_not_made(client, name):
    with pytest.raises(TopicNotFound):
        client.cursor(name, "s").place()
    assert not client.exists(name)
