"""Messages that other clients sent in chunks, judged by the Java client."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from eos import Encryption, PulsarClient
from eos.client import _acks, _receiver
from eos.errors import ProtocolError
from eos.testing import PulsarStandalone
from eos.wire import _chunks
from tests.support.admin import backlog
from tests.support.chunks import send_chunk
from tests.support.encrypted import make_keys
from tests.support.java_client import JavaClient, JavaMessage, java_client
from tests.support.receiving import received

CHUNK_BYTES = 500


@pytest.fixture(scope="module")
def java(pulsar_standalone: PulsarStandalone) -> Iterator[JavaClient]:
    """The Java client."""
    with java_client(pulsar_standalone.service_url) as running:
        yield running


@pytest.fixture
def topic(name: str) -> str:
    """This test's topic."""
    return f"persistent://public/default/{name}"


def texts(seed: int, count: int) -> list[JavaMessage]:
    """Messages of one to some ten chunks."""
    rng = random.Random(seed)
    return [
        JavaMessage(rng.randbytes(rng.choice([10, 600, 2000, 6000])), f"key-{seed}-{number}")
        for number in range(count)
    ]


def send(java: JavaClient, topic: str, messages: list[JavaMessage], **options: Any) -> None:
    java.send(topic, messages, chunking=True, chunkBytes=CHUNK_BYTES, **options)


def values(client: PulsarClient, topic: str, **where: Any) -> list[bytes | None]:
    """All values of a topic, by our reader."""
    with client.reader(topic, **where) as reader:
        batches = list(reader.read_to(reader.last_id))
    return [one for batch in batches for one in batch.column(0).to_pylist()]


@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("encrypted", [False, True])
def test_messages_in_chunks_are_read(
    java: JavaClient,
    pulsar_standalone: PulsarStandalone,
    topic: str,
    tmp_path: Path,
    compression: str,
    encrypted: bool,
) -> None:
    sent = texts(1, 20)
    options = {"keys": ["rsa"], "folder": str(make_keys(tmp_path))} if encrypted else {}
    send(java, topic, sent, compression=compression, **options)
    secret = Encryption(str(tmp_path))
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        assert values(client, topic) == [one.value for one in sent]


def test_a_reader_may_begin_in_the_middle_of_a_message(
    java: JavaClient, client: PulsarClient, topic: str
) -> None:
    sent = texts(2, 6)
    send(java, topic, sent)
    with client.entry_reader(topic) as entries:
        stored = []
        for entry in entries.read(float("inf")):
            stored.append(entry)
            is_last = entry.metadata.partition_key == sent[-1].key.encode()
            if is_last and (entry.metadata.chunk_id or 0) + 1 == (
                entry.metadata.num_chunks_from_msg or 1
            ):
                break
    assert len(stored) > len(sent)
    ends = [
        number
        for number, entry in enumerate(stored)
        if (entry.metadata.chunk_id or 0) + 1 == (entry.metadata.num_chunks_from_msg or 1)
    ]
    for number, entry in enumerate(stored):
        wanted = [one.value for end, one in zip(ends, sent, strict=True) if end >= number]
        assert values(client, topic, start=entry.id) == wanted


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_a_consumer_acknowledges_all_chunks(
    java: JavaClient, client: PulsarClient, topic: str, kind: Any, pulsar_standalone: Any
) -> None:
    sent = texts(3, 10)
    send(java, topic, sent)
    with client.consumer(topic, "judge", type=kind) as consumer:
        messages = received(consumer, 10)
        assert [one.value for one in messages] == [one.value for one in sent]
        with client.transaction() as txn:
            consumer.acknowledge(messages[:4], txn=txn)
        consumer.acknowledge(messages[4:7])
    with client.consumer(topic, "judge", type=kind) as consumer:
        rest = received(consumer, 3)
        assert sorted(one.value for one in rest) == sorted(one.value for one in sent[7:])
        consumer.acknowledge(rest)
        assert consumer.receive(0.5) is None
    assert backlog(pulsar_standalone.admin_url, topic) == 0


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_messages_in_chunks_come_again(
    java: JavaClient, client: PulsarClient, topic: str, kind: Any
) -> None:
    sent = texts(4, 6)
    send(java, topic, sent)
    wanted = sorted(one.value for one in sent if one.value)
    with client.consumer(topic, "judge", type=kind) as consumer:
        first = received(consumer, 6)
        consumer.redeliver(first if kind == "shared" else None)
        again = received(consumer, 6)
        assert sorted(one.value for one in again if one.value) == wanted
        txn = client.transaction()
        consumer.acknowledge(again, txn=txn)
        txn.abort()
        third = received(consumer, 6)
        assert sorted(one.value for one in third if one.value) == wanted
        consumer.acknowledge(third)


def test_a_cumulative_acknowledgement_leaves_the_parts_of_later_messages(
    client: PulsarClient, topic: str, name: str
) -> None:
    producers = [client.entry_producer(topic, create=True) for _ in range(2)]
    # Of the first producer two chunks, with a message of the other one between them.
    send_chunk(producers[0], 0, 2, "long", b"first ")
    producers[1].send(b"between").result()
    with client.consumer(topic, "judge") as consumer:
        between = received(consumer, 1)[0]
        assert between.value == b"between"
        consumer.acknowledge_cumulative(between)
    send_chunk(producers[0], 1, 2, "long", b"second")
    producers[1].send(b"after").result()
    with client.consumer(topic, "judge") as consumer:
        messages = received(consumer, 2)
        assert [one.value for one in messages] == [b"first second", b"after"]
        consumer.acknowledge_cumulative(messages[1])
        assert consumer.receive(0.5) is None
    with client.consumer(topic, "judge") as consumer:
        assert consumer.receive(0.5) is None


