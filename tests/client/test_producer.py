"""The batching producer: order, transactions, futures and closing."""

from __future__ import annotations

import threading
from collections import defaultdict

import pyarrow as pa
import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient
from eos.errors import (
    ConfigurationError,
    EosError,
    Fatal,
    InputError,
    MessageTooLarge,
    TransactionPoisoned,
)
from eos.wire import commands
from eos.wire.batch import Hashing, partitions_for_keys
from tests.client.test_entry_reader_faults import TOPIC, Broker
from tests.support import admin
from tests.support.judge import drain
from tests.support.receiving import received
from tests.transport.scripted import wait_until

LONG_MS = 30_000
"""So long that no batch is sent automatically while a test runs."""


def test_messages_go_out_together_and_each_future_names_its_place(through, proxy, name, values):
    producer = through.producer(name, create=True, linger_ms=LONG_MS)
    futures = [producer.send(b"%d" % n) for n in range(100)]
    assert proxy.seen[commands.Send] == 0
    producer.flush()
    assert proxy.seen[commands.Send] == 1
    ids = [future.result(timeout=0) for future in futures]
    assert [one.batch_index for one in ids] == list(range(100))
    assert [future._result for future in futures] == ids  # as asyncio copies it since Python 3.14
    assert len({one.place for one in ids}) == 1
    assert values() == [b"%d" % n for n in range(100)]


def test_what_lingers_goes_out_by_itself(client, name, values):
    producer = client.producer(name, create=True, linger_ms=5)
    assert producer.send(b"x").result(timeout=20).batch_index == 0
    assert values() == [b"x"]


@pytest.mark.parametrize("limits", [{"max_batch_messages": 10}, {"max_batch_bytes": 1000}], ids=str)
def test_what_is_full_goes_out_at_once(through, proxy, name, values, limits):
    producer = through.producer(name, create=True, linger_ms=LONG_MS, **limits)
    futures = [producer.send(b"%02d" % n + b"." * 98) for n in range(20)]
    futures[0].result(timeout=20)
    assert proxy.seen[commands.Send] >= 1
    producer.close()
    assert proxy.seen[commands.Send] >= 2
    assert [value[:2] for value in values()] == [b"%02d" % n for n in range(20)]
    assert all(future.done() for future in futures)


def test_a_commit_sends_what_lingers_first(client, name, values):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    with client.transaction() as txn:
        future = producer.send(b"x", txn=txn)
        assert not future.done()
    assert future.result(timeout=0).batch_index == 0
    assert values() == [b"x"]


def test_an_abort_drops_what_lingers(through, proxy, name, values):
    producer = through.producer(name, create=True, linger_ms=LONG_MS)
    txn = through.transaction()
    dropped, kept = producer.send(b"dropped", txn=txn), producer.send(b"kept")
    txn.abort()
    with pytest.raises(TransactionPoisoned):
        dropped.result(timeout=0)
    with pytest.raises(EosError):
        producer.send(b"late", txn=txn)
    producer.flush()
    assert kept.result(timeout=0)
    assert values() == [b"kept"]
    assert proxy.seen[commands.Send] == 1


def test_several_transactions_and_none_stay_apart_and_in_order(client, name, values):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    committed, aborted = client.transaction(), client.transaction()
    for n in range(9):
        producer.send(b"%d" % n, txn=(None, committed, aborted)[n % 3])
    committed.commit()
    aborted.abort()
    producer.flush()
    seen = values()
    # The broker decides the order between the two: 4.0.7 has stored "6" before "4".
    for first in (0, 1):
        assert [value for value in seen if int(value) % 3 == first] == [
            b"%d" % n for n in range(first, 9, 3)
        ]
    assert len(seen) == 6


