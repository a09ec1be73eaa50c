"""Negative acknowledgements, seeking, priorities and replicated subscriptions of consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from eos import AsyncPulsarClient, PulsarClient
from eos.errors import ConfigurationError, Retriable
from eos.ids import MessageId
from eos.testing import PulsarStandalone
from tests.support.admin import backlog, call
from tests.support.judge import drain, quiet_client
from tests.support.receiving import batches_until, received, unacknowledged, values


@pytest.fixture
def topic(name: str) -> str:
    """This test's topic."""
    return f"persistent://public/default/{name}"


def send(client: PulsarClient, topic: str, *values: bytes) -> list[MessageId]:
    """Send each value as its own entry."""
    with closing(client.entry_producer(topic, create=True)) as producer:
        return [producer.send(value).result() for value in values]


class HeldTimer:
    """A timer of which the test says when the time has come."""

    def __init__(self) -> None:
        self.waits_s: list[float] = []
        self._calls: list[Callable[[], None]] = []

    def call_after(self, wait_s: float, call: Callable[[], None], _: object) -> None:
        self.waits_s.append(wait_s)
        self._calls.append(call)

    def run(self) -> None:
        for due in self._calls:
            due()


# --- negative acknowledgements ------------------------------------------------------------------


def test_a_message_comes_again_later_and_later(client: PulsarClient, topic: str) -> None:
    send(client, topic, b"good", b"bad")
    options: Any = {"type": "shared", "nack_delay_s": 0.5, "nack_max_delay_s": 1.0}
    with client.consumer(topic, "judge", **options) as consumer:
        good, bad = received(consumer, 2)
        consumer.acknowledge(good)
        waits = []
        for count in range(1, 4):
            began = time.monotonic()
            consumer.negative_acknowledge(bad)
            (bad,) = received(consumer, 1)
            waits.append(time.monotonic() - began)
            assert (bad.value, bad.redelivery_count) == (b"bad", count)
        assert waits[0] >= 0.5
        assert min(waits[1:]) >= 1.0
        consumer.acknowledge(bad)
    with client.consumer(topic, "judge", type="shared") as consumer:
        assert unacknowledged(client, consumer) == []


