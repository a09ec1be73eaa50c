"""A dying broker, a damaged receipt topic, and another cluster at the old address."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace

import pulsar
import pytest

from eos import failpoints
from eos.chaos.cluster.proxy import FaultProxy, FrameAction
from eos.client import PulsarClient
from eos.errors import InDoubt, NewCluster, TopicNotFound
from eos.ids import TxnId
from eos.pulsar.end_rules import DataAnswer
from eos.pulsar.part import pulsar_part
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.wire import commands
from tests.protocol.epochs import changed
from tests.support import admin
from tests.support.judge import drain, quiet_client
from tests.support.plain_driver import PlainDriver, leave_behind, rows_of


@pytest.fixture(scope="module")
def broker() -> Iterator[PulsarStandalone]:
    """This module's own broker: it gets killed."""
    with PulsarStandalone() as running:
        yield running


@pytest.fixture
def sink(broker: PulsarStandalone, tmp_path, name: str):
    """Makes drivers of one sink; ``.topic`` exists."""
    topic = f"persistent://public/default/{name}"
    with PulsarClient(broker.service_url) as client:
        client.entry_producer(topic, create=True).close()
    drivers: list[PlainDriver] = []

    def make(**options) -> PlainDriver:
        options.setdefault("service_url", broker.service_url)
        drivers.append(
            PlainDriver(commit_log=tmp_path / "log", sink_id=name, topic=topic, **options)
        )
        return drivers[-1]

    make.topic = topic
    yield make
    for driver in drivers:
        driver.close()


def values(broker: PulsarStandalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(broker.service_url, topic)]


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE, Step.RECEIPT, Step.PREPARE, Step.END])
def test_a_broker_killed_after_a_step_comes_back_and_nothing_is_lost_or_doubled(broker, sink, step):
    driver = sink(deadline_s=60.0, timeout_s=10.0)
    driver.committer.claim()
    killed = []

    def kill_once() -> None:
        if not killed:
            killed.append(broker.kill())
            broker.restart()

    with failpoints.armed(step, kill_once):
        driver.run("0")
    assert killed
    driver.run("1")
    assert values(broker, sink.topic) == rows_of("0") + rows_of("1")
    assert driver.states("0")[-1] == driver.states("1")[-1] == "COMMITTED"


def test_after_a_broker_died_over_end_txn_it_is_sent_again(broker, sink):
    with FaultProxy(broker.service_url) as proxy:
        driver = sink(service_url=proxy.service_url, deadline_s=60.0, timeout_s=10.0)
        driver.committer.claim()

        def kill(_: commands.EndTxnResponse):
            broker.kill()
            broker.restart()
            return commands.EndTxnResponse(request_id=0)

        with proxy.fault(commands.EndTxnResponse, kill) as fault:
            driver.run("0")
        assert fault.count == 1
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(broker, sink.topic) == rows_of("0")


def trim(broker: PulsarStandalone, topic: str) -> None:
    """Cut the topic's history off: everything acknowledged, a new ledger, the old one trimmed."""
    path = f"/v2/persistent/{topic.split('://')[1]}"
    client = quiet_client(broker.service_url)
    try:
        producer = client.create_producer(topic)
        admin.call(broker.admin_url, "POST", f"{path}/subscription/eos-receipts/skip_all")
        admin.call(broker.admin_url, "PUT", f"{path}/unload")
        producer.send(b"in a new ledger")
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            admin.call(broker.admin_url, "POST", f"{path}/trim")
            reader = client.create_reader(topic, pulsar.MessageId.earliest)
            first = reader.read_next(timeout_millis=30_000).data()
            reader.close()
            if first == b"in a new ledger":
                return
    finally:
        client.close()
    raise AssertionError("the receipt topic was not trimmed")


def delete_and_recreate(broker: PulsarStandalone, topic: str) -> None:
    admin.delete_topic(broker.admin_url, topic.split("://")[1])
    client = quiet_client(broker.service_url)
    client.create_producer(topic).close()
    client.close()


def delete(broker: PulsarStandalone, topic: str) -> None:
    admin.delete_topic(broker.admin_url, topic.split("://")[1])


@contextlib.contextmanager
def watched(broker: PulsarStandalone):
    """A proxy to the broker, and the transactions that are ended through it."""
    ended = []
    with FaultProxy(broker.service_url) as proxy:

        def note(command: commands.EndTxn) -> FrameAction:
            ended.append(TxnId(command.txnid_most, command.txnid_least))
            return FrameAction.PASS

        with proxy.fault(commands.EndTxn, note, times=1000):
            yield proxy.service_url, ended


@pytest.mark.parametrize("damage", [trim, delete, delete_and_recreate])
def test_without_its_mark_a_prepared_attempt_stays_in_doubt_without_end_txn(broker, sink, damage):
    first = sink()
    leave_behind(first, Step.PREPARE)
    first.close()
    damage(broker, pulsar_part(first.records()[-1]).receipt_topic)
    before = first.states("0")
    with watched(broker) as (url, ended):
        second = sink(service_url=url, deadline_s=10.0, on_new_cluster="continue")
        for _ in range(2):
            with pytest.raises(InDoubt, match="mark is not in"):
                second.run("0")
    assert ended == []
    assert second.states("0") == before