def test_nothing_is_lost_or_sent_late_when_threads_send_while_another_commits(client, name, values):
    """I3: a message is in the transaction, or its sender gets an error."""
    producer = client.producer(name, create=True, linger_ms=1)
    taken: list[bytes] = []

    def send(sender: int, txn) -> None:
        try:
            for n in range(10_000):
                value = b"%d-%d-%d" % (txn.id.least, sender, n)
                producer.send(value, txn=txn)
                taken.append(value)
        except EosError:
            pass

    for _ in range(5):
        txn = client.transaction()
        threads = [threading.Thread(target=send, args=(n, txn)) for n in range(2)]
        for thread in threads:
            thread.start()
        before = len(taken)
        wait_until(lambda before=before: len(taken) > before + 500)
        txn.commit()
        for thread in threads:
            thread.join()
    assert sorted(values()) == sorted(taken)


@pytest.mark.parametrize("call", ["commit", "flush", "close"])
def test_the_abort_of_another_transaction_drops_no_other_message(
    client, name, values, monkeypatch, call
):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    send_batch, send_pending = producer._producers[0].send_batch, producer._send_pending
    in_flight, chosen, go = threading.Event(), threading.Event(), threading.Event()

    def waits(*args: object, **options: object):
        in_flight.set()
        assert go.wait(20)
        return send_batch(*args, **options)

    def noted(last: object) -> None:
        if in_flight.is_set():
            chosen.set()
        send_pending(last)

    monkeypatch.setattr(producer._producers[0], "send_batch", waits)
    monkeypatch.setattr(producer, "_send_pending", noted)
    kept, aborted = client.transaction(), client.transaction()
    producer.send(b"0")
    threads = [threading.Thread(target=producer.flush)]
    threads[0].start()
    assert in_flight.wait(20)
    future = producer.send(b"1", txn=kept if call == "commit" else None)
    producer.send(b"dropped", txn=aborted)
    end = kept.commit if call == "commit" else getattr(producer, call)
    threads.append(threading.Thread(target=end))
    threads[1].start()
    assert chosen.wait(20)
    aborted.abort()
    go.set()
    for thread in threads:
        thread.join(20)
    assert future.result(timeout=0)
    assert values() == [b"0", b"1"]


def test_keys_choose_partitions_as_with_java_and_stay_in_order(client, pulsar_standalone, name):
    admin.create_partitioned(pulsar_standalone.admin_url, name, 3)
    sent = [(f"key-{n % 17}", b"%d" % n) for n in range(500)]
    with client.producer(name, linger_ms=2, max_batch_messages=7) as producer:
        futures = [producer.send(value, key=key) for key, value in sent]
    seen: dict[str, list[bytes]] = defaultdict(list)
    places = {}
    for number in range(3):
        topic = f"persistent://public/default/{name}-partition-{number}"
        for one in drain(pulsar_standalone.service_url, topic):
            seen[one.key].append(one.value)
            places[one.value] = number
    for key in seen:
        assert seen[key] == [value for other, value in sent if other == key]
    keys = pa.array([key for key, _ in sent])
    expected = partitions_for_keys(keys, 3, hashing=Hashing.JAVA).tolist()
    assert [places[value] for _, value in sent] == expected
    assert [future.result(timeout=0).partition for future in futures] == expected


def test_without_keys_the_partitions_take_turns(client, pulsar_standalone, name):
    admin.create_partitioned(pulsar_standalone.admin_url, name, 2)
    with client.producer(name, linger_ms=LONG_MS) as producer:
        futures = []
        for n in range(4):
            futures.append(producer.send(b"%d" % n))
            producer.flush()
    assert sorted(future.result(timeout=0).partition for future in futures) == [0, 0, 1, 1]