def test_what_is_acknowledged_in_time_does_not_come_again(
    client: PulsarClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(client, topic, b"1", b"2")
    with client.consumer(topic, "judge", type="shared", nack_delay_s=0.3) as consumer:
        first, second = received(consumer, 2)
        timer = HeldTimer()
        monkeypatch.setattr(consumer, "_timer", timer)
        consumer.negative_acknowledge([first, second])
        consumer.acknowledge(first)
        assert timer.waits_s == [0.3]
        timer.run()
        assert values(received(consumer, 1)) == [b"2"]
        assert consumer.receive(0.5) is None


def test_a_negative_acknowledgement_of_an_old_copy_has_no_effect(
    client: PulsarClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(client, topic, b"1")
    with client.consumer(topic, "judge", type="shared") as consumer:
        (message,) = received(consumer, 1)
        timer = HeldTimer()
        monkeypatch.setattr(consumer, "_timer", timer)
        consumer.negative_acknowledge(message)
        consumer.redeliver([message])
        (again,) = received(consumer, 1)
        timer.run()
        assert consumer.receive(0.5) is None  # the new copy is not taken back
        consumer.acknowledge(again)


def test_an_exclusive_consumer_receives_all_again(client: PulsarClient, topic: str) -> None:
    send(client, topic, b"1", b"2", b"3")
    with client.consumer(topic, "judge", nack_delay_s=0.3) as consumer:
        first, second, third = received(consumer, 3)
        consumer.acknowledge(first)
        consumer.negative_acknowledge(third)
        again = received(consumer, 2)
        assert values(again) == [b"2", b"3"]
        with pytest.raises(Retriable):
            consumer.acknowledge(second.id._replace(batch_index=7))
        consumer.acknowledge(again)


@pytest.mark.parametrize("kind", ["exclusive", "failover", "shared"])
@pytest.mark.parametrize("is_all", [True, False])
def test_acknowledged_messages_of_a_batch_do_not_come_again(
    client: PulsarClient, topic: str, kind: Any, is_all: bool
) -> None:
    with client.producer(topic, create=True, linger_ms=1000) as producer:
        for number in range(4):
            producer.send(b"%d" % number)
    with client.consumer(topic, "judge", type=kind) as consumer:
        for acknowledged in range(4):  # also those of earlier copies
            messages = received(consumer, 4 - acknowledged)
            assert values(messages) == [b"%d" % number for number in range(acknowledged, 4)]
            consumer.acknowledge(messages[0])
            consumer.redeliver(None if is_all else messages[1:])
        assert consumer.receive(0.2) is None


def test_acknowledged_messages_do_not_come_again_after_an_aborted_transaction(
    client: PulsarClient, topic: str
) -> None:
    with client.producer(topic, create=True, linger_ms=1000) as producer:
        for number in range(3):
            producer.send(b"%d" % number)
    send(client, topic, b"next")
    with client.consumer(topic, "judge") as consumer:
        messages = received(consumer, 4)
        consumer.acknowledge(messages[0])
        with client.transaction() as txn:
            consumer.acknowledge(messages[3], txn)
            txn.abort()  # the broker begins again by itself
        assert values(received(consumer, 3)) == [b"1", b"2", b"next"]


def test_asyncio_has_the_same(pulsar_standalone: PulsarStandalone, topic: str) -> None:
    async def run() -> list[bytes | None]:
        async with AsyncPulsarClient(pulsar_standalone.service_url) as client:
            async with await client.producer(topic, create=True) as producer:
                for value in (b"1", b"2"):
                    await producer.send(value)
            options: Any = {"type": "shared", "nack_delay_s": 0.3}
            async with await client.consumer(topic, "judge", **options) as consumer:
                seen = []
                for _ in range(2):
                    message = await consumer.receive(10)
                    assert message is not None
                    seen.append(message)
                consumer.negative_acknowledge(seen[0])
                seen.append(await consumer.receive(10))  # type: ignore[arg-type]
                await consumer.seek(seen[0].id)
                seen.append(await consumer.receive(10))  # type: ignore[arg-type]
                return values(seen)

    assert asyncio.run(run()) == [b"1", b"2", b"1", b"1"]


# --- dead letters -------------------------------------------------------------------------------


@pytest.mark.parametrize("batched", [False, True])
def test_what_comes_too_often_becomes_a_dead_letter(
    client: PulsarClient, topic: str, pulsar_standalone: PulsarStandalone, batched: bool
) -> None:
    with client.producer(topic, create=True, linger_ms=1000 if batched else 0) as producer:
        for number in range(3):
            producer.send(b"%d" % number, key=f"k{number}", properties={"n": str(number)})
            if not batched:
                producer.flush()
    options: Any = {"type": "shared", "nack_delay_s": 0.1, "max_redeliveries": 2}

    def is_moved() -> bool:
        return backlog(pulsar_standalone.admin_url, topic) == 0

    with client.consumer(topic, "judge", **options) as consumer:
        rounds = 0
        for messages in batches_until(consumer, is_moved):
            rounds = max(rounds, *(one.redelivery_count for one in messages))
            good = [one for one in messages if one.value == b"1" and not batched]
            consumer.acknowledge(good)
            consumer.negative_acknowledge([one for one in messages if one not in good])
        assert rounds == 2
        client.producer(topic).send(b"next").result()
        (message,) = received(consumer, 1)
        assert message.value == b"next"
        consumer.acknowledge(message)
    # By Pulsar's defaults, brokers delete topics without subscriptions, and their messages.
    path = f"{topic}-judge-DLQ".replace("://", "/")
    kept = call(pulsar_standalone.admin_url, "GET", f"/v2/{path}/stats")["subscriptions"]
    assert kept["judge"]["msgBacklog"] > 0
    with client.reader(f"{topic}-judge-DLQ", columns=("key", "properties")) as reader:
        rows = [row for one in reader.read_to(reader.last_id) for row in one.to_pylist()]
    for row in rows:
        properties = dict(row["properties"])
        assert row["key"] == b"k" + properties["n"].encode()
        assert properties["REAL_TOPIC"] == topic
        assert properties["REAL_SUBSCRIPTION"] == "judge"
    seen = drain(pulsar_standalone.service_url, f"{topic}-judge-DLQ")
    lost = [b"0", b"1", b"2"] if batched else [b"0", b"2"]
    assert sorted(one.value for one in seen) == lost
    with client.consumer(topic, "judge", type="shared") as consumer:
        assert unacknowledged(client, consumer) == []


@pytest.mark.parametrize("in_txn", [False, True])
def test_what_was_acknowledged_of_a_batch_neither_comes_again_nor_is_dead(
    client: PulsarClient, topic: str, pulsar_standalone: PulsarStandalone, in_txn: bool
) -> None:
    with client.producer(topic, create=True, linger_ms=1000) as producer:
        for value in (b"good", b"bad", b"late"):
            producer.send(value)
    options: Any = {"type": "shared", "nack_delay_s": 0.1, "max_redeliveries": 2}
    with client.consumer(topic, "judge", **options) as consumer:
        good, bad, late = received(consumer, 3)
        consumer.acknowledge(good)
        consumer.negative_acknowledge(bad)
        bad, late = received(consumer, 2)
        assert values([bad, late]) == [b"bad", b"late"]
        consumer.acknowledge(late)
        consumer.negative_acknowledge(bad)
        (bad,) = received(consumer, 1)
        if in_txn:
            with client.transaction() as txn:
                consumer.acknowledge(bad, txn)
        else:
            consumer.negative_acknowledge(bad)
        url = pulsar_standalone.admin_url
        assert not list(batches_until(consumer, lambda: backlog(url, topic) == 0))
    with client.consumer(topic, "judge", **options) as consumer:
        assert unacknowledged(client, consumer) == []
    if not in_txn:
        dead = drain(pulsar_standalone.service_url, f"{topic}-judge-DLQ")
        assert [one.value for one in dead] == [b"bad"]


def test_a_message_is_in_one_of_both_topics_if_moving_it_fails(
    client: PulsarClient,
    topic: str,
    pulsar_standalone: PulsarStandalone,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(client, topic, b"bad")
    options: Any = {"type": "shared", "nack_delay_s": 0.1, "max_redeliveries": 0}
    with client.consumer(topic, "judge", **options) as consumer:
        (message,) = received(consumer, 1)
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "acknowledge", _refuse)
            consumer.negative_acknowledge(message)
            with pytest.raises(Retriable, match="not now"):
                consumer.receive(20)
        url = pulsar_standalone.admin_url  # it comes again, and is moved
        assert not list(batches_until(consumer, lambda: backlog(url, topic) == 0))
    dead = drain(pulsar_standalone.service_url, f"{topic}-judge-DLQ")
    assert [one.value for one in dead] == [b"bad"]


def _refuse(*_: object, **__: object) -> None:
    raise Retriable("not now")


# --- seeking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_subscription_moves_to_a_message(client: PulsarClient, topic: str, kind: Any) -> None:
    ids = send(client, topic, *(b"%d" % number for number in range(10)))
    with client.consumer(topic, "judge", type=kind) as consumer:
        messages = received(consumer, 10)
        consumer.acknowledge(messages)
        consumer.seek(ids[6])
        again = received(consumer, 4)
        assert values(again) == [b"6", b"7", b"8", b"9"]
        consumer.seek(ids[8])
        with pytest.raises(Retriable):
            consumer.acknowledge(again[0])  # an earlier copy
        assert values(received(consumer, 2)) == [b"8", b"9"]
        assert consumer.receive(0.3) is None


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_subscription_moves_to_a_message_of_a_batch(
    client: PulsarClient, topic: str, kind: Any
) -> None:
    with client.producer(topic, create=True, linger_ms=1000) as producer:
        sent = [producer.send(b"%d" % number) for number in range(10)]
        producer.flush()
        ids = [one.result() for one in sent]
    with client.consumer(topic, "judge", type=kind) as consumer:
        received(consumer, 10)
        for first in (6, 0, 3):
            consumer.seek(ids[first])
            for _ in range(2):  # a later copy has no earlier messages either
                again = received(consumer, 10 - first)
                assert values(again) == [b"%d" % number for number in range(first, 10)]
                consumer.redeliver()
        with client.transaction() as txn:
            consumer.acknowledge(received(consumer, 7), txn)
    with client.consumer(topic, "judge", type=kind) as consumer:
        assert unacknowledged(client, consumer) == []


def test_a_subscription_moves_to_a_publish_time(client: PulsarClient, topic: str) -> None:
    send(client, topic, b"old")
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    send(client, topic, b"new")
    with client.consumer(topic, "judge") as consumer:
        consumer.acknowledge(received(consumer, 2))
        consumer.seek(between_ms)
        assert values(received(consumer, 1)) == [b"new"]
        consumer.seek(0)
        assert values(received(consumer, 2)) == [b"old", b"new"]


def test_others_see_the_new_place(
    client: PulsarClient, topic: str, pulsar_standalone: PulsarStandalone
) -> None:
    ids = send(client, topic, b"1", b"2", b"3")
    with client.consumer(topic, "judge") as consumer:
        consumer.acknowledge(received(consumer, 3))
        consumer.seek(ids[1])
    with closing(quiet_client(pulsar_standalone.service_url)) as plain:
        reader = plain.subscribe(topic, "judge")
        assert [reader.receive(10_000).data() for _ in range(2)] == [b"2", b"3"]


@pytest.mark.parametrize("where", [None, -1, 2**63, True, "earliest", MessageId(-1, -1)])
def test_a_wrong_place_is_refused(client: PulsarClient, topic: str, where: Any) -> None:
    send(client, topic, b"1")
    with client.consumer(topic, "judge") as consumer:
        with pytest.raises(ConfigurationError, match="seek"):
            consumer.seek(where)
        assert values(received(consumer, 1)) == [b"1"]


# --- options ------------------------------------------------------------------------------------


def test_messages_go_to_the_first_priority(client: PulsarClient, topic: str) -> None:
    client.create_unpartitioned(topic)
    low = client.consumer(topic, "judge", type="shared", priority_level=1)
    with low, client.consumer(topic, "judge", type="shared", priority_level=0) as high:
        # One by one: without permits of the first one, the broker takes the other one.
        for number in range(20):
            send(client, topic, b"%d" % number)
            assert values(received(high, 1)) == [b"%d" % number]
        assert low.receive(0.2) is None


def test_a_subscription_can_be_replicated(
    client: PulsarClient, topic: str, pulsar_standalone: PulsarStandalone
) -> None:
    send(client, topic, b"1")
    with client.consumer(topic, "judge", replicate_subscription_state=True):
        path = f"/v2/{topic.replace('://', '/')}/stats"
        stats = call(pulsar_standalone.admin_url, "GET", path)
    assert stats["subscriptions"]["judge"]["isReplicated"] is True


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("type", "multi"),
        ("start", "first"),
        ("priority_level", -1),
        ("nack_delay_s", 0),
        ("nack_delay_s", 601),
        ("nack_max_delay_s", 100_000),
        ("max_redeliveries", 3),
        ("dead_letter_topic", "dead"),
    ],
)
def test_wrong_options_are_named(client: PulsarClient, topic: str, option: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=option):
        client.consumer(topic, "judge", **{option: value})
