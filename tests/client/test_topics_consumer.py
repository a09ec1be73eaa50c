"""One consumer of partitions, of several topics and of a pattern; retries and delays."""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import closing

import pulsar
import pytest

from eos import KeyedState
from eos.client import _topics_consumer
from eos.client._consumer import ConsumerFactory
from eos.client._topics_consumer import TopicGroup
from eos.errors import (
    ConfigurationError,
    ConsumerBusy,
    Fatal,
    InputError,
    MessageTooLarge,
    Retriable,
    TopicNotFound,
    TransactionPoisoned,
)
from eos.ids import TopicName
from tests.support import admin
from tests.support.java_client import java_client
from tests.support.judge import drain, quiet_client
from tests.support.receiving import batches_until, received
from tests.transport.scripted import wait_until


@pytest.fixture
def topic(name, pulsar_standalone):
    """A topic of this test, with three partitions."""
    admin.create_partitioned(pulsar_standalone.admin_url, name, 3)
    return f"persistent://public/default/{name}"


def path_of(topic):
    return f"/v2/{topic.replace('://', '/')}"


def backlogs(broker, consumer):
    return [admin.backlog(broker.admin_url, one) for one in consumer.topics]


def send(client, topic, values, **options):
    with client.producer(topic, create=True, max_batch_messages=5) as producer:
        for value in values:
            producer.send(value, key=value[:2].decode(), **options)


TICK_MS = 1000  # brokers deliver so much early: delayedDeliveryTickTimeMillis
VALUES = [b"%02d-%d" % (number % 20, number) for number in range(300)]


def test_partitions_are_consumed_as_one_topic_in_one_transaction(
    client, pulsar_standalone, topic, name
):
    send(client, topic, VALUES)
    partitions = [f"{topic}-partition-{number}" for number in range(3)]
    with client.topics_consumer(topic, "judge") as consumer:
        assert consumer.topics == partitions
        seen = received(consumer, 300)
        assert Counter(one.value for one in seen) == Counter(VALUES)
        assert {one.topic for one in seen} == set(partitions)
        for key in {value[:2] for value in VALUES}:  # in order within a key
            numbers = [int(one.value[3:]) for one in seen if one.value[:2] == key]
            assert numbers == sorted(numbers)
        with client.producer(f"{name}-out", create=True) as out:
            with client.transaction() as txn:
                out.send(b"aborted", txn=txn)
                consumer.acknowledge(seen, txn)
                txn.abort()
            again = received(consumer, 300)
            assert Counter(one.value for one in again) == Counter(VALUES)
            with client.transaction() as txn:
                out.send(b"committed", txn=txn)
                consumer.acknowledge(again, txn)
        assert consumer.receive(0.3) is None
        assert backlogs(pulsar_standalone, consumer) == [0, 0, 0]
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}-out")
    assert [one.value for one in seen] == [b"committed"]


def test_other_ways_to_acknowledge(client, pulsar_standalone, topic):
    send(client, topic, VALUES)
    with client.topics_consumer(topic, "judge", nack_delay_s=0.2) as consumer:
        seen = received(consumer, 300)
        newest = {one.topic: one for one in seen}
        for one in newest.values():
            consumer.acknowledge_cumulative(one)
        assert backlogs(pulsar_standalone, consumer) == [0, 0, 0]
        consumer.seek(0)
        again = received(consumer, 300)
        assert Counter(one.value for one in again) == Counter(VALUES)
        consumer.negative_acknowledge(again)
        assert len(received(consumer, 300)) == 300
        consumer.redeliver()
        assert len(received(consumer, 300)) == 300
        with pytest.raises(ConfigurationError, match="publish time"):
            consumer.seek(again[0].id)


def test_a_partition_that_moves_is_read_on(client, pulsar_standalone, topic):
    send(client, topic, VALUES)
    with client.topics_consumer(topic, "judge", type="shared") as consumer:
        (first,) = received(consumer, 1)[:1]
        pulsar_standalone.admin("PUT", f"{path_of(first.topic)}/unload")
        seen = {}
        while len(seen) < 300:
            batch = consumer.receive_batch(100, 10)
            assert batch
            for one in batch:
                try:
                    consumer.acknowledge(one)
                    seen[one.value] = one
                except Retriable:
                    pass  # of before the move: it comes again
        assert seen.keys() == set(VALUES)


