"""The public client on a real broker, judged by plain pulsar-client."""

from __future__ import annotations

import threading

import pytest

from chaos.proxy import FaultProxy, Verdict
from eos.client import PulsarClient
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    Indeterminate,
    MessageTooLarge,
    TopicNotFound,
    TransactionExpired,
    TransactionPoisoned,
    TransactionsDisabled,
)
from eos.standalone import PulsarStandalone
from eos.wire import commands
from eos.wire.batch import Message
from tests.support.admin import call, create_partitioned
from tests.support.expiry import await_expiry
from tests.support.judge import drain


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: [m.value for m in drain(url, f"persistent://public/default/{name}")]


def test_what_is_sent_in_a_transaction_is_readable_once_it_is_committed(client, name, values):
    producer = client.producer(name, create=True)
    txn = client.transaction(timeout_s=60)
    producer.send(b"a", txn=txn, key="k", properties={"p": "q"}, event_time_ms=5)
    producer.send_many([Message(b"b"), Message(b"c")], txn=txn)
    producer.flush()
    txn.commit()
    assert values() == [b"a", b"b", b"c"]


def test_an_exception_in_the_block_aborts(client, name, values):
    producer = client.producer(name, create=True)

    def fail() -> None:
        with client.transaction(timeout_s=60) as txn:
            producer.send(b"never", txn=txn)
            raise KeyError("the user's")

    with pytest.raises(KeyError, match="the user's"):
        fail()
    producer.send(b"plain").result(timeout=10)
    assert values() == [b"plain"]


def test_a_transaction_that_outlived_its_time_is_reported_as_expired(client, name, values):
    producer = client.producer(name, create=True)
    txn = client.transaction(timeout_s=4)
    producer.send(b"late", txn=txn).result(timeout=10)
    await_expiry(client, txn.id)
    with pytest.raises(TransactionExpired):
        txn.commit()
    assert values() == []


def test_after_the_end_nothing_more_can_be_sent_in_it(client, name, values):
    """The late-send hazard can't be had from one process."""
    producer = client.producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"a", txn=txn)
    with pytest.raises(TransactionPoisoned, match="ended"):
        producer.send(b"late", txn=txn)
    with pytest.raises(TransactionPoisoned, match="ended"):
        txn.commit()
    assert values() == [b"a"]


def test_a_late_comer_from_another_process_can_not_register(client, pulsar_standalone, name):
    producer = client.producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"a", txn=txn)
    with PulsarClient(pulsar_standalone.service_url) as other:
        late = other.join(txn.id)
        with pytest.raises(TransactionExpired):
            other.producer(name).send(b"late", txn=late)


def test_the_late_send_hazard_is_real_when_the_rules_are_broken(client, name, values):
    """A raw SEND into a committed transaction hides committed rows (measured): why I3 is there."""
    producer = client.producer(name, create=True)
    with client.transaction(timeout_s=60) as txn:
        producer.send(b"committed", txn=txn)
    assert values() == [b"committed"]
    zombie = client.join(txn.id)
    zombie._registered.add(producer.topic)  # the broken rule: it does not ask the coordinator
    producer.send(b"late", txn=zombie).result(timeout=10)
    with client.transaction(timeout_s=60) as later:
        producer.send(b"later", txn=later)
    assert b"committed" not in values()


def test_several_topics_and_partitions_become_readable_together(client, pulsar_standalone, name):
    create_partitioned(pulsar_standalone.admin_url, name, 3)
    topics = [f"persistent://public/default/{name}-partition-{n}" for n in range(3)]
    with client.transaction(timeout_s=60) as txn:
        for topic in topics:
            client.producer(topic).send(topic.encode(), txn=txn)
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert [m.value.decode() for m in seen] == topics


def test_a_partitioned_topics_base_name_is_refused(client, pulsar_standalone, name):
    create_partitioned(pulsar_standalone.admin_url, name, 2)
    with pytest.raises(ConfigurationError, match=r"2 partitions.*-partition-0"):
        client.producer(name)


def test_an_unknown_topic_is_refused_and_not_created(client, name):
    for _ in range(2):
        with pytest.raises(TopicNotFound):
            client.producer(name)


def test_a_message_over_the_limit_is_refused_before_anything_is_sent(client, name):
    with pytest.raises(MessageTooLarge, match="limit"):
        client.producer(name, create=True).send(b"x" * (5 * 1024 * 1024))


def test_dead_hosts_in_the_service_url_are_passed_over(pulsar_standalone):
    url = pulsar_standalone.service_url.replace("pulsar://", "pulsar://127.0.0.1:1,")
    with PulsarClient(url, timeout_s=5) as client:
        assert client.coordinators.count() >= 1
    with PulsarClient("pulsar://127.0.0.1:1", timeout_s=5) as client, pytest.raises(ConnectionLost):
        client.coordinators.count()


