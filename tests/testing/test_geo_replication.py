"""Two clusters that replicate to each other: what arrives, and what a sink may believe there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from eos.admin import AdminClient
from eos.client import Entry, PulsarClient
from eos.errors import InDoubt, NewCluster, TopicNotFound
from eos.ids import MessageId
from eos.protocol import Known
from eos.pulsar.end_rules import MarkAnswer
from eos.pulsar.part import pulsar_part
from eos.pulsar.roll_call import CALL, KIND, MARK, properties_of
from eos.recovery.checks.namespace import check_policies
from eos.recovery.checks.result import CheckStatus
from eos.recovery.cli import main
from eos.steps import Step
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.protocol.epochs import changed
from tests.support import admin
from tests.support.command_line import command_line
from tests.support.judge import drain, quiet_client
from tests.support.plain_driver import PlainDriver, leave_behind, rows_of

pytestmark = pytest.mark.broker

TENANT = "geo"
SOURCE_POSITION = "__MSG_PROP_REPL_SOURCE_POSITION"
DEADLINE_S = 30.0


@dataclass(frozen=True)
class Pair:
    """Two brokers of different clusters. All tests write in the east."""

    east: PulsarStandalone
    west: PulsarStandalone

    def namespace(self, *, replicated: bool = True) -> str:
        """Create a namespace in both; return ``tenant/namespace``."""
        name = f"{TENANT}/n-{uuid.uuid4().hex[:8]}"
        for own, broker in (("east", self.east), ("west", self.west)):
            admin.call(broker.admin_url, "PUT", f"/v2/namespaces/{name}", {})
            clusters = ["east", "west"] if replicated else [own]
            admin.call(broker.admin_url, "POST", f"/v2/namespaces/{name}/replication", clusters)
        return name

    def cut(self, namespace: str) -> None:
        """Nothing more is replicated to the west."""
        path = f"/v2/namespaces/{namespace}/replication"
        admin.call(self.east.admin_url, "POST", path, ["east"])

    def slow_down(self, namespace: str) -> None:
        """Each topic replicates two entries a second."""
        rate = {"dispatchThrottlingRateInMsg": 2, "ratePeriodInSecond": 1}
        path = f"/v2/namespaces/{namespace}/replicatorDispatchRate"
        admin.call(self.east.admin_url, "POST", path, rate)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    # A snapshot of replicated subscriptions every 0.1 s: each writes markers into the topic.
    often = {"replicatedSubscriptionsSnapshotFrequencyMillis": "100"}
    brokers = [PulsarStandalone(config={"clusterName": n, **often}) for n in ("east", "west")]
    with ThreadPoolExecutor() as pool:
        try:
            list(pool.map(PulsarStandalone.start, brokers))
            both = Pair(*brokers)
            for broker, name, other in (
                (both.east, "west", both.west),
                (both.west, "east", both.east),
            ):
                address = {"serviceUrl": other.admin_url, "brokerServiceUrl": other.service_url}
                admin.call(broker.admin_url, "PUT", f"/v2/clusters/{name}", address)
            for broker in brokers:
                allowed = {"allowedClusters": ["east", "west"]}
                admin.call(broker.admin_url, "PUT", f"/v2/tenants/{TENANT}", allowed)
            yield both
        finally:
            for broker in brokers:
                broker.stop()


@pytest.fixture
def east(pair: Pair) -> Iterator[PulsarClient]:
    with PulsarClient(pair.east.service_url, timeout_s=20) as client:
        yield client


@pytest.fixture
def west(pair: Pair) -> Iterator[PulsarClient]:
    with PulsarClient(pair.west.service_url, timeout_s=20) as client:
        yield client


@pytest.fixture
def topic(pair: Pair, name: str) -> str:
    """A topic in a replicated namespace; it does not exist yet."""
    return f"persistent://{pair.namespace()}/{name}"


def await_that(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.05)


def entries(client: PulsarClient, topic: str) -> list[Entry]:
    """All entries that are readable now, as they are stored."""
    try:
        with closing(client.topic_bounds(topic)) as bounds:
            last = bounds.last_id()
        if last is None:
            return []
        with client.entry_reader(topic) as reader:
            found = []
            for entry in reader.read_to(last, time.monotonic() + DEADLINE_S):
                found.append(entry)
                if entry.id.place >= last.place:
                    return found
    except TopicNotFound:
        return []
    raise AssertionError(f"{topic} is not readable up to {last}")


def await_entries(client: PulsarClient, topic: str, count: int) -> list[Entry]:
    await_that(lambda: len(entries(client, topic)) >= count, f"{count} entries of {topic}")
    return entries(client, topic)


def values(broker: PulsarStandalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(broker.service_url, topic)]


# --- transactions ---------------------------------------------------------------------------------


def test_only_committed_messages_are_replicated_and_nothing_stays_open(pair, topic, east, west):
    """Not before the commit, also not what comes after an open transaction; and no markers."""
    producer = east.entry_producer(topic, create=True)
    producer.send(b"first").result()
    await_entries(west, topic, 1)
    txn = east.transaction(timeout_s=120)
    (inside,) = east.entry_producers([topic], txn=txn)
    inside.send(b"committed", txn=txn, properties={"a": "1"}).result()
    aborted = east.transaction(timeout_s=120)
    (other,) = east.entry_producers([topic], txn=aborted)
    other.send(b"aborted", txn=aborted).result()
    aborted.abort()
    producer.send(b"after").result()
    time.sleep(1.5)  # far longer than an entry takes
    assert values(pair.west, topic) == [b"first"]
    txn.commit()
    await_that(
        lambda: values(pair.west, topic)[-2:] == [b"committed", b"after"], "the committed ones"
    )
    seen = drain(pair.west.service_url, topic)
    assert [one.value for one in seen] == [b"first", b"committed", b"after"]
    assert seen[1].properties == {"a": "1"}
    assert seen[1].producer == inside.name
    copies = [one for one in entries(west, topic) if one.metadata.replicated_from]
    assert [one.messages()[0].value for one in copies] == [b"first", b"committed", b"after"]
    assert {one.metadata.replicated_from for one in copies} == {"east"}
    assert {one.txn for one in copies} == {None}
    stats = admin.call(
        pair.west.admin_url,
        "GET",
        f"/v3/transactions/transactionBufferStats/{topic.split('://')[1]}",
    )
    assert (stats["ongoingTxnSize"], stats["totalAbortedTransactions"]) == (0, 0)
    with closing(west.topic_bounds(topic)) as bounds:
        assert bounds.first_undecided() is None
        assert bounds.last_id() == entries(west, topic)[-1].id


def test_the_property_of_the_broker_is_seen_on_messages_that_are_entries_of_their_own(
    pair, topic, west
):
    client = quiet_client(pair.east.service_url)
    producer = client.create_producer(topic, batching_enabled=False)
    first = producer.send(b"alone", properties={"a": "1"})
    client.close()
    (entry,) = await_entries(west, topic, 1)
    (seen,) = drain(pair.west.service_url, topic)
    position = f"{first.ledger_id()}:{first.entry_id()}"
    assert seen.properties == {"a": "1", SOURCE_POSITION: position}
    assert entry.metadata.replicated_from == "east"
    with west.reader(topic, columns=("value", "properties", "producer_name")) as reader:
        (row, *_) = [one for rows in reader.read_to(entry.id) for one in rows.to_pylist()]
    assert (row["value"], dict(row["properties"])) == (b"alone", seen.properties)
    assert row["producer_name"] == seen.producer


def test_markers_of_replicated_subscriptions_are_passed_over(pair, topic, east, west):
    producer = east.entry_producer(topic, create=True)
    sent = [b"0"]
    producer.send(b"0").result()
    await_entries(west, topic, 1)
    with east.consumer(topic, "shared", replicate_subscription_state=True) as consumer:
        for number in range(4):
            with east.transaction(timeout_s=60) as txn:
                (inside,) = east.entry_producers([topic], txn=txn)
                inside.send(b"txn %d" % number, txn=txn).result()
            producer.send(b"%d" % number).result()
            sent += [b"txn %d" % number, b"%d" % number]
            message = consumer.receive(timeout_s=20)
            assert message is not None
            consumer.acknowledge(message)
            time.sleep(0.3)  # for a snapshot
    for broker, client in ((pair.east, east), (pair.west, west)):
        await_entries(client, topic, len(sent))
        path = f"/v2/persistent/{topic.split('://')[1]}/internalStats"
        stored = admin.call(broker.admin_url, "GET", path)["numberOfEntries"]
        with client.reader(topic, columns=("value",)) as reader:
            last = reader.last_id
            read = [
                one for rows in reader.read_to(last) for one in rows.column("value").to_pylist()
            ]
        assert read == sent
        assert stored > len(sent) + 4  # markers of transactions and of snapshots
    for broker in (pair.east, pair.west):  # the judge's own message is replicated, too
        assert values(broker, topic) == sent


# --- epochs ---------------------------------------------------------------------------------------


@dataclass
class Sink:
    """The drivers of one sink, and its topic of two partitions."""

    topic: str
    receipts: str
    make: Callable[..., PlainDriver]


@pytest.fixture
def make_sink(pair: Pair, tmp_path, name: str) -> Iterator[Callable[..., Sink]]:
    made: list[PlainDriver] = []

    def make_sink(*, receipts_too: bool, partitions: int = 2) -> Sink:
        namespace = pair.namespace()
        path = f"/v2/persistent/{namespace}/{name}/partitions"
        admin.call(pair.east.admin_url, "PUT", path, partitions)
        receipts = namespace if receipts_too else pair.namespace(replicated=False)
        topic = f"persistent://{namespace}/{name}"

        def make(broker: PulsarStandalone, **options: Any) -> PlainDriver:
            options = {"deadline_s": 3.0, "timeout_s": 10.0, **options}
            made.append(
                PlainDriver(
                    broker.service_url,
                    tmp_path / "log",
                    name,
                    topic,
                    receipt_namespace=receipts,
                    **options,
                )
            )
            return made[-1]

        return Sink(topic, receipts, make)

    yield make_sink
    for driver in made:
        driver.close()


def await_rows(west: PulsarClient, topic: str, count: int, *, partitions: int = 2) -> None:
    """Wait for the rows of one topic in the west. Creates nothing there, as the judge would."""

    def has_rows() -> bool:
        names = [f"{topic}-partition-{number}" for number in range(partitions)]
        if not all(west.exists(name) for name in names):
            return False
        return sum(one.num_messages for name in names for one in entries(west, name)) >= count

    await_that(has_rows, f"{count} rows in the west")


def test_a_part_of_an_epoch_can_be_readable_in_the_other_cluster(pair, topic, east, west):
    """Each entry is replicated on its own: all or nothing holds in the writer's cluster alone."""
    east.entry_producer(topic, create=True).send(b"first").result()
    await_entries(west, topic, 1)
    pair.slow_down(topic.split("://")[1].rpartition("/")[0])
    with east.transaction(timeout_s=60) as txn:
        (producer,) = east.entry_producers([topic], txn=txn)
        for number in range(12):
            producer.send(b"%d" % number, txn=txn)
    assert len(values(pair.east, topic)) == 13
    found = {len(entries(west, topic))}
    await_that(
        lambda: found.add(len(entries(west, topic))) or max(found) >= 9, "most of the entries"
    )
    assert found & set(range(2, 13))


