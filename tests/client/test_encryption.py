"""End-to-end encryption, judged by pulsar-client and the Java client."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from eos import Encryption, PulsarClient
from eos.errors import DecryptionFailed, InputError, NotAllowed
from eos.testing import PulsarStandalone
from tests.support.admin import backlog, call
from tests.support.encrypted import KEY_NAMES, make_keys, plain_keys
from tests.support.java_client import JavaClient, JavaMessage, java_client
from tests.support.receiving import batches_until

COLUMNS = ("value", "key", "properties", "encryption_context")


@pytest.fixture(scope="module")
def java(pulsar_standalone: PulsarStandalone) -> Iterator[JavaClient]:
    """The Java client."""
    with java_client(pulsar_standalone.service_url) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of ``KEY_NAMES``."""
    return make_keys(tmp_path_factory.mktemp("keys"))


def messages(count: int) -> list[JavaMessage]:
    """Messages with and without keys, properties and values."""
    return [
        JavaMessage(
            None if n % 11 == 10 and n % 3 else b"%d " % n * (n % 50 + 1),
            f"key-{n % 7}" if n % 3 else None,
            {"n": str(n)} if n % 5 == 0 else {},
        )
        for n in range(count)
    ]


def read(client: PulsarClient, topic: str) -> list[JavaMessage]:
    """All messages of ``topic``, by our reader of columns."""
    with client.reader(topic, columns=COLUMNS) as reader:
        return [
            JavaMessage(
                row["value"],
                None if row["key"] is None else row["key"].decode(),
                dict(row["properties"]),
                row["encryption_context"] is not None,
            )
            for batch in reader.read_to(reader.last_id)
            for row in batch.to_pylist()
        ]


def consumed(client: PulsarClient, topic: str, count: int) -> list[JavaMessage]:
    """The first ``count`` messages of ``topic``, by our consumer."""
    seen: list[JavaMessage] = []
    with client.consumer(topic, "judge") as consumer:
        while len(seen) < count and (batch := consumer.receive_batch(1000, timeout_s=10)):
            seen += [
                JavaMessage(one.value, one.key if one.key is None else str(one.key), one.properties)
                for one in batch
            ]
    return seen


@pytest.mark.parametrize("name_of_key", KEY_NAMES)
@pytest.mark.parametrize("compression", ["NONE", "LZ4", "ZSTD"])
@pytest.mark.parametrize("batching", [True, False])
def test_what_the_java_client_encrypts_is_read(
    pulsar_standalone: PulsarStandalone,
    java: JavaClient,
    folder: Path,
    name: str,
    name_of_key: str,
    compression: str,
    batching: bool,
) -> None:
    topic = f"persistent://public/default/{name}"
    sent = messages(100)
    java.send(
        topic,
        sent,
        keys=[name_of_key],
        folder=str(folder),
        metadata={"version": "1"},
        compression=compression,
        batching=batching,
        transaction=True,
    )
    secret = Encryption(key_location=str(folder))
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        assert read(client, topic) == sent
        assert consumed(client, topic, len(sent)) == sent


@pytest.mark.parametrize("name_of_key", KEY_NAMES)
def test_what_we_encrypt_is_read_by_the_java_client(
    pulsar_standalone: PulsarStandalone, java: JavaClient, folder: Path, name: str, name_of_key: str
) -> None:
    topic = f"persistent://public/default/{name}"
    sent = messages(300)
    secret = Encryption(key_location=str(folder), encryption_keys=[name_of_key])
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        with (
            client.producer(topic, create=True, max_batch_messages=40) as producer,
            client.transaction() as txn,
        ):
            for one in sent:
                producer.send(one.value, key=one.key, properties=one.properties, txn=txn)
        alone = client.entry_producer(topic)
        alone.send(b"alone", key="single").result()
        alone.close()
    seen = java.read(topic, folder=str(folder))
    sent.append(JavaMessage(b"alone", "single"))
    assert seen == [JavaMessage(one.value, one.key, one.properties, True) for one in sent]