def test_partitions_that_are_added_are_read_from_their_first_message(
    client, pulsar_standalone, topic
):
    with client.topics_consumer(topic, "judge", start="latest", discovery_s=0.3) as consumer:
        pulsar_standalone.admin("POST", f"{path_of(topic)}/partitions", 5)
        send(client, topic, VALUES)
        seen = received(consumer, 300)
        assert Counter(one.value for one in seen) == Counter(VALUES)
        assert len({one.topic for one in seen}) == len(consumer.topics) == 5


def test_topics_of_a_pattern_come_and_go(client, pulsar_standalone, name):
    def full(suffix):
        return f"persistent://public/default/{name}-{suffix}"

    send(client, full("a"), [b"a1"])
    send(client, full("other"), [b"o1"])
    pattern = re.compile(f"public/default/{name}-[a-z]")
    with client.topics_consumer(pattern, "judge", start="latest", discovery_s=0.3) as consumer:
        assert consumer.topics == [full("a")]
        send(client, full("b"), [b"b1"])  # before it is found
        admin.create_partitioned(pulsar_standalone.admin_url, f"{name}-c", 2)
        send(client, full("c"), VALUES[:20])
        seen = received(consumer, 21)
        assert {one.value for one in seen} == {b"b1", *VALUES[:20]}
        old = [one for one in seen if one.topic == full("b")]
        pulsar_standalone.admin("DELETE", f"{path_of(full('b'))}?force=true")
        assert not list(batches_until(consumer, lambda: full("b") not in consumer.topics))
        txn = client.transaction()
        with pytest.raises(Retriable, match="not read any more"):
            consumer.acknowledge(old, txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()
        send(client, full("a"), [b"a2"])
        assert consumer.receive(10).value == b"a2"


def test_a_topic_that_is_found_while_another_thread_closes_is_closed_too(
    client, pulsar_standalone, name, monkeypatch
):
    first, found = (f"persistent://public/default/{name}-{end}" for end in "ab")
    send(client, first, [b"1"])
    pattern = re.compile(f"public/default/{name}-[a-z]")
    consumer = client.topics_consumer(pattern, "judge", start="latest", discovery_s=0.2)
    go_on = ConsumerFactory.open

    def close_first(*args):
        consumer.close()
        return go_on(*args)

    monkeypatch.setattr(ConsumerFactory, "open", close_first)
    send(client, found, [b"2"])
    with pytest.raises(Fatal, match="closed"):
        consumer.receive(20)
    for one in (first, found):
        seen = admin.call(pulsar_standalone.admin_url, "GET", f"{path_of(one)}/stats")
        assert seen["subscriptions"]["judge"]["consumers"] == []


def test_a_closed_consumer_moves_no_message(client, pulsar_standalone, topic):
    send(client, topic, [b"1"])
    with client.topics_consumer(topic, "judge", type="shared", retry=True) as consumer:
        messages = received(consumer, 1)
    with pytest.raises(Fatal, match="closed"):
        consumer.retry_later(messages, 0.0)
    retries = f"{path_of(topic)}-judge-RETRY/stats"
    assert admin.call(pulsar_standalone.admin_url, "GET", retries)["publishers"] == []


def test_a_topic_without_an_answer_does_not_stop_the_others(client, topic, monkeypatch, caplog):
    send(client, topic, VALUES)
    with client.topics_consumer(topic, "judge", discovery_s=0.01) as consumer:

        def failing(group):
            raise Retriable("no answer")

        monkeypatch.setattr(_topics_consumer.TopicGroup, "find", failing)
        assert len(received(consumer, 300)) == 300
        assert consumer.receive(0.1) is None
    assert "Looking for new topics of judge" in caplog.text


def test_exclusive_and_missing_topics_are_refused_and_nothing_stays_open(client, topic, name):
    first = f"{topic}-partition-2"
    with client.consumer(first, "judge"):
        with pytest.raises(ConsumerBusy):
            client.topics_consumer(topic, "judge")
        client.consumer(f"{topic}-partition-0", "judge").close()  # was closed
    with pytest.raises(TopicNotFound):
        client.topics_consumer([topic, f"{name}-missing"], "judge")
    for wrong, options in (
        ([], {}),
        (topic, {"discovery_s": 0}),
        (topic, {"retry": True}),
        (re.compile("x.*"), {"retry": True, "type": "shared"}),
        (re.compile("a/b.*/c"), {}),
        (re.compile("a/b"), {}),
        (re.compile("non-persistent://public/default/x"), {}),
        (re.compile(b"x"), {}),
        (re.compile("(?i)x"), {}),
    ):
        with pytest.raises(ConfigurationError):
            client.topics_consumer(wrong, "judge", **options)
    with pytest.raises(ConfigurationError, match="name"):
        client.topics_consumer(topic, "")
    with client.topics_consumer(re.compile(f"{name}-nothing.*"), "judge") as consumer:
        assert consumer.receive(0.1) is None


def test_retries_come_later_and_then_are_dead_letters(client, pulsar_standalone, topic):
    values = VALUES[:6]
    send(client, topic, values)
    options = {"type": "shared", "retry": True, "max_redeliveries": 2}
    with client.topics_consumer(topic, "judge", **options) as consumer:
        for attempt in range(3):
            seen = received(consumer, 6)
            assert sorted(one.value for one in seen) == sorted(values)
            assert [one.properties.get("RECONSUMETIMES") for one in seen] == 6 * [
                str(attempt) if attempt else None
            ]
            if attempt:
                assert {one.topic for one in seen} == {f"{topic}-judge-RETRY"}
            txn = client.transaction()
            consumer.retry_later(seen, 0.0, txn)
            txn.abort()  # then they are not moved
            again = received(consumer, 6)
            assert sorted(one.value for one in again) == sorted(values)
            consumer.retry_later(again, 1.0)
        # No more of them is in the retry topic.
        wait_until(lambda: backlogs(pulsar_standalone, consumer) == 4 * [0])
        assert consumer.receive(0.3) is None
    dead = drain(pulsar_standalone.service_url, f"{topic}-judge-DLQ")
    assert sorted(one.value for one in dead) == sorted(values)
    for one in dead:
        assert one.properties["REAL_TOPIC"] == topic
        assert one.properties["REAL_SUBSCRIPTION"] == "judge"
        assert one.properties["RECONSUMETIMES"] == "2"


def test_retries_go_to_and_fro_with_the_java_client(client, pulsar_standalone, topic):
    values = sorted(VALUES[:6])
    send(client, topic, values)
    policy = {"subscription": "judge", "max": 2}

    def seen_by(messages, times):
        assert sorted(one.value for one in messages) == values
        assert [one.properties.get("RECONSUMETIMES") for one in messages] == 6 * [times]

    def consume(times):
        options = {"type": "shared", "retry": True, "max_redeliveries": 2}
        with client.topics_consumer(topic, "judge", **options) as consumer:
            seen = received(consumer, 6)
            seen_by(seen, times)
            consumer.retry_later(seen, 0.0)

    with java_client(pulsar_standalone.service_url) as java:
        seen_by(java.consume(topic, 6, laterMs=1, **policy), None)
        consume("1")
        seen_by(java.consume(topic, 6, laterMs=1, **policy), "2")
        dead = java.read(f"{topic}-judge-DLQ")
        assert sorted(one.value for one in dead) == values
        send(client, topic, values)
        consume(None)
        seen_by(java.consume(topic, 6, laterMs=1, **policy), "1")
        consume("2")
        dead = java.read(f"{topic}-judge-DLQ")
        assert sorted(one.value for one in dead) == sorted(2 * values)
    for one in dead:
        assert one.properties["REAL_TOPIC"] == topic
        assert one.properties["ORIGIN_MESSAGE_ID"]


def test_a_consumer_without_retries_says_so(client, topic):
    send(client, topic, [b"one"])
    consumer = client.topics_consumer(topic, "judge", type="shared")
    with consumer, pytest.raises(ConfigurationError, match="retry=True"):
        consumer.retry_later(consumer.receive(10), 1.0)
    with client.topics_consumer(topic, "other", type="shared", retry=True) as consumer:
        for delay_s in (-1.0, float("nan"), float("inf")):
            with pytest.raises(ConfigurationError, match="delay_s"):
                consumer.retry_later([], delay_s)


def test_messages_that_are_moved_in_part_are_not_committed(client, name):
    with client.producer(name, create=True) as producer:
        producer.send(b"one")
        producer.send(b"dead", properties={"RECONSUMETIMES": "1"})
    missing = "persistent://public/missing/dead"
    options = {"type": "shared", "max_redeliveries": 1, "dead_letter_topic": missing}
    with client.topics_consumer(name, "judge", retry=True, **options) as consumer:
        txn = client.transaction()
        with pytest.raises(TopicNotFound):
            consumer.retry_later(received(consumer, 2), 0.0, txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()


def test_numbers_of_retries_of_other_producers_do_no_harm(client, topic):
    with client.producer(topic) as producer:
        for text in ("x", "-1", "9" * 50, "²"):
            producer.send(b"odd", properties={"RECONSUMETIMES": text})
    with client.topics_consumer(topic, "judge", type="shared", retry=True) as consumer:
        consumer.retry_later(received(consumer, 4), 0.0)
        again = received(consumer, 4)
        assert [one.properties["RECONSUMETIMES"] for one in again] == 4 * ["1"]


def test_a_delayed_message_comes_at_its_time(client, pulsar_standalone, name):
    with closing(quiet_client(pulsar_standalone.service_url)) as plain:
        judges = [
            plain.subscribe(f"{name}-{in_transaction}", "judge", pulsar.ConsumerType.Shared)
            for in_transaction in (False, True)
        ]
        at_ms = int(time.time() * 1000) + 10_000
        for in_transaction in (False, True):
            topic = f"{name}-{in_transaction}"
            with client.producer(topic) as producer, client.transaction() as txn:
                within = {"txn": txn} if in_transaction else {}
                producer.send(b"late", deliver_at_ms=at_ms, **within)
                producer.send(b"soon", **within)
                producer.send(b"late too", deliver_at_ms=at_ms, **within)
        for judge in judges:
            assert judge.receive(20_000).data() == b"soon"
        assert time.time() * 1000 < at_ms - TICK_MS
        for judge in judges:
            assert {judge.receive(40_000).data() for _ in range(2)} == {b"late", b"late too"}
            assert time.time() * 1000 >= at_ms - TICK_MS


def test_a_state_may_have_a_partitioned_input(client, pulsar_standalone, topic, name):
    send(client, topic, VALUES)
    with (
        client.topics_consumer(topic, "counter") as consumer,
        KeyedState(client, f"{name}-state", consumer) as counts,
    ):
        for _ in range(2):
            left = len(VALUES)
            while left:
                messages = consumer.receive_batch(100, 20)
                assert messages
                left -= len(messages)
                with counts.transaction() as txn:
                    for one in messages:
                        counts.put(one.key, b"%d" % (int(counts.get(one.key, b"0")) + 1), txn)
                    consumer.acknowledge(messages, txn)
            send(client, topic, VALUES)
        assert {key: int(value) for key, value in counts.items()} == {
            f"{number:02}": 30 for number in range(20)
        }
    shared = client.topics_consumer(topic, "other", type="shared")
    with shared, pytest.raises(ConfigurationError, match="exclusive"):
        KeyedState(client, f"{name}-state", shared)


def test_topics_take_turns(client, name):
    for topic in ("a", "b"):
        with client.producer(f"{name}-{topic}", create=True, max_batch_messages=1) as producer:
            for number in range(50):
                producer.send(b"%d" % number)
    with client.topics_consumer([f"{name}-a", f"{name}-b"], "judge") as consumer:
        first = received(consumer, 2)
        wait_until(lambda: all(one.is_ready for one in consumer._consumers.values()))
        seen = [*first, *(consumer.receive(10) for _ in range(40))]
        assert len({one.topic for one in seen}) == 2


def test_moving_messages_survives_an_unload(client, pulsar_standalone, topic):
    options = {"type": "shared", "retry": True, "nack_delay_s": 0.1, "max_redeliveries": 1}
    with client.topics_consumer(topic, "judge", **options) as consumer:
        for value in (b"first", b"second"):  # the producers of the first one fail
            send(client, topic, [value])
            consumer.retry_later(received(consumer, 1), 0.0)  # to the retry topic
            (again,) = received(consumer, 1)
            consumer.retry_later(again, 0.0)  # to the dead letters
            send(client, topic, [value + b", refused"])
            for _ in range(2):
                (again,) = received(consumer, 1)
                consumer.negative_acknowledge(again)
            # To the dead letters, by redeliveries.
            ended = batches_until(consumer, lambda: not any(backlogs(pulsar_standalone, consumer)))
            assert not list(ended)
            for moved in ("RETRY", "DLQ"):
                pulsar_standalone.admin("PUT", f"{path_of(topic)}-judge-{moved}/unload")
    dead = drain(pulsar_standalone.service_url, f"{topic}-judge-DLQ")
    assert sorted(one.value for one in dead) == [
        b"first",
        b"first, refused",
        b"second",
        b"second, refused",
    ]


def test_a_message_that_is_too_large_to_be_moved_is_received_again(client, name, caplog):
    with client.producer(f"{name}-in", create=True) as producer:
        value = b"x" * (producer._max_message_bytes - 100)
        producer.send(value).result()
    options = {"type": "shared", "retry": True, "nack_delay_s": 0.1, "max_redeliveries": 0}
    with client.topics_consumer(f"{name}-in", "judge", **options) as consumer:
        (first,) = received(consumer, 1)
        with pytest.raises(MessageTooLarge):
            consumer.retry_later(first, 0.0)
        consumer.negative_acknowledge(first)
        (again,) = received(consumer, 1)
        assert again.value == value
        assert f"{again.id} of {again.topic} is not moved" in caplog.text
        consumer.acknowledge(again)
        assert consumer.receive(0.5) is None


@pytest.mark.parametrize("wrong", [-1, 2**63, 1.5, "soon", True])
def test_a_wrong_time_of_delivery_harms_no_other_message(client, name, wrong):
    with client.producer(name, create=True, linger_ms=1000) as producer:
        waiting = producer.send(b"one")
        txn = client.transaction()
        with pytest.raises(InputError, match="deliver_at_ms"):
            producer.send(b"two", txn=txn, deliver_at_ms=wrong)
        with pytest.raises(TransactionPoisoned):
            txn.commit()
        producer.send(b"three").result()
        assert waiting.result()


def test_a_topic_with_fewer_partitions_is_read_on(client, pulsar_standalone, topic, name):
    with client.topics_consumer(topic, "judge", discovery_s=0.3) as consumer:
        pulsar_standalone.admin("DELETE", f"{path_of(topic)}/partitions?force=true")
        admin.create_partitioned(pulsar_standalone.admin_url, name, 1)
        send(client, topic, [b"new"])
        assert consumer.receive(20).value == b"new"
        assert not list(
            batches_until(consumer, lambda: consumer.topics == [f"{topic}-partition-0"])
        )


def test_a_pattern_leaves_its_own_dead_letters_out(client, pulsar_standalone, topic):
    for one in ("a", "b"):
        client.producer(f"{topic}-{one}", create=True).close()
    pattern = re.compile(
        f"{TopicName.parse(topic).namespace_name}/{TopicName.parse(topic).local}-.*"
    )
    options = {"type": "shared", "nack_delay_s": 0.1, "max_redeliveries": 1, "discovery_s": 0.3}
    url = pulsar_standalone.admin_url
    for given, dead in ((None, f"{topic}-a-judge-DLQ"), (f"{topic}-dead", f"{topic}-dead")):
        with (
            client.producer(f"{topic}-a") as producer,
            client.topics_consumer(
                pattern, "judge", dead_letter_topic=given, **options
            ) as consumer,
        ):
            producer.send(b"poison").result()
            for batch in batches_until(consumer, lambda: not admin.backlog(url, f"{topic}-a")):
                consumer.negative_acknowledge(batch)
            assert client.partition_count(dead) == 0
            # A look that finds this one has found the dead letters.
            newest = f"{topic}-newest-{given is None}"
            client.producer(newest, create=True).close()
            for batch in batches_until(consumer, lambda newest=newest: newest in consumer.topics):
                consumer.negative_acknowledge(batch)
            assert not [one for one in consumer.topics if "DLQ" in one or "dead" in one]


class Names:
    """A namespace with topics that only some clients accept, and those of a sink."""

    def topics(self, _: str) -> list[str]:
        own = "__eos-receipts-orders-00000000-0000-0000-0000-000000000000"
        return [f"persistent://public/default/{one}" for one in ("orders-a", "x y", own)]


def test_a_pattern_finds_topics_of_users_only():
    found = TopicGroup(re.compile("public/default/.*"), Names()).find()
    assert found == ["persistent://public/default/orders-a"]


def test_a_topic_that_cannot_be_subscribed_keeps_no_other_one_out(client, topic, caplog):
    local = TopicName.parse(topic).local
    client.producer(f"{topic}-a", create=True).close()
    with client.topics_consumer(
        re.compile(f"public/default/{local}-.*"), "judge", discovery_s=0.2
    ) as consumer:
        for one in ("b", "c"):
            client.producer(f"{topic}-{one}", create=True).close()
        with client.consumer(f"{topic}-b", "judge"):
            assert not list(batches_until(consumer, lambda: len(consumer.topics) >= 2))
            assert consumer.topics == [f"{topic}-a", f"{topic}-c"]
    assert f"Subscribing judge to {topic}-b" in caplog.text