@pytest.mark.parametrize("receipts_too", [True, False])
def test_a_sink_refuses_the_other_cluster_even_if_the_receipt_topic_is_replicated(
    pair, make_sink, west, receipts_too
):
    """Epoch 1 is committed, and its rows are not in the west: it must not be skipped there."""
    sink = make_sink(receipts_too=receipts_too)
    driver = sink.make(pair.east)
    driver.run("0")
    await_rows(west, sink.topic, 10)
    if receipts_too:
        receipt_topic = pulsar_part(driver.records()[-1]).receipt_topic
        await_that(lambda: west.exists(receipt_topic), "the receipt topic in the west")
    policies = AdminClient(pair.east.admin_url, Auth(), timeout_s=10).policies(sink.receipts)
    verdicts = {one.verdict for one in check_policies(sink.receipts, policies, {})}
    assert (CheckStatus.WARNING in verdicts) == receipts_too
    pair.cut(sink.topic.split("://")[1].rpartition("/")[0])
    driver.run("1")
    driver.close()
    before = driver.records()
    for epoch in ("1", "2"):
        with pytest.raises(NewCluster, match=r"2 epochs with 20 rows.*on_new_cluster"):
            sink.make(pair.west).run(epoch)
    assert driver.records() == before
    assert sorted(values(pair.west, sink.topic)) == rows_of("0")
    # On purpose: the epochs of the log stay skipped, new ones are written.
    moved = sink.make(pair.west, on_new_cluster="continue")
    assert (moved.run("1").status, moved.run("2").status) == ("skipped", "written")
    assert sink.make(pair.west).run("3").status == "written"
    assert sorted(values(pair.west, sink.topic)) == [
        row for epoch in ("0", "2", "3") for row in rows_of(epoch)
    ]