def test_pulsar_client_reads_what_we_encrypt(
    pulsar_standalone: PulsarStandalone, folder: Path, name: str
) -> None:
    secret = Encryption(key_location=str(folder), encryption_keys="ec,rsa")
    with (
        PulsarClient(pulsar_standalone.service_url, encryption=secret) as client,
        client.producer(name, create=True) as producer,
    ):
        for number in range(500):
            producer.send(b"%d" % number)
    judge = pulsar.Client(pulsar_standalone.service_url)
    try:
        reader = judge.create_reader(
            name, pulsar.MessageId.earliest, crypto_key_reader=plain_keys(folder, "rsa")
        )
        assert [reader.read_next(10_000).data() for _ in range(500)] == [
            b"%d" % number for number in range(500)
        ]
    finally:
        judge.close()


def test_nothing_is_stored_in_the_clear(
    pulsar_standalone: PulsarStandalone, folder: Path, name: str
) -> None:
    secret = Encryption(key_location=str(folder), encryption_keys=["rsa"])
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        with client.producer(name, create=True) as producer:
            producer.send(b"the answer", key="of all", properties={"is": "forty-two"}).result()
        with client.entry_reader(name) as reader:
            entry = next(reader.read(float("inf")))
    stored = entry.payload + entry.metadata.encode()
    for text in (b"the answer", b"of all", b"forty-two"):
        assert text not in stored