def test_entries_of_one_key_each_have_their_futures_in_order(client, name):
    producer = client.producer(name, create=True, linger_ms=LONG_MS, batching="by_key")
    futures = [producer.send(b"%d" % n, key=f"k{n % 2}") for n in range(6)]
    producer.flush()
    ids = [future.result(timeout=0) for future in futures]
    assert len({one.place for one in ids}) == 2
    assert [one.batch_index for one in ids] == [0, 0, 1, 1, 2, 2]
    with client.consumer(name, "s", type="shared") as consumer:
        seen = received(consumer, 6)
    found = {(*one.id.place, one.id.batch_index): one.value for one in seen}
    assert [found[(*one.place, one.batch_index)] for one in ids] == [b"%d" % n for n in range(6)]


def test_messages_keep_what_they_have_and_kinds_of_keys_are_mixed(client, name):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    buffer = bytearray(b"mine")
    producer.send(buffer, key="ä", event_time_ms=5, properties={"a": "ö"})
    buffer[:] = b"else"
    producer.send(b"2", key=b"\xff")
    producer.send(None, key="gone")
    producer.flush()
    with client.consumer(name, "s") as consumer:
        first, second, third = received(consumer, 3)
    assert (first.value, first.key, first.event_time_ms) == (b"mine", "ä", 5)
    assert first.properties == {"a": "ö"}
    assert (second.value, second.key) == (b"2", b"\xff")
    assert (third.value, third.key) == (None, "gone")


@pytest.mark.parametrize(
    "options",
    [
        {"value": None},
        {"value": "text"},
        {"value": b"", "key": 5},
        {"value": b"", "key": "\ud800"},
        {"value": b"", "event_time_ms": -1},
        {"value": b"", "properties": {"a": None}},
        {"value": b"", "properties": 5},
        {"value": b"", "properties": "text"},
    ],
    ids=repr,
)
def test_what_can_not_be_written_is_refused_at_once_and_spoils_no_other(
    client, name, values, options
):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    producer.send(b"good")
    txn = client.transaction()
    with pytest.raises(InputError):
        producer.send(**options, txn=txn)
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    producer.flush()
    assert values() == [b"good"]


def test_a_message_over_the_limit_is_refused_and_one_over_the_batch_limit_goes_alone(
    client, name, values
):
    producer = client.producer(name, create=True, linger_ms=LONG_MS, max_batch_bytes=100)
    with pytest.raises(MessageTooLarge):
        producer.send(b"x" * 6_000_000)
    producer.send(b"x" * 1000)
    producer.flush()
    assert values() == [b"x" * 1000]


