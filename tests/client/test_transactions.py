"""The public client on a real broker, judged by plain pulsar-client."""

from __future__ import annotations

import contextlib
import gc
import math
import threading
import time

import pulsar
import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient, Transaction
from eos.errors import (
    ConfigurationError,
    EosError,
    Fatal,
    MessageTooLarge,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.ids import TxnId
from eos.testing import PulsarStandalone
from eos.waiting import boot_time
from eos.wire import commands
from eos.wire.batch import Message
from tests.support.admin import create_partitioned
from tests.support.expiry import await_expiry
from tests.support.judge import drain, quiet_client

EARLIEST = pulsar.InitialPosition.Earliest


def test_what_is_sent_in_a_transaction_is_readable_once_it_is_committed(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"a", txn=txn, key="k", properties={"p": "q"}, event_time_ms=5)
    producer.send_many([Message(b"b"), Message(b"c")], txn=txn)
    producer.flush()
    txn.commit()
    assert values() == [b"a", b"b", b"c"]


def test_key_properties_and_event_time_arrive(client, name, pulsar_standalone):
    producer = client.entry_producer(name, create=True)
    with client.transaction() as txn:
        producer.send(b"v", txn=txn, key="k", properties={"p": "q"}, event_time_ms=5)
    (seen,) = drain(pulsar_standalone.service_url, name)
    assert (seen.key, seen.properties, seen.event_time_ms) == ("k", {"p": "q"}, 5)
    assert seen.producer == producer.name


def test_the_end_of_the_block_commits_without_any_receipt_asked_for(client, name, values):
    producer = client.entry_producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        for n in range(100):
            producer.send(b"%d" % n, txn=txn)
    assert values() == [b"%d" % n for n in range(100)]


def test_negative_acknowledgements_and_dead_letters_of_pulsar_client_work(
    client, name, pulsar_standalone
):
    plain = quiet_client(pulsar_standalone.service_url)
    consumer = plain.subscribe(
        f"persistent://public/default/{name}",
        "s",
        pulsar.ConsumerType.Shared,
        negative_ack_redelivery_delay_ms=100,
        batch_index_ack_enabled=True,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(1, f"{name}-dead", "kept"),
    )
    dead = plain.subscribe(f"{name}-dead", "kept", initial_position=EARLIEST)
    with client.producer(name) as producer:
        for end in ("abort", "commit"):
            txn = client.transaction()
            for value in (b"a", b"b", b"c"):
                producer.send(b"%s %s" % (end.encode(), value), txn=txn)
            getattr(txn, end)()
    seen = []
    with contextlib.suppress(pulsar.Timeout):
        while message := consumer.receive(1_000 if len(seen) == 4 else 20_000):
            seen.append(message.data())
            is_bad = seen[-1] == b"commit b"
            (consumer.negative_acknowledge if is_bad else consumer.acknowledge)(message)
    assert sorted(seen) == [b"commit a", b"commit b", b"commit b", b"commit c"]
    # The whole entry goes to the dead-letter topic, as with pulsar-client's own batches.
    assert [dead.receive(20_000).data() for _ in "abc"] == [b"commit a", b"commit b", b"commit c"]
    plain.close()


def test_an_exception_in_the_block_aborts_and_passes(client, name, values):
    producer = client.entry_producer(name, create=True)

    def fail() -> None:
        with client.transaction(timeout_s=60) as txn:
            producer.send(b"never", txn=txn)
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        fail()
    producer.send(b"plain").result(timeout=10)
    assert values() == [b"plain"]


def test_a_block_may_commit_or_abort_by_itself(client, name, values):
    producer = client.entry_producer(name, create=True)
    with client.transaction() as txn:
        producer.send(b"committed", txn=txn)
        txn.commit()
    with client.transaction() as txn:
        producer.send(b"aborted", txn=txn)
        txn.abort()

    def fail_after_commit() -> None:
        with client.transaction() as txn:
            producer.send(b"too", txn=txn)
            txn.commit()
            raise KeyError("later")

    with pytest.raises(KeyError):
        fail_after_commit()
    assert values() == [b"committed", b"too"]


def test_a_transaction_that_outlived_its_time_is_reported_as_expired(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=8)
    producer.send(b"late", txn=txn).result(timeout=10)
    await_expiry(client, txn.id)
    with pytest.raises(TransactionExpired):
        txn.commit()
    with pytest.raises(TransactionPoisoned, match="was not committed"):
        txn.commit()
    assert values() == []


def test_sending_in_an_expired_transaction_on_a_new_partition_says_so(client, name):
    txn = client.transaction(timeout_s=1)
    await_expiry(client, txn.id)
    producer = client.entry_producer(name, create=True)
    with pytest.raises(TransactionExpired):
        producer.send(b"late", txn=txn)
    with pytest.raises(TransactionExpired):
        txn.commit()


def test_after_a_commit_nothing_more_can_be_sent_in_it_and_it_is_not_said_to_have_failed(
    client, name, values
):
    """A single process can't cause the late-send hazard.

    A second commit must not raise an error that means "send everything again": all is committed.
    """
    producer = client.entry_producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"a", txn=txn)
    for late in (
        lambda: producer.send(b"late", txn=txn),
        lambda: producer.send(b"late", txn=client.join(txn.id)),
        lambda: client.entry_producer(name).send(b"late", txn=txn),
        txn.commit,
        txn.abort,
    ):
        with pytest.raises(Fatal, match="was committed"):
            late()
    assert values() == [b"a"]


