"""Idle producers, kept open at the broker for the next transaction of their process."""

from __future__ import annotations

import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import EntryProducer, PulsarClient, Transaction, _handle_cache
from eos.errors import ConnectionLost, EosError, Fatal, ProducerBusy
from eos.wire import commands
from eos.wire.commands import SchemaInfo, SchemaType
from tests.client.test_idle_readers import leaving_when_refused
from tests.support import admin
from tests.transport.scripted import wait_until

SCHEMA = SchemaInfo(name="s", type=SchemaType.STRING)


@pytest.fixture
def topic(through, name) -> str:
    """The full name of an existing topic."""
    full = f"persistent://public/default/{name}"
    through.entry_producer(full, create=True).close()
    return full


def write(
    client: PulsarClient,
    topic: str,
    value: bytes,
    *,
    after: Transaction | None = None,
    schema: SchemaInfo | None = None,
) -> tuple[EntryProducer, Transaction]:
    """Commit one message in a transaction and release the producer, which is then idle."""
    with client.transaction(timeout_s=60) as txn:
        (producer,) = client.entry_producers(
            [topic], txn=txn, schema=schema, after=() if after is None else (after.id,)
        )
        producer.send(value, txn=txn)
        client.release_producers([producer.transfer()], txn, schema)
    return producer, txn


def publishers(broker, topic: str) -> int:
    path = topic.replace("://", "/")
    return len(admin.call(broker.admin_url, "GET", f"/v2/{path}/stats")["publishers"])


def test_it_is_used_again_under_its_name_and_nothing_is_opened(through, proxy, topic, values):
    first, txn = write(through, topic, b"1")
    opened = proxy.seen[commands.Producer]
    second, _ = write(through, topic, b"2", after=txn)
    assert (second.name, proxy.seen[commands.Producer]) == (first.name, opened)
    assert values() == [b"1", b"2"]


def test_what_has_handed_it_on_sends_nothing_any_more(through, topic):
    first, txn = write(through, topic, b"1")
    late = through.transaction(timeout_s=60)
    with pytest.raises(Fatal, match="is closed"):
        first.send(b"late", txn=late)
    late.abort()
    second, _ = write(through, topic, b"2", after=txn)
    assert second.name == first.name


def test_it_is_handed_on_when_all_is_acknowledged(through, proxy, topic):
    with through.transaction(timeout_s=60) as txn:
        (producer,) = through.entry_producers([topic], txn=txn)
        sent = [producer.send(b"x", txn=txn) for _ in range(50)]
        producer.transfer()
        assert all(one.result(5) for one in sent)


def test_one_that_has_no_acknowledgement_is_not_handed_on(through, proxy, topic):
    txn = through.transaction(timeout_s=60)
    (producer,) = through.entry_producers([topic], txn=txn)
    closed = proxy.seen[commands.CloseProducer]
    producer._window._timeout_s = 0.5
    with proxy.fault(commands.SendReceipt, FrameAction.DROP):
        producer.send(b"x", txn=txn)
        with pytest.raises(EosError):
            producer.transfer()
    wait_until(lambda: proxy.seen[commands.CloseProducer] == closed + 1)
    with pytest.raises(EosError):
        txn.commit()


def test_after_another_transaction_it_is_closed_and_a_new_one_opened(
    through, topic, pulsar_standalone
):
    first, _ = write(through, topic, b"1")
    with through.transaction(timeout_s=60) as other:
        pass
    second, _ = write(through, topic, b"2", after=other)
    assert second.name != first.name
    wait_until(lambda: publishers(pulsar_standalone, topic) == 1)


def test_without_a_word_of_the_last_transaction_none_is_used_again(through, topic):
    first, _ = write(through, topic, b"1")
    second, _ = write(through, topic, b"2")
    assert second.name != first.name


def test_one_of_another_schema_is_not_used_again(through, topic):
    first, txn = write(through, topic, b"1")
    second, _ = write(through, topic, b"2", after=txn, schema=SCHEMA)
    assert second.name != first.name


