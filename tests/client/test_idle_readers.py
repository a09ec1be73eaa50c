"""Idle readers, kept open at the broker for the next roll call of their process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eos.client import EntryReader, PulsarClient, _handle_cache
from eos.errors import ConsumerBusy, EosError
from eos.ids import MessageId
from eos.wire import commands
from tests.support import admin
from tests.transport.scripted import wait_until


@pytest.fixture
def topic(through, name) -> str:
    """The full name of an existing topic that retains its messages."""
    full = f"persistent://public/default/{name}"
    through.create_unpartitioned(full)
    through.subscribe_durably(full, "keeps-it")
    return full


def subscriptions(broker, topic: str) -> dict[str, dict[str, object]]:
    """Return the broker's statistics of the readers' subscriptions on ``topic``."""
    path = topic.replace("://", "/")
    stats = admin.call(broker.admin_url, "GET", f"/v2/{path}/stats")["subscriptions"]
    return {name: one for name, one in stats.items() if name.startswith("eos-reader")}


def read_one(client: PulsarClient, topic: str, value: bytes) -> EntryReader:
    """Send ``value``; return a reader that has read it."""
    sent = client.entry_producer(topic).send(value).result(timeout=10)
    reader = client.entry_reader(topic, sent)
    entry = next(reader.read_to(sent, time.monotonic() + 10))
    assert entry.messages()[0].value == value
    return reader


def test_one_that_is_parked_goes_on_without_another_subscription(through, proxy, topic):
    through.release_reader(read_one(through, topic, b"1"))
    asked = proxy.seen[commands.Subscribe]
    sent = through.entry_producer(topic).send(b"2").result(timeout=10)
    reader = through.acquire_reader(topic)
    assert reader is not None
    (entry,) = [next(reader.read_to(sent, time.monotonic() + 10))]
    assert (entry.messages()[0].value, proxy.seen[commands.Subscribe]) == (b"2", asked)
    assert through.acquire_reader(topic) is None  # it can be acquired only once


def test_to_an_operator_it_does_not_look_stuck(through, topic, pulsar_standalone):
    reader = read_one(through, topic, b"1")
    (before,) = subscriptions(pulsar_standalone, topic).values()
    assert before["msgBacklog"] == 1
    through.release_reader(reader)

    def is_up_to_date() -> bool:
        (ours,) = subscriptions(pulsar_standalone, topic).values()
        return ours["msgBacklog"] == 0

    wait_until(is_up_to_date)


def test_it_does_not_wait_for_ever(through, topic, pulsar_standalone, monkeypatch):
    monkeypatch.setattr(_handle_cache, "IDLE_TTL_S", 0.4)
    through.release_reader(read_one(through, topic, b"1"))
    wait_until(lambda: not subscriptions(pulsar_standalone, topic))
    assert through.acquire_reader(topic) is None


def test_one_that_the_broker_has_closed_is_not_handed_out(through, topic, name, pulsar_standalone):
    reader = read_one(through, topic, b"1")
    through.release_reader(reader)
    admin.call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    wait_until(lambda: not reader.is_usable)
    assert through.acquire_reader(topic) is None
    with pytest.raises(EosError):
        next(reader.read(time.monotonic() + 10))


def test_one_whose_connection_is_gone_is_not_handed_out(through, proxy, topic):
    reader = read_one(through, topic, b"1")
    through.release_reader(reader)
    proxy.cut_all()
    wait_until(lambda: not reader.is_usable)
    assert through.acquire_reader(topic) is None


def test_a_client_that_is_closed_leaves_none(topic, pulsar_standalone):
    with PulsarClient(pulsar_standalone.service_url) as client:
        client.release_reader(read_one(client, topic, b"1"))
        reader = read_one(client, topic, b"2")
    client.release_reader(reader)
    assert client.acquire_reader(topic) is None
    wait_until(lambda: not subscriptions(pulsar_standalone, topic))


@pytest.fixture(params=["maxConsumers", "maxSubscriptionsPerTopic"])
def crowded(request, topic, name, pulsar_standalone) -> str:
    """A topic that admits one reader.

    The subscription that retains the messages counts towards the limit, but has no consumer.
    """
    limit = {"maxConsumers": 1, "maxSubscriptionsPerTopic": 2}[request.param]
    path = f"/v2/persistent/public/default/{name}/{request.param}"
    admin.call(pulsar_standalone.admin_url, "POST", path, limit)
    wait_until(lambda: admin.call(pulsar_standalone.admin_url, "GET", path) == limit)
    return topic


@contextmanager
def leaving_when_refused(other: PulsarClient, waiting: PulsarClient) -> Iterator[None]:
    """Close ``other`` once the broker has refused ``waiting``."""

    def leave() -> None:
        wait_until(lambda: waiting.limit_hit)
        other.close()

    thread = threading.Thread(target=leave)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_where_a_policy_admits_no_more_those_of_other_processes_are_waited_for(
    through, crowded, pulsar_standalone
):
    other = PulsarClient(pulsar_standalone.service_url)
    other.release_reader(read_one(other, crowded, b"1"))
    with (
        leaving_when_refused(other, through),
        through.entry_reader(crowded, MessageId(0, 0), waits_at_limit=True),
    ):
        assert (through.limit_hit, other.limit_hit) == (True, False)


def test_who_was_refused_once_is_in_nobodys_way(through, topic, pulsar_standalone):
    through._limit_backoff.limit_hit = True
    through.release_reader(read_one(through, topic, b"1"))
    assert through.acquire_reader(topic) is None
    wait_until(lambda: not subscriptions(pulsar_standalone, topic))


def test_who_does_not_wait_is_refused(through, crowded, pulsar_standalone):
    with PulsarClient(pulsar_standalone.service_url) as other:
        other.release_reader(read_one(other, crowded, b"1"))
        with pytest.raises(EosError) as refused:
            through.entry_reader(crowded)
    assert type(refused.value) in _handle_cache.CONSUMER_LIMIT
    assert not through.limit_hit


def test_they_are_not_waited_for_for_ever(through, topic, monkeypatch):
    monkeypatch.setattr(_handle_cache, "IDLE_TTL_S", -19.0)

    def refuse(_: EntryReader) -> None:
        raise ConsumerBusy("no")

    monkeypatch.setattr(EntryReader, "open", refuse)
    with pytest.raises(ConsumerBusy):
        through.entry_reader(topic, waits_at_limit=True)
    assert through.limit_hit