def test_after_an_abort_nothing_more_can_be_sent_in_it(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"a", txn=txn)
    txn.abort()
    txn.abort()
    for late in (lambda: producer.send(b"late", txn=txn), txn.commit):
        with pytest.raises(TransactionPoisoned, match="was aborted"):
            late()
    assert values() == []


def test_a_late_comer_from_another_process_can_not_register(client, pulsar_standalone, name):
    producer = client.entry_producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"a", txn=txn)
    with PulsarClient(pulsar_standalone.service_url) as other:
        late = other.join(txn.id)
        with pytest.raises(TransactionExpired):
            other.entry_producer(name).send(b"late", txn=late)


@pytest.mark.broker
def test_the_late_send_hazard_is_real_when_the_rules_are_broken(name):
    """A raw SEND into a committed transaction hides committed rows (measured): the reason for I3.

    On a separate broker: another test's open transaction would delay the hiding.
    """
    topic = f"persistent://public/default/{name}"
    with PulsarStandalone() as broker, PulsarClient(broker.service_url) as client:
        producer = client.entry_producer(name, create=True)
        with client.transaction(timeout_s=60) as txn:
            producer.send(b"committed", txn=txn)
        assert [seen.value for seen in drain(broker.service_url, topic)] == [b"committed"]
        with PulsarClient(broker.service_url, timeout_s=10) as other:
            zombie = other.join(txn.id)
            zombie._registered.add(producer.topic)  # breaks the rule: no request to register
            producer.send(b"late", txn=zombie).result(timeout=10)
        with client.transaction(timeout_s=60) as later:
            producer.send(b"later", txn=later)
        assert b"committed" not in [seen.value for seen in drain(broker.service_url, topic)]


def test_what_threads_send_while_another_commits_is_either_committed_or_refused(
    through, proxy, name, values
):
    """No send leaves after END_TXN: the proxy sees the order of the client's commands."""
    producer = through.entry_producer(name, create=True)
    txn = through.transaction(timeout_s=60)
    accepted: list[bytes] = []
    late: list[object] = []
    ending = threading.Event()

    def at_end(_: commands.EndTxn) -> FrameAction:
        ending.set()
        return FrameAction.PASS

    def at_send(send: commands.Send) -> FrameAction:
        if ending.is_set():
            late.append(send)
        return FrameAction.PASS

    def send(thread: int) -> None:
        try:
            for n in range(10**6):
                value = b"%d/%d" % (thread, n)
                producer.send(value, txn=txn)
                accepted.append(value)
        except Fatal:
            return

    threads = [threading.Thread(target=send, args=(n,)) for n in range(3)]
    with (
        proxy.fault(commands.EndTxn, at_end, times=10**6),
        proxy.fault(commands.Send, at_send, times=10**9),
    ):
        for thread in threads:
            thread.start()
        threading.Event().wait(0.3)
        while len(accepted) <= 10:  # a loaded machine takes longer
            threading.Event().wait(0.01)
        txn.commit()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
    assert late == []
    assert sorted(values()) == sorted(accepted)


