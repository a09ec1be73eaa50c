"""Messages in chunks over epochs, tasks and restarts; the Java client sends them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from eos.admin import Ledger
from eos.client import PulsarClient
from eos.ids import EntryPlace, MessageId, TopicName
from eos.sources import _entry_ranges, _subscription
from eos.sources._source_options import SourceOptions
from eos.sources._source_topics import SourceTopics
from eos.sources._subscription import QuerySubscription
from eos.sources.archive import Archive
from eos.testing import PulsarStandalone
from tests.support.admin import call
from tests.support.chunks import send_chunk
from tests.support.java_client import JavaMessage, java_client
from tests.transport.scripted import wait_until


@pytest.fixture
def sent(pulsar_standalone: PulsarStandalone, name: str) -> list[bytes]:
    """The values of this test's topic: each is one to twelve entries."""
    rng = random.Random(47)
    values = [rng.randbytes(rng.choice([10, 900, 2300])) for _ in range(12)]
    with java_client(pulsar_standalone.service_url) as java:
        messages = [JavaMessage(value) for value in values]
        topic = f"persistent://public/default/{name}"
        java.send(topic, messages, chunking=True, chunkBytes=200)
    return values


def test_a_message_is_in_the_epoch_of_its_last_chunk(
    run: Callable[..., dict[int, list[Any]]], sent: list[bytes], pulsar_standalone: PulsarStandalone
) -> None:
    limits = {"adminUrl": pulsar_standalone.admin_url, "maxEntriesPerTrigger": 7}
    epochs: dict[int, list[Any]] = {}
    with pytest.raises(Exception, match="after the epoch was read"):
        run(fail_in=2, into=epochs, **limits)
    assert set(epochs) == {0, 1, 2}
    run(into=epochs, **limits)  # epoch 2 again, and the rest
    assert len(epochs) > 4
    assert [value for _, values in sorted(epochs.items()) for value in values] == sent


def test_tasks_of_one_partition_share_messages_in_chunks(
    load: Callable[..., Any], sent: list[bytes], pulsar_standalone: PulsarStandalone
) -> None:
    df = load(adminUrl=pulsar_standalone.admin_url, minPartitions=6)
    assert df.rdd.getNumPartitions() == 6
    assert [bytes(row["value"]) for row in df.collect()] == sent


class Topic:
    """This test's topic, whose ledgers are deleted as soon as nothing keeps them."""

    def __init__(self, client: PulsarClient, name: str, broker: PulsarStandalone) -> None:
        self.name = f"persistent://public/default/{name}"
        self._path, self._url = f"/v2/persistent/public/default/{name}", broker.admin_url
        self._client = client
        self.options = {
            "serviceUrl": broker.service_url,
            "topic": name,
            "adminUrl": broker.admin_url,
        }

    def send(self, count: int) -> None:
        """Send some short messages."""
        with closing(self._client.entry_producer(self.name, create=True)) as producer:
            for number in range(count):
                producer.send(b"%d" % number).result()

    def send_chunk(self, number: int, of: int, uuid: str, value: bytes, **more: Any) -> MessageId:
        """Send one chunk of a message."""
        with closing(self._client.entry_producer(self.name, create=True)) as producer:
            return send_chunk(producer, number, of, uuid, value, producer_name="java", **more)

    def next_ledger(self) -> None:
        """Close the ledger."""
        call(self._url, "PUT", f"{self._path}/unload")

    def ledgers(self) -> list[Ledger]:
        """Those that are left after the broker has deleted what it may."""
        admin = SourceOptions.parse(self.options, None).admin()
        admin.trim(TopicName.parse(self.name))  # answered when they are deleted (measured)
        return admin.ledgers(TopicName.parse(self.name))


@pytest.fixture
def topic(client: PulsarClient, name: str, pulsar_standalone: PulsarStandalone) -> Topic:
    return Topic(client, name, pulsar_standalone)


