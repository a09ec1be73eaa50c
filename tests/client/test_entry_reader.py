"""The entry reader on a real broker: entries, transactions, start positions and endings."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from eos.client import Entry, EntryReader, PulsarClient
from eos.errors import ConnectionLost, Fatal, TopicNotFound
from eos.ids import MessageId
from eos.testing import PulsarStandalone
from eos.wire import commands
from eos.wire.batch import Compression, Message, encode_batches, rows_from_messages
from tests.support.admin import backlog, call, create_partitioned, messages_out
from tests.support.hostile import ODD_COUNTS, send_claiming, send_without_checksum
from tests.transport.scripted import wait_until


def take(reader: EntryReader, count: int, timeout_s: float = 20.0) -> list[Entry]:
    """Return the next ``count`` entries, or fewer if ``timeout_s`` passes first."""
    entries: list[Entry] = []
    for entry in reader.read(time.monotonic() + timeout_s):
        entries.append(entry)
        if len(entries) == count:
            break
    return entries


def rest(reader: EntryReader, pause_s: float = 0.5) -> list[Entry]:
    """Return the entries that arrive within ``pause_s``."""
    return list(reader.read(time.monotonic() + pause_s))


def position(message_id: MessageId) -> tuple[int, int]:
    return message_id.ledger, message_id.entry


def send(client: PulsarClient, topic: str, *values: bytes) -> list[MessageId]:
    """Send one entry for each of ``values``."""
    producer = client.entry_producer(topic, create=True)
    ids = [receipt.result(timeout=20) for receipt in [producer.send(value) for value in values]]
    producer.close()
    return ids


# --- contents of an entry -----------------------------------------------------------------------


def test_an_entry_shows_its_id_its_producer_and_its_messages(client, name):
    producer = client.entry_producer(name, create=True)
    sent_id = producer.send(b"value", key="k", properties={"p": "q"}, event_time_ms=5).result(
        timeout=20
    )
    with client.entry_reader(name) as reader:
        (entry,) = take(reader, 1)
    assert position(entry.id) == position(sent_id)
    assert entry.metadata.producer_name == producer.name
    assert (entry.txn, entry.num_messages, entry.properties) == (None, 1, {})
    assert entry.first_properties == {"p": "q"}
    (message,) = entry.messages()
    assert (message.value, message.key, message.event_time_ms) == (b"value", "k", 5)


@pytest.mark.parametrize("compression", Compression)
def test_the_figures_of_a_batch_are_those_of_its_writer(client, name, compression):
    messages = [Message(b"v" * n, key=b"key %d" % n) for n in range(200)]
    (batch,) = encode_batches(rows_from_messages(messages), compression=compression)
    assert batch.compression is compression
    client.entry_producer(name, create=True).send_batch(batch).result(timeout=20)
    with client.entry_reader(name) as reader:
        (entry,) = take(reader, 1)
    assert entry.num_messages == 200
    assert [(m.value, m.key) for m in entry.messages()] == [(m.value, m.key) for m in messages]
    figures = entry.figures()
    assert figures.num_messages == batch.num_messages
    assert figures.value_and_key_bytes == batch.value_and_key_bytes
    assert figures.checksum == batch.checksum


@pytest.mark.parametrize("claimed", ODD_COUNTS)
def test_a_count_of_messages_that_a_hostile_writer_claims_stops_no_reader(client, name, claimed):
    """The broker subtracts the count from the permits; some of these overflow its counter."""
    for _ in range(3):
        send_claiming(client, name, claimed)
    last = send(client, name, *[b"v"] * 3000)[-1]
    with client.entry_reader(name) as reader:
        entries = take(reader, 3003)
    assert [entry.num_messages for entry in entries[:3]] == [max(1, claimed)] * 3
    assert (len(entries), position(entries[-1].id)) == (3003, position(last))


def test_what_was_sent_without_a_checksum_is_read_by_all_readers(client, name):
    send(client, name, b"before")
    send_without_checksum(client, name, b"hostile")
    with client.consumer(name, "all of it") as consumer:
        (last,) = send(client, name, b"behind")
        values = [consumer.receive(timeout_s=20).value for _ in range(3)]
    with client.entry_reader(name) as reader:
        entries = [entry.messages()[0].value for entry in take(reader, 3)]
    with client.reader(name) as reader:
        rows = [row for batch in reader.read_to(last) for row in batch["value"].to_pylist()]
    assert values == entries == rows == [b"before", b"hostile", b"behind"]


# --- transactions -------------------------------------------------------------------------------


def test_committed_entries_carry_their_transaction_and_aborted_ones_do_not_come(client, name):
    producer = client.entry_producer(name, create=True)
    with client.transaction() as committed:
        producer.send(b"committed", txn=committed)
    aborted = client.transaction()
    producer.send(b"aborted", txn=aborted).result(timeout=20)
    aborted.abort()
    producer.send(b"plain").result(timeout=20)
    with client.entry_reader(name) as reader:
        entries = take(reader, 2)
    assert [(entry.messages()[0].value, entry.txn) for entry in entries] == [
        (b"committed", committed.id),
        (b"plain", None),
    ]


def test_a_reader_that_stands_before_an_open_transaction_goes_on_once_that_ends(client, name):
    producer = client.entry_producer(name, create=True)
    first = producer.send(b"before").result(timeout=20)
    txn = client.transaction()
    producer.send(b"within", txn=txn).result(timeout=20)
    behind = producer.send(b"behind").result(timeout=20)
    with client.entry_reader(name) as reader:
        assert len(take(reader, 1)) == 1
        assert rest(reader) == []
        with closing(client.topic_bounds(name)) as bounds:
            assert position(bounds.last_id()) == position(first)
        txn.commit()
        within, after = take(reader, 2)
        assert (within.txn, after.txn) == (txn.id, None)
        assert position(after.id) == position(behind)


# --- start position -----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_index", [-1, 0])
def test_the_start_is_inclusive(client, name, batch_index):
    ids = send(client, name, b"0", b"1", b"2", b"3")
    with client.entry_reader(name, ids[2]._replace(batch_index=batch_index)) as reader:
        assert [entry.messages()[0].value for entry in take(reader, 2)] == [b"2", b"3"]


def test_a_start_past_the_end_brings_nothing_that_was_there_and_all_that_comes(client, name):
    ids = send(client, name, b"0", b"1")
    with client.entry_reader(name, MessageId(ids[-1].ledger, ids[-1].entry + 1)) as reader:
        assert rest(reader) == []
        send(client, name, b"2")
        assert [entry.messages()[0].value for entry in take(reader, 1)] == [b"2"]


def test_an_empty_topic_brings_nothing(client, name):
    client.entry_producer(name, create=True).close()
    with client.entry_reader(name) as reader:
        assert rest(reader) == []


def test_a_partition_is_read_by_its_exact_name(client, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    (sent,) = send(client, f"{name}-partition-1", b"x")
    with client.entry_reader(f"{name}-partition-1") as reader:
        (entry,) = take(reader, 1)
        assert position(entry.id) == position(sent)
        with closing(client.topic_bounds(f"{name}-partition-1")) as bounds:
            assert (entry.id.partition, bounds.last_id()) == (1, entry.id)


def test_a_topic_that_is_missing_is_not_made(client, name):
    with pytest.raises(TopicNotFound):
        client.entry_reader(name)
    with pytest.raises(TopicNotFound):
        client.partition_count(name)


# --- continuing and ending ----------------------------------------------------------------------


def test_many_small_entries_come_in_order_and_are_asked_for_together(through, proxy, name):
    ids = send(through, name, *[b"%d" % n for n in range(1000)])
    with through.entry_reader(name) as reader:
        entries = take(reader, 1000)
    assert [position(entry.id) for entry in entries] == [position(one) for one in ids]
    assert [entry.messages()[0].value for entry in entries] == [b"%d" % n for n in range(1000)]
    assert proxy.seen[commands.Flow] <= 10


def test_a_read_ends_at_its_deadline_and_the_next_goes_on(client, name):
    send(client, name, b"0")
    with client.entry_reader(name) as reader:
        assert len(take(reader, 1)) == 1
        started = time.monotonic()
        assert rest(reader, 0.6) == []
        assert 0.6 <= time.monotonic() - started < 5
        send(client, name, b"1")
        assert len(take(reader, 1)) == 1


def test_batches_are_permitted_by_their_messages(client, name):
    """The broker counts permits in messages: a batch can take more than are left."""
    producer = client.entry_producer(name, create=True)
    for n in range(60):
        producer.send_many([Message(b"%d" % n)] * (n % 7 + 1))
    producer.flush()
    with client.entry_reader(name, permits=3) as reader:
        entries = take(reader, 60)
    assert [entry.num_messages for entry in entries] == [n % 7 + 1 for n in range(60)]


def test_with_one_permit_the_broker_sends_one_entry(client, name, pulsar_standalone):
    producer = client.entry_producer(name, create=True)
    for _ in range(30):
        producer.send_many([Message(b"v")] * 5)
    producer.flush()
    with client.entry_reader(name, permits=1) as reader:
        (entry,) = take(reader, 1)
        client.topic_bounds(name).bounds()  # same connection: answered after the deliveries
        assert (entry.num_messages, messages_out(pulsar_standalone.admin_url, name)) == (5, 5)
        assert len(take(reader, 29)) == 29


def test_with_one_permit_the_first_entry_behind_many_aborted_ones_comes(client, name):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction()
    for _ in range(2_000):
        producer.send(b"aborted", txn=txn)
    txn.abort()
    producer.send(b"there").result(timeout=20)
    with client.entry_reader(name, permits=1) as reader:
        (entry,) = take(reader, 1)
    assert [message.value for message in entry.messages()] == [b"there"]


def test_what_there_is_no_room_for_is_delivered_again(client, name, monkeypatch):
    monkeypatch.setattr("eos.client._entry_reader.MAX_QUEUED_BYTES", 100_000)
    ids = send(client, name, *[b"%d" % n + bytes(20_000) for n in range(100)])
    with client.entry_reader(name) as reader:
        first_consumer = reader._id
        assert rest(reader, 0) == []
        wait_until(lambda: reader._is_out_of_step)
        assert reader._queued_bytes <= 100_000
        entries = take(reader, 100)
        assert reader._id != first_consumer
        assert reader._permits < 5
        assert rest(reader) == []
    assert [position(entry.id) for entry in entries] == [position(one) for one in ids]


@pytest.mark.broker
def test_a_broker_that_is_killed_ends_the_reader_with_a_clear_error(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=20) as client:
        (first,) = send(client, name, b"0")
        reader = client.entry_reader(name)
        assert len(take(reader, 1)) == 1
        broker.kill()
        with pytest.raises(ConnectionLost):
            rest(reader, 20)
        reader.close()
        broker.restart()
        behind = MessageId(first.ledger, first.entry + 1)
        send(client, name, b"1")
        with client.entry_reader(name, behind) as again:
            assert [entry.messages()[0].value for entry in take(again, 1)] == [b"1"]


def test_a_closed_reader_says_so(client, name):
    send(client, name, b"0")
    reader = client.entry_reader(name)
    reader.close()
    reader.close()
    with pytest.raises(Fatal, match="closed"):
        take(reader, 1)


def test_an_unload_ends_the_reader_with_a_clear_error(client, name, pulsar_standalone):
    (first,) = send(client, name, b"0")
    reader = client.entry_reader(name)
    assert len(take(reader, 1)) == 1
    call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    with pytest.raises(ConnectionLost, match="closed the consumer"):
        rest(reader, 20)
    reader.close()
    send(client, name, b"1")
    with client.entry_reader(name, MessageId(first.ledger, first.entry + 1)) as again:
        assert [entry.messages()[0].value for entry in take(again, 1)] == [b"1"]


# --- durable subscriptions ----------------------------------------------------------------------


def test_acknowledging_moves_a_durable_subscription(client, name, pulsar_standalone):
    ids = send(client, name, b"0", b"1", b"2")
    url, topic = pulsar_standalone.admin_url, f"persistent://public/default/{name}"
    client.subscribe_durably(name, "keeper")
    assert backlog(url, topic, "keeper") == 3
    client.acknowledge(name, "keeper", ids[1])
    assert backlog(url, topic, "keeper") == 1
    client.subscribe_durably(name, "keeper")
    assert backlog(url, topic, "keeper") == 1
    client.acknowledge(name, "another", ids[0])
    assert backlog(url, topic, "another") == 2


def test_a_busy_subscription_is_there(client, name):
    send(client, name, b"0")
    with client.cursor(name, "keeper", exclusive=True):
        client.subscribe_durably(name, "keeper")


def test_the_topics_of_a_namespace_are_told_with_each_partition(client, name, pulsar_standalone):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    found = [topic for topic in client.topics("public/default") if name in topic]
    full = f"persistent://public/default/{name}"
    assert found == [f"{full}-partition-0", f"{full}-partition-1"]