def test_several_topics_and_partitions_become_readable_together(client, pulsar_standalone, name):
    create_partitioned(pulsar_standalone.admin_url, name, 3)
    topics = [f"persistent://public/default/{name}-partition-{n}" for n in range(3)]
    with client.transaction(timeout_s=60) as txn:
        for topic in topics:
            client.entry_producer(topic).send(topic.encode(), txn=txn)
        client.entry_producer(f"{name}-b", create=True).send(b"b", txn=txn)
        assert txn.registered == (f"persistent://public/default/{name}-b", *topics)
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert [m.value.decode() for m in seen] == topics
    assert [m.value for m in drain(pulsar_standalone.service_url, f"{name}-b")] == [b"b"]


def test_plain_sends_and_two_transactions_share_a_producer(client, name, values):
    """Readers stop at the first open transaction; messages with a known outcome appear in order.

    Each message is stored before the next is sent: while a topic takes its first snapshot, the
    broker lets plain messages overtake those of a transaction (measured).
    """
    producer = client.entry_producer(name, create=True)
    one, two = client.transaction(), client.transaction()
    producer.send(b"plain 1").result(timeout=10)
    producer.send(b"one", txn=one).result(timeout=10)
    producer.send(b"two", txn=two).result(timeout=10)
    producer.send(b"plain 2")
    two.abort()
    one.commit()
    producer.flush()
    assert values() == [b"plain 1", b"one", b"plain 2"]


def test_a_second_client_joins_and_the_first_one_commits(client, pulsar_standalone, name, values):
    producer = client.entry_producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"first", txn=txn).result(timeout=10)
        with PulsarClient(pulsar_standalone.service_url, timeout_s=10) as other:
            theirs = other.entry_producer(name)
            theirs.send(b"second", txn=other.join(txn.id))
            theirs.close()
    assert values() == [b"first", b"second"]


def test_all_who_join_a_transaction_in_one_client_share_its_fate(client, name):
    txn = client.transaction()
    assert client.join(txn.id) is txn
    txn.poison(EosError("a doubt"))
    with pytest.raises(TransactionPoisoned, match="a doubt"):
        client.entry_producer(name, create=True).send(b"x", txn=client.join(txn.id))
    txn_id = txn.id
    txn.abort()
    del txn
    gc.collect()
    assert txn_id not in client._transactions  # unreferenced transactions are dropped


def test_a_transaction_expires_while_the_machine_sleeps(monkeypatch):
    txn = Transaction(TxnId(0, 1), None, expires_at=boot_time() + 60)
    txn.check()
    real = time.clock_gettime
    monkeypatch.setattr(
        "time.clock_gettime", lambda clock: real(clock) + 61 * (clock == time.CLOCK_BOOTTIME)
    )
    with pytest.raises(TransactionPoisoned, match="has expired"):
        txn.check()


@pytest.mark.parametrize("timeout_s", [0.05, 0, -1, 25 * 3600, math.nan, math.inf, -math.inf])
def test_a_time_to_live_that_would_upset_the_coordinator_is_refused(client, timeout_s):
    with pytest.raises(ConfigurationError, match="time to live"):
        client.transaction(timeout_s=timeout_s)


def test_a_message_that_can_not_be_sent_poisons_because_it_would_be_missing(client, name, values):
    producer = client.entry_producer(name, create=True)
    txn = client.transaction()
    producer.send(b"small", txn=txn)
    with pytest.raises(MessageTooLarge, match="limit"):
        producer.send(b"x" * (5 * 1024 * 1024), txn=txn)
    with pytest.raises(TransactionPoisoned, match="limit"):
        txn.commit()
    producer.send(b"the producer goes on").result(timeout=10)
    assert values() == [b"the producer goes on"]


@pytest.mark.parametrize(
    "options",
    [{"timeout_s": 0}, {"timeout_s": math.nan}, {"timeout_s": 1e10}, {"max_pending_bytes": 0}],
)
def test_limits_of_zero_or_without_end_are_refused(options):
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        PulsarClient("pulsar://localhost", **options)


def test_a_closed_client_says_so_at_once_and_may_be_closed_again(pulsar_standalone, name):
    client = PulsarClient(pulsar_standalone.service_url, timeout_s=10)
    producer = client.entry_producer(name, create=True)
    txn = client.transaction()
    producer.send(b"x", txn=txn).result(timeout=10)
    client.close()
    client.close()
    for use in (lambda: client.entry_producer(name), client.transaction, txn.abort):
        with pytest.raises(Fatal, match="The client is closed"):
            use()
    with pytest.raises(EosError):
        producer.send(b"y")
    with pytest.raises(TransactionPoisoned):
        txn.commit()