@pytest.mark.parametrize("damage", [trim, delete, delete_and_recreate])
def test_without_its_mark_an_unprepared_attempt_is_aborted_and_runs_again(broker, sink, damage):
    first = sink(ttl_ms=8_000)
    leave_behind(first, Step.OPEN)
    first.close()
    txn = pulsar_part(first.records()[-1]).txn
    damage(broker, pulsar_part(first.records()[-1]).receipt_topic)
    with watched(broker) as (url, ended):
        second = sink(service_url=url, on_new_cluster="continue")
        assert second.run("0").status == "written"
    assert txn not in ended
    assert second.states("0")[:3] == ["OPEN", "ABORTING", "ABORTED"]
    assert values(broker, sink.topic) == rows_of("0")


@pytest.mark.parametrize("damage", [trim, delete, delete_and_recreate])
def test_without_its_receipt_a_commit_is_proved_by_its_data(broker, sink, damage):
    first = sink()
    leave_behind(first, Step.END)
    first.close()
    assert first.states("0") == ["OPEN", "PREPARED"]
    damage(broker, pulsar_part(first.records()[-1]).receipt_topic)
    with watched(broker) as (url, ended):
        second = sink(service_url=url, on_new_cluster="continue")
        assert second.run("0").status == "skipped"
    assert ended == []
    assert second.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(broker, sink.topic) == rows_of("0")


@pytest.mark.parametrize("what", ["checksum", "records", "txn"])
def test_data_with_other_figures_or_of_another_transaction_proves_nothing(broker, sink, what):
    driver = sink()
    driver.run("0")
    record = driver.records()[-1]
    assert (
        driver.participant._witness.ask_data(pulsar_part(record), timeout_s=20)
        is DataAnswer.READABLE
    )
    (part,) = pulsar_part(record).partitions
    other = {
        "checksum": changed(record, partitions=(replace(part, checksum=part.checksum ^ 1),)),
        "records": changed(record, partitions=(replace(part, records=part.records + 1),)),
        "txn": changed(
            record, txn=TxnId(pulsar_part(record).txn.most, pulsar_part(record).txn.least + 1)
        ),
    }[what]
    assert (
        driver.participant._witness.ask_data(pulsar_part(other), timeout_s=20)
        is DataAnswer.UNPROVED
    )


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_cluster_without_the_logs_receipt_topic_is_refused_before_the_claim(
    broker, sink, is_created_again
):
    first = sink()
    first.run("0")
    first.close()
    before = first.records()
    receipts = pulsar_part(before[-1]).receipt_topic
    delete(broker, receipts)
    if is_created_again:  # by a tool that looked into it
        with PulsarClient(broker.service_url) as client:
            client.create_unpartitioned(receipts)
    with pytest.raises(
        NewCluster, match=r"1 epochs with 10 rows.*right cluster \(service_url\).*on_new_"
    ):
        sink().run("1")
    assert first.records() == before
    assert sink(on_new_cluster="continue").run("1").status == "written"
    assert sink().run("2").status == "written"
    assert values(broker, sink.topic) == [r for n in range(3) for r in rows_of(str(n))]


def test_a_deleted_receipt_topic_is_reported_and_the_next_driver_continues(broker, sink):
    driver = sink()
    driver.run("0")
    delete(broker, pulsar_part(driver.records()[-1]).receipt_topic)
    with pytest.raises(TopicNotFound, match="It existed before and was deleted"):
        driver.run("1")
    driver.close()
    with pytest.raises(NewCluster, match="it was deleted"):
        sink().run("1")
    assert sink(on_new_cluster="continue").run("1").status == "written"
    assert values(broker, sink.topic) == [*rows_of("0"), *rows_of("1")]


@pytest.mark.parametrize("step", [Step.OPEN, Step.PREPARE])
@pytest.mark.broker
def test_on_another_cluster_no_transaction_is_ended_by_its_id(tmp_path, name, step):
    topic = f"persistent://public/default/{name}"
    others: list[bytes] = []
    with PulsarStandalone() as old, PulsarClient(old.service_url) as client:
        client.entry_producer(topic, create=True).close()
        driver = PlainDriver(old.service_url, tmp_path / "log", name, topic)
        leave_behind(driver, step)
        txn = pulsar_part(driver.records()[-1]).txn
        driver.close()
    with PulsarStandalone() as fresh, PulsarClient(fresh.service_url) as client:
        # Another application's transaction gets exactly the id that the log holds.
        foreign = client.transaction(timeout_s=300)
        while foreign.id.least < txn.least:
            foreign = client.transaction(timeout_s=300)
        assert foreign.id == txn
        client.entry_producer(topic, create=True).send(b"foreign", txn=foreign)
        # An open epoch is claimed in this time; a prepared one stays in doubt for all of it.
        options = {"deadline_s": 15.0 if step is Step.OPEN else 5.0}
        second = PlainDriver(fresh.service_url, tmp_path / "log", name, topic, **options)
        with pytest.raises(NewCluster):
            second.run("0")
        second.close()
        options["on_new_cluster"] = "continue"
        third = PlainDriver(fresh.service_url, tmp_path / "log", name, topic, **options)
        expected = pytest.raises(InDoubt) if step is Step.PREPARE else contextlib.nullcontext()
        with expected:
            third.committer.claim()
        third.close()
        foreign.commit()
        others = [seen.value for seen in drain(fresh.service_url, topic)]
    assert others == [b"foreign"]
