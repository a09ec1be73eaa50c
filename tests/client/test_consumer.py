"""The consumer on a real broker: receiving, acknowledging and redelivery."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pulsar
import pytest

from eos.client import PulsarClient, ReceivedMessage
from eos.errors import (
    ConfigurationError,
    InputError,
    ProtocolError,
    Retriable,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.ids import MessageId
from eos.wire.batch import Message, encode_batches, rows_from_messages
from tests.support.admin import call
from tests.support.expiry import await_expiry
from tests.support.hostile import send_claiming, send_inflating
from tests.support.judge import drain, quiet_client
from tests.support.receiving import batches_until, received, unacknowledged
from tests.transport.scripted import wait_until

EARLIEST = pulsar.InitialPosition.Earliest


def send(client: PulsarClient, topic: str, count: int) -> None:
    """Send the numbers below ``count``, one entry each."""
    producer = client.entry_producer(topic, create=True)
    messages = [Message(b"%d" % n, key=f"k{n % 5}") for n in range(count)]
    for message in messages:
        for batch in encode_batches(rows_from_messages([message]), by_key=True):
            producer.send_batch(batch)
    producer.close()


def numbers(messages: list[ReceivedMessage]) -> list[int]:
    """The values of ``messages``."""
    return [int(one.value or b"-1") for one in messages]


def test_a_committed_transaction_moves_messages_and_an_aborted_one_does_not(
    client, name, pulsar_standalone
):
    send(client, name, 4)
    output = client.entry_producer(f"{name}-out", create=True)
    with client.consumer(name, "s") as consumer:
        messages = consumer.receive_batch(2, timeout_s=20)
        aborted = client.transaction()
        for message in messages:
            output.send(message.value, txn=aborted)
        consumer.acknowledge(messages, txn=aborted)
        aborted.abort()
        assert numbers(unacknowledged(client, consumer))[-4:] == [0, 1, 2, 3]
    with client.consumer(name, "s") as consumer:
        first = [consumer.receive(20) for _ in range(3)]
        with client.transaction() as txn:
            for message in first:
                output.send(message.value, txn=txn)
            consumer.acknowledge(first, txn=txn)
    with client.consumer(name, "s") as consumer:
        assert numbers(unacknowledged(client, consumer)) == [3]
    topic = f"persistent://public/default/{name}-out"
    seen = [one.value for one in drain(pulsar_standalone.service_url, topic)]
    assert seen == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
def test_what_is_acknowledged_does_not_come_again_and_the_rest_does(client, name, kind):
    send(client, name, 6)
    with client.consumer(name, "s", type=kind) as consumer:
        messages = [consumer.receive(20) for _ in range(6)]
        consumer.acknowledge(messages[:3])
        consumer.redeliver()
        assert sorted(numbers(received(consumer, 3))) == [3, 4, 5]
        assert consumer.receive(0.2) is None
    with client.consumer(name, "s", type=kind) as consumer:
        assert sorted(numbers(unacknowledged(client, consumer))) == [3, 4, 5]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
def test_consumers_that_share_get_each_message_once(client, name, kind):
    client.create_unpartitioned(name)
    with (
        client.consumer(name, "s", type=kind) as one,
        client.consumer(name, "s", type=kind) as two,
    ):
        send(client, name, 40)
        got: tuple[list[int], list[int]] = [], []

        def come() -> bool:
            for seen, consumer in zip(got, (one, two), strict=True):
                seen += numbers(consumer.receive_batch(40, 0.1))
            return len(got[0]) + len(got[1]) >= 40

        wait_until(come)
        come()  # a second copy
    assert sorted(got[0] + got[1]) == list(range(40))
    if kind == "key_shared":
        assert not {n % 5 for n in got[0]} & {n % 5 for n in got[1]}


def test_it_goes_on_after_an_unload_and_old_copies_cannot_be_acknowledged(
    client, name, pulsar_standalone
):
    send(client, name, 3)
    with client.consumer(name, "s") as consumer:
        old = consumer.receive(20)
        call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
        txn = client.transaction()
        with pytest.raises(Retriable):
            consumer.acknowledge(old, txn=txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()
        assert numbers(unacknowledged(client, consumer))[-3:] == [0, 1, 2]


@pytest.mark.parametrize("count", [0, -1, -1000, -(2**31)])
def test_entries_that_claim_to_hold_less_than_nothing_are_acknowledged_by_name(client, name, count):
    for _ in range(3):
        sent = send_claiming(client, name, count)
    send(client, name, 1)  # the broker holds entries of no message back until another one follows
    with client.consumer(name, "s") as consumer:
        for entry in range(3):
            at = MessageId(sent.ledger, entry)
            with pytest.raises(ProtocolError, match=f"^The entry {re.escape(str(at))} can't be "):
                consumer.receive(20)
            consumer.acknowledge(at)
    # Not before: a count below zero raises the broker's permits, and it may send more than allowed.
    send(client, name, 2000)
    with client.consumer(name, "s") as consumer:
        assert numbers(unacknowledged(client, consumer)) == [0, *range(2000)]


def test_a_batch_ends_early_where_few_bytes_become_much(client, name):
    send_inflating(client, name, [bytes(20 << 20)] * 5)
    with client.consumer(name, "s") as consumer:
        batches = [len(consumer.receive_batch(100, timeout_s=20)) for _ in range(3)]
    assert batches == [2, 2, 1]


def test_messages_before_an_entry_that_cannot_be_read_are_given_before_its_error(client, name):
    send(client, name, 3)
    odd = send_claiming(client, name, 7)
    send(client, name, 2)
    with client.consumer(name, "s") as consumer:
        given, deadline = consumer.receive_batch(100, timeout_s=20), time.monotonic() + 20
        while len(given) < 3 and time.monotonic() < deadline:
            given += consumer.receive_batch(100, timeout_s=20)
        assert [one.value for one in given] == [b"0", b"1", b"2"]
        with pytest.raises(ProtocolError, match=f"^The entry {re.escape(str(odd))} can't be "):
            consumer.receive_batch(100, timeout_s=20)
        assert numbers(unacknowledged(client, consumer)) == [0, 1]


def test_delayed_messages_are_waited_for_by_those_who_share_as_with_pulsar_client(
    client, name, pulsar_standalone
):
    plain = quiet_client(pulsar_standalone.service_url)
    producer = plain.create_producer(name)
    producer.send(b"1", deliver_after=timedelta(hours=1))
    producer.send(b"2")
    for kind, theirs, values in (
        ("shared", pulsar.ConsumerType.Shared, [2]),
        ("key_shared", pulsar.ConsumerType.KeyShared, [2]),
        ("exclusive", pulsar.ConsumerType.Exclusive, [1, 2]),
    ):
        with client.consumer(name, f"ours-{kind}", type=kind) as consumer:
            assert numbers(received(consumer, len(values))) == values
            assert consumer.receive(0.2) is None
        judge = plain.subscribe(name, f"theirs-{kind}", theirs, initial_position=EARLIEST)
        assert [int(judge.receive(30_000).data()) for _ in values] == values
        judge.close()
    with client.reader(name, columns=("value",)) as reader:
        (batch,) = reader.read_to(reader.last_id)
        assert batch.column("value").to_pylist() == [b"1", b"2"]
    plain.close()


def test_a_part_of_an_entry_is_not_committed(client, name):
    producer = client.entry_producer(name, create=True)
    producer.send_many([Message(b"%d" % n) for n in range(3)])
    producer.flush()
    with client.consumer(name, "s") as consumer:
        messages = consumer.receive_batch(1, timeout_s=20)
        assert len(messages) == 3
        txn = client.transaction()
        consumer.acknowledge(messages[:2], txn=txn)
        with pytest.raises(TransactionPoisoned, match="Only some messages"):
            txn.commit()
        assert numbers(unacknowledged(client, consumer)) == [0, 1, 2]


def test_one_entry_is_not_acknowledged_in_two_transactions(client, name):
    producer = client.entry_producer(name, create=True)
    for receipt in producer.send_many([Message(b"a"), Message(b"b")]):
        receipt.result(timeout=20)
    with client.consumer(name, "s") as consumer:
        first, second = consumer.receive_batch(10, timeout_s=20)
        one, other = client.transaction(), client.transaction()
        consumer.acknowledge(first, txn=one)
        with pytest.raises(InputError):
            consumer.acknowledge(second, txn=other)
        with pytest.raises(TransactionPoisoned):
            other.commit()
        one.abort()


def test_an_open_transaction_outlives_its_consumer_until_it_is_aborted(client, name):
    send(client, name, 2)
    txn = client.transaction()
    with client.consumer(name, "s") as consumer:
        consumer.acknowledge(consumer.receive(20), txn=txn)
    with client.consumer(name, "s") as consumer:
        txn.abort()
        seen: set[int] = set()
        for batch in batches_until(consumer, lambda: seen >= {0, 1}):
            seen.update(numbers(batch))
        assert seen == {0, 1}


def test_all_up_to_a_message_is_acknowledged_at_once(client, name):
    send(client, name, 4)
    with client.consumer(name, "s") as consumer:
        messages = [consumer.receive(20) for _ in range(4)]
        with client.transaction() as txn:
            consumer.acknowledge_cumulative(messages[2], txn=txn)
    with client.consumer(name, "s", type="shared") as consumer:
        assert numbers(unacknowledged(client, consumer)) == [3]
        txn = client.transaction()
        with pytest.raises(ConfigurationError, match="individually"):
            consumer.acknowledge_cumulative(messages[3], txn)
        with pytest.raises(TransactionPoisoned):
            txn.commit()


def test_what_a_plain_client_acknowledged_in_a_batch_is_not_given_again(
    client, name, pulsar_standalone
):
    producer = client.entry_producer(name, create=True)
    client.consumer(name, "s", type="shared").close()
    producer.send_many([Message(b"%d" % n) for n in range(5)])
    producer.flush()
    plain = pulsar.Client(pulsar_standalone.service_url)
    other = plain.subscribe(
        name, "s", consumer_type=pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    for message in [other.receive(timeout_millis=10_000) for _ in range(3)]:
        other.acknowledge(message)
    other.close()
    # The broker keeps acknowledgements by batch index: then it gives another one the rest.
    other = plain.subscribe(name, "s", consumer_type=pulsar.ConsumerType.Shared)
    assert [other.receive(timeout_millis=10_000).data() for _ in range(2)] == [b"3", b"4"]
    plain.close()
    with client.consumer(name, "s", type="shared") as consumer:
        messages = consumer.receive_batch(10, timeout_s=10)
        assert [one.value for one in messages] == [b"3", b"4"]
        aborted = client.transaction()
        consumer.acknowledge(messages, txn=aborted)
        aborted.abort()
        messages = [consumer.receive(10), consumer.receive(10)]
        assert [one.value for one in messages] == [b"3", b"4"]
        with client.transaction() as txn:
            consumer.acknowledge(messages, txn=txn)
    with client.consumer(name, "s", type="shared") as consumer:
        assert unacknowledged(client, consumer) == []


def test_nothing_is_acknowledged_in_a_transaction_that_has_expired(client, name):
    """The broker would accept it, and never deliver the message again (measured)."""
    send(client, name, 2)
    with client.consumer(name, "s", type="shared") as consumer:
        first, second = received(consumer, 2)
        txn = client.transaction(timeout_s=9)
        consumer.acknowledge(first, txn)
        await_expiry(client, txn.id)
        with pytest.raises(TransactionExpired):
            consumer.acknowledge(second, txn)
        with pytest.raises(TransactionExpired):
            txn.commit()
    with client.consumer(name, "s", type="shared") as consumer:
        assert sorted(numbers(received(consumer, 2))) == [0, 1]
