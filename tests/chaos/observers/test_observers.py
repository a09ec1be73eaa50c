"""Observers: the broker must not trim the messages that they read."""

from __future__ import annotations

import time

import pulsar

from eos.chaos._records import text_of
from eos.chaos.observers.observers import Observers
from eos.chaos.observers.readers import open_client
from tests.support import admin


def ledgers(admin_url: str, topic: str) -> int:
    path = f"/v2/persistent/public/default/{topic}/internalStats"
    return len(admin.call(admin_url, "GET", path)["ledgers"])


def test_nothing_is_trimmed_while_observers_read(pulsar_standalone, name):
    """Without a subscription, a closed ledger is trimmed in two minutes; here by a call."""
    topic = f"persistent://public/default/{name}"
    url, admin_url = pulsar_standalone.service_url, pulsar_standalone.admin_url
    path = f"/v2/persistent/public/default/{name}"
    with Observers(url, [topic], f"{topic}-control") as observers:
        for number in range(2):
            client = open_client(url)
            client.create_producer(topic).send(text_of(f"0/{number}").encode())
            client.close()
            admin.call(admin_url, "PUT", f"{path}/unload")
        for _ in range(20):
            client = open_client(url)
            client.create_reader(topic, pulsar.MessageId.earliest).close()
            client.close()
            admin.call(admin_url, "POST", f"{path}/trim")
            time.sleep(0.1)
        fresh = observers.drain("fresh reader")
    assert [sight.record for sight in fresh.sightings] == ["0/0", "0/1"]
    assert ledgers(admin_url, name) >= 3