def test_a_sink_refuses_to_return_to_a_cluster_that_may_lack_epochs(pair, make_sink, west):
    """It has the receipt topic of earlier epochs there, and would skip what the west has."""
    sink = make_sink(receipts_too=False)
    first = sink.make(pair.east)
    first.run("0")
    await_rows(west, sink.topic, 10)
    first.close()
    away = sink.make(pair.west, on_new_cluster="continue")
    away.run("1")
    away.close()
    before = away.records()
    for epoch in ("1", "2"):
        with pytest.raises(NewCluster, match=r"is east, and the newest epoch was begun in west"):
            sink.make(pair.east).run(epoch)
    assert away.records() == before
    back = sink.make(pair.east, on_new_cluster="continue")
    assert back.run("1").status == "skipped"
    leave_behind(back, Step.OPEN, "2")
    back.close()
    # Its mark is the newest one now.
    assert sink.make(pair.east).run("2").status == "written"


def test_an_epoch_that_was_prepared_in_the_east_stays_in_doubt_in_the_west(pair, make_sink, west):
    """Its rows and receipt are copied without their transaction: they prove nothing."""
    sink = make_sink(receipts_too=True)
    driver = sink.make(pair.east)
    driver.run("0")
    leave_behind(driver, Step.END, "1")
    driver.close()
    await_rows(west, sink.topic, 20)
    with pytest.raises(NewCluster):
        sink.make(pair.west).run("1")
    with pytest.raises(InDoubt, match=r"another cluster.*not all of its entries are readable"):
        sink.make(pair.west, on_new_cluster="continue").run("1")
    assert driver.states("1") == ["OPEN", "PREPARED"]
    assert sink.make(pair.east).run("1").status == "skipped"
    assert driver.states("1") == ["OPEN", "PREPARED", "COMMITTED"]