@pytest.fixture
def moved(topic: Topic) -> Iterator[Callable[..., EntryPlace]]:
    """Moves a query's subscription to the topic's end; returns where it is then."""
    topics = SourceTopics(SourceOptions.parse(topic.options, None))

    def moved(subscription: QuerySubscription | None = None) -> EntryPlace:
        one = subscription or QuerySubscription("mine", topics, timeout_s=20)
        ends = topics.bounds([topic.name])[topic.name]
        assert ends.last_id is not None
        one.keep({topic.name: (ends.last_id.ledger, ends.last_id.entry + 1)})
        one.move({topic.name: (ends.last_id.ledger, ends.last_id.entry + 1)})
        return topics.cursor(topic.name, "mine").place()

    yield moved
    topics.close()


@pytest.mark.parametrize("is_new_run", [True, False])
def test_no_ledger_is_left_in_which_an_unfinished_message_begins(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new_run: bool
) -> None:
    monkeypatch.setattr(_subscription, "_AGAIN_S", 0)

    def opened() -> Archive:
        return Archive(topic.options, str(tmp_path / "past"))

    archive = opened()
    topic.send(3)
    topic.send_chunk(0, 3, "long", b"a")
    archive.add()
    topic.next_ledger()
    topic.send_chunk(1, 3, "long", b"b")
    topic.send(3)
    archive.add()
    assert len(topic.ledgers()) == 2
    topic.next_ledger()
    topic.send(3)
    if is_new_run:
        archive.close()
        archive = opened()
    archive.add()
    assert len(topic.ledgers()) == 3
    topic.send_chunk(2, 3, "long", b"c")
    topic.send(1)
    archive.add()
    values = pa.table(DeltaTable(tmp_path / "past").to_pyarrow_table())["value"].to_pylist()
    assert values.count(b"abc") == 1

    def is_freed() -> bool:
        # The broker lets one move a second free ledgers at once, the others up to a minute later
        # (managedLedgerDefaultMarkDeleteRateLimit, managedLedgerCursorPositionFlushSeconds).
        topic.send(1)
        archive.add()
        return len(topic.ledgers()) == 1

    # It is complete, and nothing else is kept.
    wait_until(is_freed, timeout_s=60)
    archive.close()


def test_a_message_that_takes_too_long_is_not_waited_for(
    topic: Topic, moved: Callable[..., EntryPlace]
) -> None:
    topic.send(2)
    minute_ago = time.time_ns() // 10**6 - 60_000
    topic.send_chunk(0, 2, "long", b"a", publish_time=minute_ago - 1000)
    topic.next_ledger()
    topic.send(4)
    assert moved()[1] == 3
    at = topic.send_chunk(0, 2, "later", b"a")
    topic.next_ledger()
    topic.send(4)
    assert moved() == (at.ledger, at.entry - 1)


def test_what_is_too_much_to_look_at_is_kept(
    topic: Topic, moved: Callable[..., EntryPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(5)
    topic.next_ledger()
    topic.send(4)
    monkeypatch.setattr(_entry_ranges, "_MOST_READ", 8 * 1000)
    assert moved()[1] == 0
    monkeypatch.undo()
    assert moved()[1] == 3


def test_unfinished_messages_are_not_looked_for_in_each_epoch(
    topic: Topic, moved: Callable[..., EntryPlace], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(2)
    topic.send_chunk(0, 2, "long", b"a")
    topic.next_ledger()
    topic.send(4)
    topics = SourceTopics(SourceOptions.parse(topic.options, None))
    looked: list[EntryPlace] = []
    look = SourceTopics.unfinished_before

    def noted(self: SourceTopics, name: str, place: EntryPlace) -> EntryPlace:
        looked.append(place)
        return look(self, name, place)

    monkeypatch.setattr(SourceTopics, "unfinished_before", noted)
    subscription = QuerySubscription("mine", topics, timeout_s=20)
    kept = moved(subscription)
    assert moved(subscription) == kept
    assert len(looked) == 1
    topics.close()
