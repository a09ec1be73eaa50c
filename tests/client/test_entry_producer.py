"""Producers: opening, closing, and refusals."""

from __future__ import annotations

import struct
from dataclasses import replace

import google_crc32c
import pytest

from eos.chaos.cluster.proxy import FrameAction, Replace
from eos.errors import (
    BrokerNotReady,
    EosError,
    Fatal,
    InputError,
    MessageTooLarge,
    ProtocolError,
    RequestTimeout,
    TopicTerminated,
    TransactionExpired,
)
from eos.wire import commands
from eos.wire.batch import Message, encode_batches, rows_from_messages
from tests.support import admin
from tests.support.expiry import await_expiry
from tests.transport.scripted import wait_until


def test_closing_twice_is_closing_once_and_nothing_can_be_sent_afterwards(through, proxy, name):
    producer = through.entry_producer(name, create=True)
    producer.send(b"x")
    producer.close()
    producer.close()
    assert proxy.seen[commands.CloseProducer] == 1
    assert not producer.is_usable
    producer.flush()
    with pytest.raises(Fatal, match="is closed"):
        producer.send(b"y")
    assert proxy.seen[commands.Send] == 1


def test_a_failed_producer_says_why_at_its_close_and_is_closed_at_the_broker_all_the_same(
    through, proxy, name
):
    producer = through.entry_producer(name, create=True)
    with proxy.fault(
        commands.SendReceipt,
        lambda r: Replace(
            commands.SendError(producer_id=r.producer_id, sequence_id=r.sequence_id, error=7)
        ),
    ):
        producer.send(b"x").exception(timeout=10)
    with pytest.raises(BrokerNotReady, match="code 7"):
        producer.close()
    wait_until(lambda: proxy.seen[commands.CloseProducer] == 1)
    wait_until(lambda: proxy.seen[commands.Success] == 1)


def test_a_producer_whose_opening_is_not_answered_is_taken_back(through, proxy, name):
    """The broker may have opened it, and would keep it open until the connection closes."""
    through.entry_producer(name, create=True)
    through.lookup.timeout_s = 3
    with (
        proxy.fault(commands.ProducerSuccess, FrameAction.DROP),
        pytest.raises(RequestTimeout, match="Opening a producer"),
    ):
        through.entry_producer(name)
    wait_until(lambda: proxy.seen[commands.CloseProducer] == 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"producer_name": ""}, ProtocolError),
        ({"producer_name": "x" * 100_000}, ProtocolError),
        ({"producer_ready": False}, BrokerNotReady),
    ],
)
def test_an_odd_answer_to_the_opening_is_refused(through, proxy, name, change, error):
    through.entry_producer(name, create=True)

    def forge(answer: commands.ProducerSuccess) -> Replace:
        return Replace(replace(answer, **change))

    with proxy.fault(commands.ProducerSuccess, forge), pytest.raises(error, match="Opening"):
        through.entry_producer(name)


def test_producers_never_share_an_id_on_a_connection(through, proxy, name):
    ids = []

    def note(command: commands.Producer) -> FrameAction:
        ids.append(command.producer_id)
        return FrameAction.PASS

    with proxy.fault(commands.Producer, note, times=100):
        for _ in range(3):
            through.entry_producer(name, create=True).close()
        first, second = through.entry_producer(name), through.entry_producer(name)
    assert len(set(ids)) == 5
    assert first.name != second.name  # chosen by the broker: deduplication must not know them


def test_a_message_over_the_limit_is_refused_before_anything_is_sent(through, proxy, name):
    producer = through.entry_producer(name, create=True)
    largest = producer.max_batch_bytes
    with pytest.raises(MessageTooLarge, match="limit"):
        producer.send(b"x" * largest)
    (batch,) = encode_batches(rows_from_messages([Message(b"x" * largest)]), 2 * largest)
    with pytest.raises(MessageTooLarge, match="takes"):
        producer.send_batch(batch)
    (keyed,) = encode_batches(
        rows_from_messages([Message(b"x" * (largest - 9000), "k" * 5000)]), largest, by_key=True
    )
    with pytest.raises(MessageTooLarge, match="takes"):
        producer.send_batch(keyed)
    assert proxy.seen[commands.Send] == 0


def test_a_message_of_just_the_limit_is_taken_by_the_broker(through, name, values):
    producer = through.entry_producer(name, create=True)
    value = b"x" * (producer.max_batch_bytes - 20)
    producer.send(value).result(timeout=20)
    assert values() == [value]


@pytest.mark.parametrize(
    "options",
    [
        {"value": None},
        {"value": 5},
        {"value": "text"},
        {"value": b"", "key": 5},
        {"value": b"", "event_time_ms": -1},
    ],
    ids=str,
)
def test_a_message_that_is_none_is_refused_before_anything_is_sent(through, proxy, name, options):
    producer = through.entry_producer(name, create=True)
    with pytest.raises(InputError):
        producer.send(**options)
    producer.send(b"good").result(timeout=10)
    assert proxy.seen[commands.Send] == 1


def test_many_messages_go_in_as_few_entries_as_fit(through, proxy, name, values):
    producer = through.entry_producer(name, create=True)
    messages = [Message(bytes([n]) * 1_000_000) for n in range(8)]
    acknowledgements = producer.send_many(messages)
    assert len(acknowledgements) == 2
    producer.flush()
    assert values() == [message.value for message in messages]
    assert producer.send_many([]) == []