def test_one_that_the_broker_has_closed_meanwhile_is_not_used_again(
    through, topic, name, pulsar_standalone, values
):
    first, txn = write(through, topic, b"1")
    admin.call(pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload")
    wait_until(lambda: not through.producers._cache._idle[topic][1].producer.is_usable)
    second, _ = write(through, topic, b"2", after=txn)
    assert second.name != first.name
    assert values() == [b"1", b"2"]


def test_it_does_not_wait_for_ever(through, topic, pulsar_standalone, monkeypatch):
    monkeypatch.setattr(_handle_cache, "IDLE_TTL_S", 0.4)
    write(through, topic, b"1")
    wait_until(lambda: publishers(pulsar_standalone, topic) == 0)
    assert not through.producers._cache._idle


def test_no_more_than_so_many_wait(through, name, monkeypatch, proxy):
    monkeypatch.setattr(_handle_cache, "MAX_IDLE", 2)
    topics = [f"persistent://public/default/{name}-{n}" for n in range(3)]
    for one in topics:
        through.entry_producer(one, create=True).close()
    closed = proxy.seen[commands.CloseProducer]
    for one in topics:
        write(through, one, b"x")
    wait_until(lambda: proxy.seen[commands.CloseProducer] == closed + 1)
    assert list(through.producers._cache._idle) == topics[1:]


def test_a_client_that_is_closed_keeps_none(pulsar_standalone, topic):
    with PulsarClient(pulsar_standalone.service_url) as client:
        write(client, topic, b"1")
    wait_until(lambda: publishers(pulsar_standalone, topic) == 0)


def test_when_the_transaction_takes_no_topics_those_that_were_parked_are_closed(
    through, proxy, topic
):
    _, txn = write(through, topic, b"1")
    closed = proxy.seen[commands.CloseProducer]
    ended = through.transaction(timeout_s=60)
    ended.abort()
    with pytest.raises(EosError):
        through.entry_producers([topic], txn=ended, after=(txn.id,))
    wait_until(lambda: proxy.seen[commands.CloseProducer] == closed + 1)


def test_a_broker_with_deduplication_takes_what_it_sends_in_the_next_transaction(
    through, topic, name, pulsar_standalone, values
):
    admin.call(
        pulsar_standalone.admin_url,
        "POST",
        f"/v2/persistent/public/default/{name}/deduplicationEnabled",
        True,
    )
    wait_until(
        lambda: admin.call(
            pulsar_standalone.admin_url,
            "GET",
            f"/v2/persistent/public/default/{name}/deduplicationEnabled",
        )
    )
    _, txn = write(through, topic, b"0")
    for number in range(1, 4):
        _, txn = write(through, topic, str(number).encode(), after=txn)
    assert values() == [b"0", b"1", b"2", b"3"]


def test_one_that_the_broker_closes_as_it_is_handed_on_has_no_heir(through, topic, monkeypatch):
    (producer,) = through.entry_producers([topic])
    flush = producer.flush

    def flush_and_lose(*args: float) -> None:
        flush(*args)
        closed = commands.CloseProducer(producer_id=producer._id, request_id=0)
        producer._connection.listeners.dispatch(closed)

    monkeypatch.setattr(producer, "flush", flush_and_lose)
    with pytest.raises(ConnectionLost):
        producer.transfer()


def test_what_is_parked_when_the_client_is_closed_is_forgotten(pulsar_standalone, topic):
    with PulsarClient(pulsar_standalone.service_url) as client:
        (producer,) = client.entry_producers([topic])
        successor = producer.transfer()
    client.release_producers([successor], None)
    assert not client.producers._cache._idle


@pytest.fixture
def crowded(through, topic, name, pulsar_standalone) -> str:
    """A topic that admits one producer."""
    path = f"/v2/persistent/public/default/{name}/maxProducers"
    admin.call(pulsar_standalone.admin_url, "POST", path, 1)
    wait_until(lambda: admin.call(pulsar_standalone.admin_url, "GET", path) == 1)
    return topic


def test_where_a_policy_admits_no_more_those_of_other_processes_are_waited_for(
    through, crowded, pulsar_standalone, values
):
    other = PulsarClient(pulsar_standalone.service_url)
    write(other, crowded, b"1")
    with leaving_when_refused(other, through), through.transaction(timeout_s=60) as txn:
        (producer,) = through.entry_producers([crowded], txn=txn, after=())
        producer.send(b"2", txn=txn)
        producer.close()
    assert (through.limit_hit, other.limit_hit) == (True, False)
    assert values() == [b"1", b"2"]


def test_who_was_refused_once_is_in_nobodys_way(through, topic, pulsar_standalone):
    through._limit_backoff.limit_hit = True
    write(through, topic, b"1")
    assert not through.producers._cache._idle
    wait_until(lambda: publishers(pulsar_standalone, topic) == 0)


def test_who_parks_none_waits_for_none(through, crowded, pulsar_standalone):
    with PulsarClient(pulsar_standalone.service_url) as other:
        write(other, crowded, b"1")
        with pytest.raises(ProducerBusy):
            through.entry_producers([crowded])