def test_a_mark_that_was_copied_to_the_same_position_is_not_found(pair, make_sink, west):
    """Two young clusters give the same numbers to their ledgers, so positions can agree.

    With such a mark the west would be asked to end the transaction of this number, which may be
    another application's, and its answer would be taken for a proof that the epoch has expired.
    """
    sink = make_sink(receipts_too=True)
    driver = sink.make(pair.east)
    driver.run("0")
    leave_behind(driver, Step.END, "1")
    record = driver.records()[-1]
    part = pulsar_part(record)
    driver.close()
    await_rows(west, sink.topic, 20)
    # All but the markers: of the transaction that prepares the topic, and of epochs 0 and 1.
    copies = await_entries(west, part.receipt_topic, 9)
    (mark,) = [
        one.id
        for one in copies
        if (properties_of(one).get(KIND), properties_of(one).get(CALL)) == (MARK, part.mark_uuid)
    ]
    same = pulsar_part(
        changed(
            record,
            mark_id=MessageId(*mark.place),
            receipt_id=MessageId(mark.ledger, mark.entry + 3),
        )
    )
    moved = sink.make(pair.west, on_new_cluster="continue")
    moved.participant.attach(same, moved.log.history)
    assert moved.participant._witness.find_mark(same, timeout_s=10) is MarkAnswer.ABSENT
    fate = moved.participant.commit(same, deadline_s=5.0, is_own=False)
    assert fate.known is Known.UNKNOWN


def test_verify_in_the_other_cluster_is_never_clean(
    pair, make_sink, west, tmp_path, monkeypatch, capsys
):
    recovery = command_line("eos recovery", main, monkeypatch, capsys)
    sink = make_sink(receipts_too=True, partitions=1)
    driver = sink.make(pair.east)
    driver.run("0")
    driver.close()
    await_rows(west, sink.topic, 10, partitions=1)
    where = ["--commit-log", str(tmp_path / "log"), "--silence-s", "1"]
    assert recovery("verify", *where, "--service-url", pair.east.service_url).code == 0
    ended = recovery("verify", *where, "--service-url", pair.west.service_url)
    assert ended.code == 2
    assert "not everything was checked" in ended.out