def test_a_cumulative_acknowledgement_of_a_message_in_chunks(
    java: JavaClient, client: PulsarClient, topic: str, pulsar_standalone: Any
) -> None:
    sent = [JavaMessage(b"%d" % number * 1500) for number in range(6)]
    send(java, topic, sent)
    with client.consumer(topic, "judge") as consumer:
        messages = received(consumer, 6)
        consumer.acknowledge_cumulative(messages[1])
        with client.transaction() as txn:
            consumer.acknowledge_cumulative(messages[3], txn=txn)
    with client.consumer(topic, "judge") as consumer:
        rest = received(consumer, 2)
        assert [one.value for one in rest] == [one.value for one in sent[4:]]
        consumer.acknowledge_cumulative(rest[1])
    assert backlog(pulsar_standalone.admin_url, topic) == 0


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_parts_of_a_message_that_was_sent_again_are_acknowledged(
    client: PulsarClient, topic: str, kind: Any, pulsar_standalone: Any
) -> None:
    with closing(client.entry_producer(topic, create=True)) as producer:
        for number in (0, 1, 0, 1, 2):
            send_chunk(producer, number, 3, "again", b"%d" % number)
    with client.consumer(topic, "judge", type=kind) as consumer:
        (message,) = received(consumer, 1)
        assert message.value == b"012"
        consumer.acknowledge(message)
        assert consumer.receive(0.3) is None
    assert backlog(pulsar_standalone.admin_url, topic) == 0


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_parts_of_a_message_without_its_end_are_acknowledged_later(
    client: PulsarClient,
    topic: str,
    kind: Any,
    pulsar_standalone: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(client.entry_producer(topic, create=True)) as producer:
        for number in (0, 1):
            send_chunk(producer, number, 3, "cut", b"part")
        producer.send(b"soon").result()
        with client.consumer(topic, "judge", type=kind) as consumer:
            consumer.acknowledge(received(consumer, 1))
            assert backlog(pulsar_standalone.admin_url, topic) == 2  # more parts may come
            monkeypatch.setattr(_acks, "EXPIRY_MS", 500)
            time.sleep(0.6)
            producer.send(b"later").result()
            (later,) = received(consumer, 1)
            assert later.value == b"later"
            consumer.acknowledge(later)
            assert consumer.receive(0.3) is None
    assert backlog(pulsar_standalone.admin_url, topic) == 0
    assert "was never completed" in caplog.text


@pytest.mark.parametrize("is_old", [False, True])
def test_no_chunk_is_acknowledged_behind_one_that_could_not_be_read(
    client: PulsarClient,
    topic: str,
    is_old: bool,
    pulsar_standalone: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if the first chunk came damaged, once: then the message must come again, whole."""
    if is_old:
        monkeypatch.setattr(_receiver, "_MISSING_MS", -1)
    monkeypatch.setattr(_acks, "EXPIRY_MS", -1_000_000)
    real, damaged = _receiver.Entry.of, []

    def of(delivery: Any) -> Any:
        if not damaged:
            damaged.append(delivery)
            raise ProtocolError("Its checksum is wrong.")
        return real(delivery)

    with closing(client.entry_producer(topic, create=True)) as producer:
        with client.consumer(topic, "judge") as consumer:
            monkeypatch.setattr(_receiver.Entry, "of", of)
            for number in range(4):
                send_chunk(producer, number, 4, "long", b"%d" % number)
            with pytest.raises(ProtocolError):
                consumer.receive(10)
            producer.send(b"after").result()
            assert [one.value for one in received(consumer, 1)] == [b"after"]
            assert backlog(pulsar_standalone.admin_url, topic) == 5
        with client.consumer(topic, "judge") as consumer:
            assert [one.value for one in received(consumer, 2)] == [b"0123", b"after"]


def test_no_chunk_of_a_message_that_was_dropped_from_memory_is_acknowledged(
    client: PulsarClient, topic: str, pulsar_standalone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_chunks, "MAX_INCOMPLETE", 2)
    monkeypatch.setattr(_receiver, "_MISSING_MS", -1)
    with closing(client.entry_producer(topic, create=True)) as producer:
        for number in range(3):
            for uuid in "abcd" if number else "-abcd":  # "-" is never completed
                send_chunk(producer, number, 3, uuid, uuid.encode())
        with client.consumer(topic, "judge") as consumer:
            both = received(consumer, 2)
            assert [one.value for one in both] == [b"ccc", b"ddd"]
            consumer.acknowledge(both)
            monkeypatch.setattr(_acks, "EXPIRY_MS", 500)
            time.sleep(0.6)
            producer.send(b"later").result()
            consumer.acknowledge(received(consumer, 1))
            assert consumer.receive(0.3) is None
            assert backlog(pulsar_standalone.admin_url, topic) == 6  # "-" was too old
        with client.consumer(topic, "judge") as consumer:
            assert [one.value for one in received(consumer, 2)] == [b"aaa", b"bbb"]