@pytest.mark.parametrize("action", ["fail", "discard", "consume"])
def test_messages_without_their_key(
    pulsar_standalone: PulsarStandalone,
    java: JavaClient,
    folder: Path,
    name: str,
    action: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = f"persistent://public/default/{name}"
    hidden = JavaMessage(b"hidden", "its-key")
    for sent, keys in (
        ([JavaMessage(b"1")], None),
        ([hidden], ["rsa"]),
        ([JavaMessage(b"2")], None),
    ):
        where = {} if keys is None else {"keys": keys, "folder": str(folder)}
        java.send(topic, sent, **where)
    make_keys(tmp_path)  # other keys of the same names
    secret = Encryption(key_location=str(tmp_path), crypto_failure_action=action)  # type: ignore[arg-type]
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        if action == "fail":
            with pytest.raises(DecryptionFailed, match="'rsa', and no key fits"):
                read(client, topic)
            with client.consumer(topic, "judge") as consumer:
                assert consumer.receive(10).value == b"1"  # type: ignore[union-attr]
                with pytest.raises(DecryptionFailed, match="can't be read"):
                    consumer.receive(10)
                assert consumer.receive(10).value == b"2"  # type: ignore[union-attr]
            return
        with caplog.at_level(logging.WARNING):
            seen = read(client, topic)
            assert consumed(client, topic, len(seen))[0].value == b"1"
    judged = java.read(topic, folder=str(tmp_path), action=action.upper())
    # The Java client has a context for what it decrypts, too.
    assert [(one.value, one.key, one.encrypted) for one in seen] == [
        (one.value, one.key, one.encrypted) for one in judged
    ]
    assert ("can't be decrypted. It is left out" in caplog.text) == (action == "discard")


def test_the_context_has_what_is_needed_to_decrypt(
    pulsar_standalone: PulsarStandalone, java: JavaClient, folder: Path, name: str, tmp_path: Path
) -> None:
    topic = f"persistent://public/default/{name}"
    java.send(
        topic,
        [JavaMessage(b"x" * 10_000), JavaMessage(b"y")],
        keys=["ec"],
        folder=str(folder),
        metadata={"version": "7"},
        compression="LZ4",
        batching=True,
    )
    secret = Encryption(key_location=str(tmp_path), crypto_failure_action="consume")
    with (
        PulsarClient(pulsar_standalone.service_url, encryption=secret) as client,
        client.consumer(topic, "judge") as consumer,
    ):
        message = consumer.receive(10)
    assert message is not None
    assert message.encryption_context is not None
    context = json.loads(message.encryption_context)
    assert context["keys"]["ec"]["metadata"] == {"version": "7"}
    assert (context["compression"], context["batch_size"]) == ("LZ4", 2)


def test_a_message_that_is_moved_keeps_what_is_needed_to_decrypt_it(
    pulsar_standalone: PulsarStandalone, folder: Path, name: str, tmp_path: Path
) -> None:
    topic, url = f"persistent://public/default/{name}", pulsar_standalone.service_url
    keys = Encryption(key_location=str(folder), encryption_keys=["rsa"])
    with PulsarClient(url, encryption=keys) as client, client.producer(topic, create=True) as one:
        one.send(b"secret").result()
    secret = Encryption(key_location=str(tmp_path), crypto_failure_action="consume")
    options: Any = {"type": "shared", "max_redeliveries": 0, "nack_delay_s": 0.1}
    with PulsarClient(url, encryption=secret) as client:
        with client.topics_consumer(topic, "judge", retry=True, **options) as consumer:
            message = consumer.receive(10)
            assert message is not None
            with pytest.raises(InputError, match=r"is encrypted, and can't be retried later"):
                consumer.retry_later(message, 0.0)
            consumer.negative_acknowledge(message)
            admin_url = pulsar_standalone.admin_url
            assert not list(batches_until(consumer, lambda: backlog(admin_url, topic) == 0))
        with client.reader(f"{topic}-judge-DLQ", columns=("value", "properties")) as reader:
            ((row,),) = (batch.to_pylist() for batch in reader.read_to(reader.last_id))
    context = dict(row["properties"])["ENCRYPTION_CONTEXT"]
    assert (row["value"], context) == (message.value, message.encryption_context)


def test_a_discarded_entry_is_acknowledged(
    pulsar_standalone: PulsarStandalone, java: JavaClient, folder: Path, name: str, tmp_path: Path
) -> None:
    topic = f"persistent://public/default/{name}"
    java.send(topic, [JavaMessage(b"hidden")], keys=["rsa"], folder=str(folder))
    java.send(topic, [JavaMessage(b"seen")])
    secret = Encryption(key_location=str(tmp_path), crypto_failure_action="discard")
    with (
        PulsarClient(pulsar_standalone.service_url, encryption=secret) as client,
        client.consumer(topic, "judge", type="shared") as consumer,
    ):
        message = consumer.receive(10)
        assert message is not None
        assert message.value == b"seen"
        consumer.acknowledge(message)
    with (
        PulsarClient(pulsar_standalone.service_url) as client,
        client.consumer(topic, "judge", type="shared") as consumer,
    ):
        assert consumer.receive(1) is None


def test_a_namespace_that_requires_encryption(
    pulsar_standalone: PulsarStandalone, folder: Path, name: str
) -> None:
    namespace = f"public/{name}"
    call(pulsar_standalone.admin_url, "PUT", f"/v2/namespaces/{namespace}")
    policy = f"/v2/namespaces/{namespace}/encryptionRequired"
    call(pulsar_standalone.admin_url, "POST", policy, True)
    topic = f"persistent://{namespace}/orders"
    with (
        PulsarClient(pulsar_standalone.service_url) as client,
        pytest.raises(NotAllowed, match="Encrypt with encryption_keys and key_location"),
    ):
        client.producer(topic, create=True)
    secret = Encryption(key_location=str(folder), encryption_keys=["rsa"])
    with PulsarClient(pulsar_standalone.service_url, encryption=secret) as client:
        with client.producer(topic, create=True) as producer:
            producer.send(b"secret").result()
        assert [one.value for one in read(client, topic)] == [b"secret"]


def test_consume_transform_produce(
    pulsar_standalone: PulsarStandalone, java: JavaClient, folder: Path, name: str
) -> None:
    topic, target = (f"persistent://public/default/{name}-{end}" for end in ("in", "out"))
    sent = [JavaMessage(b"%d" % number) for number in range(50)]
    java.send(topic, sent, keys=["ec"], folder=str(folder), batching=True)
    secret = Encryption(key_location=str(folder), encryption_keys=["rsa"])
    with (
        PulsarClient(pulsar_standalone.service_url, encryption=secret) as client,
        client.consumer(topic, "copy") as consumer,
        client.producer(target, create=True) as producer,
    ):
        messages = consumer.receive_batch(50, timeout_s=10)
        with client.transaction() as txn:
            for message in messages:
                producer.send(message.value, txn=txn)
            consumer.acknowledge(messages, txn=txn)
    judged = java.read(target, folder=str(folder))
    assert [one.value for one in judged] == [one.value for one in sent]