def test_by_key_leaves_room_for_the_entrys_copy_of_the_key(client, name, values):
    producer = client.producer(name, create=True, linger_ms=LONG_MS, batching="by_key")
    limit, key = producer._producers[0].max_batch_bytes, "ä" * 50_000
    with pytest.raises(MessageTooLarge):
        producer.send(b"x" * (limit - 100_100), key=key)
    # Two that would fit together if the key were not repeated, and one that just fits.
    futures = [producer.send(b"x" * (limit // 2 - 110_000), key=key) for _ in range(2)]
    futures.append(producer.send(b"x" * (limit - 200_100), key=key))
    producer.flush()
    assert [future.result(timeout=20).batch_index for future in futures] == [0, 0, 0]
    assert len(values()) == 3


def test_an_entry_in_doubt_fails_its_messages_and_poisons_the_transaction(
    through, proxy, name, values
):
    producer = through.producer(name, create=True, linger_ms=LONG_MS)
    txn = through.transaction()
    futures = [producer.send(b"x", txn=txn) for _ in range(3)]
    with (
        proxy.fault(commands.Send, FrameAction.CUT_AFTER),
        pytest.raises(TransactionPoisoned),
    ):
        txn.commit()
    assert all(isinstance(future.exception(timeout=0), EosError) for future in futures)
    with pytest.raises(EosError):
        producer.send(b"never")
    assert values() == []


def test_a_closed_producer_has_sent_all_and_takes_no_more(client, name, values):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    future = producer.send(b"x")
    producer.close()
    producer.close()
    assert future.done()
    with pytest.raises(Fatal, match="closed"):
        producer.send(b"y")
    assert values() == [b"x"]


def test_a_client_that_is_closed_leaves_no_future_open_and_no_thread(pulsar_standalone, name):
    with PulsarClient(pulsar_standalone.service_url) as client:
        producer = client.producer(name, create=True, linger_ms=LONG_MS)
        future = producer.send(b"x")
        assert client._timer._threads == 1
    with pytest.raises(EosError):
        future.result(timeout=10)
    wait_until(lambda: not client._timer._threads)
    with pytest.raises(EosError):
        producer.send(b"y")


def test_an_interrupt_while_a_batch_is_sent_leaves_no_future_open(client, name, monkeypatch):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    txn = client.transaction()
    future = producer.send(b"x", txn=txn)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._producers[0], "send_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.flush()
    assert isinstance(future.exception(timeout=0), EosError)
    with pytest.raises(TransactionPoisoned):
        txn.commit()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_a_send_that_raises_has_sent_nothing(client, name, values, monkeypatch, error):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    txn = client.transaction()

    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(producer._timer, "call_after", fails)
        for one in (txn, None):
            with pytest.raises(type(error)):
                producer.send(b"repeated", txn=one)
    with pytest.raises(TransactionPoisoned):
        txn.commit()
    producer.send(b"repeated")
    producer.flush()
    assert values() == [b"repeated"]


class Interrupted(list):
    """Ctrl-C comes while the first message is appended."""

    was_interrupted = False

    def append(self, one: object) -> None:
        if not self.was_interrupted:
            self.was_interrupted = True
            raise KeyboardInterrupt
        super().append(one)


@pytest.mark.parametrize("at", ["future", "message"])
def test_an_interrupted_send_shifts_no_future_of_its_batch(client, name, monkeypatch, at):
    producer = client.producer(name, create=True, linger_ms=LONG_MS)
    first = producer.send(b"first")

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if at == "future":
            patch.setattr("eos.client._producer.MessageFuture", interrupted)
        else:
            producer._open.messages = Interrupted(producer._open.messages)
        with pytest.raises(KeyboardInterrupt):
            producer.send(b"interrupted")
    again, third = producer.send(b"again"), producer.send(b"third")
    producer.flush()
    places = [future.result(timeout=0).batch_index for future in (first, again, third)]
    assert places == [0, 1, 2]


def test_callbacks_are_called_and_may_send(client, name, values):
    producer = client.producer(name, create=True, linger_ms=1)
    again: list[object] = []
    producer.send(b"1").add_done_callback(lambda _: again.append(producer.send(b"2")))
    wait_until(lambda: again)
    producer.flush()
    assert values() == [b"1", b"2"]


def test_a_callback_that_sends_while_its_batch_is_sent_sends_nothing_twice(
    client, name, values, monkeypatch
):
    producer = client.producer(name, create=True, linger_ms=LONG_MS, max_batch_messages=2)
    send_batch = producer._producers[0].send_batch

    def acknowledged(*args: object, **options: object):
        sent = send_batch(*args, **options)
        sent.result(timeout=20)
        return sent  # a callback is called as soon as it is added

    monkeypatch.setattr(producer._producers[0], "send_batch", acknowledged)
    again: list[object] = []
    first = producer.send(b"1")
    first.add_done_callback(lambda _: again.extend(map(producer.send, (b"3", b"4"))))
    producer.send(b"2")
    assert [future.result(timeout=20).batch_index for future in again] == [0, 1]
    producer.close()
    assert values() == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "options",
    [
        {"linger_ms": -1},
        {"max_batch_messages": 0},
        {"max_batch_bytes": 0},
        {"hashing": "md5"},
        {"batching": "none"},
    ],
    ids=str,
)
def test_options_out_of_their_range_are_refused(options):
    with (
        Broker() as broker,
        PulsarClient(broker.url) as client,
        pytest.raises(ConfigurationError, match=next(iter(options))),
    ):
        client.producer(TOPIC, **options)