def test_a_terminated_topic_is_named(client, pulsar_standalone, name):
    client.entry_producer(name, create=True).close()
    path = f"/v2/persistent/public/default/{name}/terminate"
    admin.call(pulsar_standalone.admin_url, "POST", path)
    with pytest.raises(TopicTerminated, match=f"Opening a producer on .*{name}"):
        client.entry_producer(name)


def test_a_topic_that_is_terminated_under_a_producer_fails_the_send(
    client, pulsar_standalone, name
):
    producer = client.entry_producer(name, create=True)
    producer.send(b"x").result(timeout=10)
    path = f"/v2/persistent/public/default/{name}/terminate"
    admin.call(pulsar_standalone.admin_url, "POST", path)
    with pytest.raises(EosError):
        producer.send(b"y").result(timeout=10)
    assert not producer.is_usable


def test_the_broker_refuses_a_frame_whose_checksum_is_wrong(client, name, monkeypatch):
    """So the checksums that it accepts in all other tests are correct."""
    producer = client.entry_producer(name, create=True)
    stream = producer._connection._stream
    send = stream.send

    def flip_a_bit(parts, timeout_s):
        if len(parts) == 2:
            parts = [parts[0], bytes([parts[1][0] ^ 1]) + bytes(parts[1][1:])]
        send(parts, timeout_s)

    monkeypatch.setattr(stream, "send", flip_a_bit)
    with pytest.raises(ProtocolError, match="code 9"):
        producer.send(b"x").result(timeout=10)


def test_a_send_is_framed_as_specified(client, name, monkeypatch):
    """Parse the outgoing bytes independently of the code that wrote them."""
    producer = client.entry_producer(name, create=True)
    sent: list[bytes] = []
    stream = producer._connection._stream
    send = stream.send

    def record(parts, timeout_s):
        sent.append(b"".join(bytes(part) for part in parts))
        send(parts, timeout_s)

    monkeypatch.setattr(stream, "send", record)
    with client.transaction() as txn:
        producer.send(b"value", txn=txn).result(timeout=10)
    (frame,) = [f for f in sent if b"\x0e\x01" in f and f.endswith(b"value")]
    total, command_size = struct.unpack_from(">II", frame)
    assert total == len(frame) - 4
    magic, checksum, meta_size = struct.unpack_from(">HII", frame, 8 + command_size)
    covered = frame[8 + command_size + 6 :]
    assert (magic, checksum) == (0x0E01, google_crc32c.value(covered))
    command = commands.BaseCommand.decode(frame[8 : 8 + command_size]).send
    metadata = commands.MessageMetadata.decode(covered[4 : 4 + meta_size])
    # The command and the metadata each carry both halves of the transaction's id.
    for part in (command, metadata):
        assert (part.txnid_most, part.txnid_least) == txn.id
    assert metadata.producer_name == producer.name
    assert metadata.num_messages_in_batch == command.num_messages == 1


def test_many_are_opened_in_the_order_asked_for(through, proxy, name):
    names = [f"persistent://public/default/{name}-{n}" for n in range(5)]
    for topic in names:
        through.entry_producer(topic, create=True).close()
    with through.transaction(timeout_s=60) as txn:
        producers = through.entry_producers(names, txn=txn)
        assert [producer.topic for producer in producers] == names
        assert proxy.seen[commands.AddPartitionToTxn] == 1
        for producer in producers:
            producer.send(b"x", txn=txn)
    assert proxy.seen[commands.AddPartitionToTxn] == 1


def test_none_stays_open_when_one_cannot_be_opened(through, proxy, name):
    names = [f"persistent://public/default/{name}-{n}" for n in range(3)]
    for topic in names:
        through.entry_producer(topic, create=True).close()
    opened, closed = proxy.seen[commands.Producer], proxy.seen[commands.CloseProducer]

    def refuse_the_second(command: commands.Producer) -> FrameAction | commands.Error:
        if command.topic != names[1]:
            return FrameAction.PASS
        return commands.Error(request_id=command.request_id, error=4, message="not for you")

    with (
        proxy.fault(commands.Producer, refuse_the_second, times=len(names)),
        pytest.raises(EosError, match="not for you"),
    ):
        through.entry_producers(names)
    # The refused producer is closed as well: the broker may have opened it. A producer that was not
    # yet requested when the refusal arrived is never opened.
    tried = proxy.seen[commands.Producer] - opened
    assert tried in (2, 3)
    wait_until(lambda: proxy.seen[commands.CloseProducer] == closed + tried)


def test_none_stays_open_when_the_transaction_has_expired(through, proxy, name):
    names = [f"persistent://public/default/{name}-{n}" for n in range(3)]
    for topic in names:
        through.entry_producer(topic, create=True).close()
    closed = proxy.seen[commands.CloseProducer]
    txn = through.transaction(timeout_s=1)
    await_expiry(through, txn.id)
    with pytest.raises(TransactionExpired):
        through.entry_producers(names, txn=txn)
    wait_until(lambda: proxy.seen[commands.CloseProducer] == closed + len(names))
    with pytest.raises(TransactionExpired):
        txn.commit()


def test_a_silent_broker_is_not_waited_for_once_for_each_of_many(
    through, proxy, pulsar_standalone, name
):
    admin.create_partitioned(pulsar_standalone.admin_url, name, 100)
    names = [f"persistent://public/default/{name}-partition-{n}" for n in range(100)]
    through.lookup.timeout_s = 1
    with (
        proxy.fault(commands.Producer, FrameAction.DROP, times=len(names)),
        pytest.raises(RequestTimeout, match="Opening a producer"),
    ):
        through.entry_producers(names)
    assert proxy.seen[commands.Producer] <= 64  # those under way when the first one timed out