def test_through_a_proxy_every_connection_names_the_broker_behind_it(pulsar_standalone, name):
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        PulsarClient(proxy.service_url, timeout_s=10) as client,
    ):
        targets = []

        def note(connect: commands.Connect) -> Verdict:
            targets.append(connect.proxy_to_broker_url)
            return Verdict.PASS

        with (
            proxy.fault(commands.Connect, note, times=100),
            client.transaction(timeout_s=60) as txn,
        ):
            client.producer(name, create=True).send(b"x", txn=txn)
        broker = pulsar_standalone.service_url.split("://")[1]
        assert targets == [None, broker]


@pytest.mark.parametrize("code", [6, 20], ids=["not ready", "moved"])
def test_a_coordinator_that_moved_is_looked_up_again(pulsar_standalone, name, values, code):
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        PulsarClient(proxy.service_url, timeout_s=10) as client,
    ):
        producer = client.producer(name, create=True)
        txn = client.transaction(timeout_s=60)
        producer.send(b"x", txn=txn).result(timeout=10)

        def moved(command: commands.EndTxn) -> commands.EndTxnResponse:
            return commands.EndTxnResponse(request_id=command.request_id, error=code)

        looked_up = []

        def note(_: commands.Lookup) -> Verdict:
            looked_up.append(1)
            return Verdict.PASS

        with (
            proxy.fault(commands.EndTxn, moved),
            proxy.fault(commands.Lookup, note, times=100),
        ):
            txn.commit()
        assert looked_up
    assert values() == [b"x"]


def test_a_cut_between_begin_and_commit_is_survived_when_all_is_acknowledged(
    pulsar_standalone, name, values
):
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        PulsarClient(proxy.service_url, timeout_s=10) as client,
    ):
        txn = client.transaction(timeout_s=60)
        producer = client.producer(name, create=True)
        producer.send(b"x", txn=txn)
        producer.close()
        proxy.cut_all()
        txn.commit()
    assert values() == [b"x"]


def test_a_commit_whose_reply_was_lost_is_never_claimed_to_have_failed(
    pulsar_standalone, name, values
):
    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        PulsarClient(proxy.service_url, timeout_s=2) as client,
    ):
        producer = client.producer(name, create=True)
        txn = client.transaction(timeout_s=60)
        producer.send(b"x", txn=txn).result(timeout=10)
        producer.close()
        with proxy.fault(commands.EndTxnResponse, Verdict.CUT), pytest.raises(Indeterminate):
            txn.commit()
    assert values() == [b"x"]


def test_send_waits_while_too_many_bytes_are_in_flight(pulsar_standalone, name):
    release = threading.Event()

    def hold(_: commands.SendReceipt) -> Verdict:
        release.wait(20)
        return Verdict.PASS

    with (
        FaultProxy(pulsar_standalone.service_url) as proxy,
        PulsarClient(proxy.service_url, timeout_s=15, max_pending_bytes=3000) as client,
    ):
        producer = client.producer(name, create=True)
        sent = []

        def send() -> None:
            for _ in range(5):
                sent.append(producer.send(b"x" * 1000))

        with proxy.fault(commands.SendReceipt, hold, times=10**6):
            thread = threading.Thread(target=send)
            thread.start()
            thread.join(1.0)
            assert thread.is_alive()
            assert len(sent) == 2  # a third one, with its envelope, would exceed the window
            release.set()
            thread.join(15)
        assert [bool(receipt.result(timeout=10)) for receipt in sent] == [True] * 5


def test_a_broker_without_transactions_says_how_to_switch_them_on():
    with (
        PulsarStandalone(transactions=False) as broker,
        PulsarClient(broker.service_url, timeout_s=10) as client,
        pytest.raises(TransactionsDisabled, match="transactionCoordinatorEnabled=true"),
    ):
        client.transaction()


def test_transactions_are_spread_over_several_coordinators(name):
    with PulsarStandalone() as broker, PulsarClient(broker.service_url, timeout_s=10) as client:
        call(broker.admin_url, "POST", "/v3/transactions/transactionCoordinator/replicas", 3)
        assert client.coordinators.count() == 3
        producer = client.producer(name, create=True)
        used = set()
        for number in range(6):
            with client.transaction(timeout_s=60) as txn:
                producer.send(b"%d" % number, txn=txn)
            used.add(txn.id.most)
        assert used == {0, 1, 2}
        seen = drain(broker.service_url, f"persistent://public/default/{name}")
        assert [m.value for m in seen] == [b"%d" % number for number in range(6)]
