"""Observers: the broker must not trim the messages that they read."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pulsar
import pytest

from eos.chaos._records import text_of
from eos.chaos.checker.history import ReaderSightings
from eos.chaos.observers import observers
from eos.chaos.observers.observers import Observers
from eos.chaos.observers.readers import open_client
from tests.support import admin


def ledgers(admin_url: str, topic: str) -> int:
    path = f"/v2/persistent/public/default/{topic}/internalStats"
    return len(admin.call(admin_url, "GET", path)["ledgers"])


@pytest.fixture
def control(monkeypatch) -> Iterator[observers.ControlWriter]:
    """A control workload that sends nothing."""
    monkeypatch.setattr(observers, "drain", lambda *_, **__: ReaderSightings("control", ()))
    monkeypatch.setattr(observers.ControlWriter, "_run", lambda self: self._over.wait())
    with observers.ControlWriter("", "") as made:
        yield made


def test_control_workload_that_sent_too_little_proves_nothing(control):
    with pytest.raises(RuntimeError, match="has sent too little"):
        control.result()


@pytest.mark.parametrize("is_whole", [True, False])
def test_control_workload_that_has_ended_by_itself_proves_nothing(control, is_whole):
    control._acknowledged.add("control/1")
    if is_whole:
        assert control.result().lost == {"control/1"}
        return
    control._over.set()
    control._thread.join()
    with pytest.raises(RuntimeError, match="has sent too little"):
        control.result()


def test_nothing_is_trimmed_while_observers_read(pulsar_standalone, name):
    """Without a subscription, a closed ledger is trimmed in two minutes; here by a call."""
    topic = f"persistent://public/default/{name}"
    url, admin_url = pulsar_standalone.service_url, pulsar_standalone.admin_url
    path = f"/v2/persistent/public/default/{name}"
    with Observers(url, [topic], f"{topic}-control") as watching:
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
        fresh = watching.drain("fresh reader")
    assert [sight.record for sight in fresh.sightings] == ["0/0", "0/1"]
    assert ledgers(admin_url, name) >= 3
