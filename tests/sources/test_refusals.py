"""Unreadable topics are one clear error, and are read after the cause is fixed. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pulsar
import pyarrow as pa
import pytest

from eos.chaos.cluster.proxy import FaultProxy, FrameAction
from eos.client import PulsarClient
from eos.errors import DecryptionFailed, ProtocolError, TopicNotFound, Unauthorized
from eos.sources._epoch_planner import EpochPlanner, values_of
from eos.sources._range_reader import read_range
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format, schema_of_source
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from eos.wire import commands
from tests.support import admin
from tests.support.encrypted import send_encrypted
from tests.support.hostile import send_claiming
from tests.support.tokens import CONFIG, token

ADMIN = token("admin")


def read(url: str, topic: str, **more: str) -> list[Any]:
    """Return all values, as a batch read does."""
    given = {"serviceUrl": url, "topic": topic, "requestTimeoutS": "10", **more}
    options = SourceOptions.parse(given)
    values = values_of(options)
    form = row_format(values, schema_of_source(values, metadata=False))
    planner = EpochPlanner(options, form)
    try:
        tasks = planner.tasks(planner.bounded())
    finally:
        planner.close()
    ranges = [one for work in tasks for one in work]
    batches = [batch for one in ranges for batch in read_range(options, form, one)]
    return pa.Table.from_batches(batches)["value"].to_pylist() if batches else []


@pytest.fixture(scope="module")
def guarded() -> Iterator[PulsarStandalone]:
    """A broker with authorization."""
    config = {**CONFIG, "authorizationEnabled": "true"}
    with PulsarStandalone(config=config, admin_token=ADMIN) as running:
        yield running


def permit(broker: PulsarStandalone, topic: str, method: str) -> None:
    path = f"/v2/persistent/public/default/{topic}/permissions/reader"
    body = ["consume"] if method == "POST" else None
    admin.call(broker.admin_url, method, path, body, token=ADMIN)


@pytest.mark.parametrize("schema", ["bytes", "auto"])
def test_a_topic_without_permission_is_refused(guarded, name, schema):
    url = guarded.service_url
    with PulsarClient(url, auth=Auth(token=ADMIN)) as client:
        client.entry_producer(name, create=True).send(b"a").result(timeout=20)
    reader = {"token": token("reader"), "schema": schema}
    with pytest.raises(Unauthorized, match=f"{name}.*permissions of its role"):
        read(url, name, **reader)
    permit(guarded, name, "POST")
    assert read(url, name, **reader) == [b"a"]


def test_a_missing_topic_is_an_error_until_it_exists(pulsar_standalone, client, name):
    url = pulsar_standalone.service_url
    with pytest.raises(TopicNotFound, match=name):
        read(url, name)
    client.entry_producer(name, create=True).send(b"a").result(timeout=20)
    assert read(url, name) == [b"a"]


def test_an_encrypted_entry_is_refused_or_read_with_its_key(
    pulsar_standalone, client, name, tmp_path
):
    client.entry_producer(name, create=True).send(b"plain").result(timeout=20)
    send_encrypted(pulsar_standalone.service_url, name, tmp_path)
    client.entry_producer(name).send(b"behind").result(timeout=20)
    url = pulsar_standalone.service_url
    for mode in ("failfast", "dropmalformed", "permissive"):
        with pytest.raises(DecryptionFailed, match=r"The entry \d+:1:.* is encrypted for 'rsa'"):
            read(url, name, mode=mode)
    assert read(url, name, keyLocation=str(tmp_path)) == [b"plain", b"secret", b"behind"]


@pytest.mark.parametrize("count", [0, -1])
def test_entries_after_one_with_a_wrong_count_are_read(pulsar_standalone, client, name, count):
    """The broker drops entries that it reads together if their counts add up to 0 (0; -1 and 1)."""
    url = pulsar_standalone.service_url
    for value in (b"before", count, b"behind", b"last"):
        if isinstance(value, int):
            send_claiming(client, name, value)
        else:
            client.entry_producer(name, create=True).send(value).result(timeout=20)
        if value == b"behind":  # and no more yet
            with pytest.raises(ProtocolError, match=rf"\d+:1:.* claims {count} messages"):
                read(url, name, requestTimeoutS="4")
            for mode in ("dropmalformed", "permissive"):
                found = read(url, name, mode=mode, requestTimeoutS="4")
                assert found == [b"before", b"behind"]
    assert read(url, name, mode="dropmalformed", requestTimeoutS="4") == [
        b"before",
        b"behind",
        b"last",
    ]


@pytest.mark.parametrize("mode", ["failfast", "dropmalformed", "permissive"])
def test_a_damaged_entry_is_fetched_again(pulsar_standalone, client, name, mode):
    producer = client.entry_producer(name, create=True)
    values = [b"one", b"two", b"three"]
    for value in values:
        producer.send(value).result(timeout=20)
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        proxy.fault(commands.Deliver, FrameAction.DAMAGE, times=2) as fault,
    ):
        assert read(proxy.service_url, name, mode=mode) == values
        assert fault.count == 2


def test_an_entry_that_stays_damaged_is_named(pulsar_standalone, client, name):
    client.entry_producer(name, create=True).send(b"one").result(timeout=20)
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        proxy.fault(commands.Deliver, FrameAction.DAMAGE, times=1000),
        pytest.raises(ProtocolError, match=r"The entry \d+:0:.*checksum"),
    ):
        read(proxy.service_url, name)


def test_an_error_of_the_registry_skips_no_entry(pulsar_standalone, client, name, monkeypatch):
    url = pulsar_standalone.service_url
    sender = pulsar.Client(url)
    try:
        sender.create_producer(name, schema=pulsar.schema.StringSchema()).send("one")
    finally:
        sender.close()

    def odd(*_: object) -> None:
        raise ProtocolError("an odd answer")

    monkeypatch.setattr("eos.sources._range_reader.version_of", odd)
    with pytest.raises(ProtocolError, match="an odd answer"):
        read(url, name, schema="auto", mode="dropmalformed")
    monkeypatch.undo()
    assert read(url, name, schema="auto", mode="dropmalformed") == ["one"]


def test_a_message_that_pulsar_client_sends_in_chunks_is_read(pulsar_standalone, client, name):
    url = pulsar_standalone.service_url
    sender = pulsar.Client(url)
    try:
        producer = sender.create_producer(name, chunking_enabled=True)
        for value in (b"one", bytes(7 << 20), b"two"):
            producer.send(value)
    finally:
        sender.close()
    assert read(url, name) == [b"one", bytes(7 << 20), b"two"]
