"""A cluster of several servers: each can be killed and restarted, and all end with it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

from eos.admin import Transport
from eos.client import PulsarClient
from eos.errors import BrokerNotReady, ConfigurationError, ConnectionLost
from eos.testing import BrokerNode, PulsarCluster
from eos.transport.auth import Auth
from tests.testing.messages import read, write

pytestmark = pytest.mark.broker

COORDINATORS = "persistent://pulsar/system/transaction_coordinator_assign"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PulsarCluster]:
    with PulsarCluster() as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/cluster-{uuid.uuid4().hex[:8]}"


def test_ports_that_would_be_used_twice_are_refused():
    with pytest.raises(ConfigurationError, match="port=6650, admin_port=6651"):
        PulsarCluster(2, port=6650, admin_port=6651)


def test_each_server_has_its_own_process(cluster: PulsarCluster):
    names = ["metadata-store", "bookie-0", "bookie-1", "broker-0", "broker-1"]
    assert [node.name for node in cluster.nodes] == names
    assert len({node.pid for node in cluster.nodes}) == len(names)
    assert len(cluster.admin("GET", "/v2/brokers")) == 2
    assert cluster.service_url.count(",") == 1


def test_both_brokers_get_topics_and_coordinators(cluster: PulsarCluster):
    found = cluster.admin("GET", f"/v2/{COORDINATORS.replace('://', '/')}/partitions")
    topics = [f"{COORDINATORS}-partition-{n}" for n in range(found["partitions"])]
    topics += [f"persistent://public/default/spread-{n}" for n in range(20)]
    assert {cluster.owner(one).name for one in topics} == {"broker-0", "broker-1"}


def test_a_topic_moves_without_loss_when_its_broker_dies(cluster: PulsarCluster, topic: str):
    write(cluster.service_url, topic, [b"1", b"2"])
    broker = cluster.owner(topic)
    broker.kill()
    try:
        write(cluster.service_url, topic, [b"3"])
        assert cluster.owner(topic) is not broker
        assert not cluster.is_running()
        assert read(cluster.service_url, topic, 3) == [b"1", b"2", b"3"]
    finally:
        cluster.restart()
    assert cluster.is_running()
    assert read(cluster.service_url, topic, 3) == [b"1", b"2", b"3"]


def topic_apart_from(cluster: PulsarCluster, broker: BrokerNode) -> str:
    """Return a topic of another broker.

    After a broker died, the other one may own all existing namespaces: try new ones.
    """
    for _ in range(30):
        namespace = f"public/apart-{uuid.uuid4().hex[:8]}"
        cluster.admin("PUT", f"/v2/namespaces/{namespace}")
        topic = f"persistent://{namespace}/t"
        if cluster.owner(topic) is not broker:
            return topic
    pytest.fail("one broker owns all topics")


def test_a_transaction_outlives_its_coordinators_broker(cluster: PulsarCluster):
    with PulsarClient(cluster.service_url, timeout_s=60) as client:
        txn = client.transaction(timeout_s=120)
        coordinator = cluster.owner(f"{COORDINATORS}-partition-{txn.id.most}")
        # A producer that loses its connection poisons the transaction, as it should.
        topic = topic_apart_from(cluster, coordinator)
        client.create_unpartitioned(topic)
        (producer,) = client.entry_producers([topic])
        producer.send(b"1", txn=txn).result(timeout=60)
        coordinator.kill()
        try:
            txn.commit()
            assert read(cluster.service_url, topic, 1) == [b"1"]
        finally:
            cluster.restart()


def test_a_paused_broker_is_silent_until_it_is_resumed(cluster: PulsarCluster):
    broker = cluster.brokers[0]

    def answers(timeout_s: float) -> bool:
        transport = Transport(broker.admin_url, Auth(), timeout_s=timeout_s)
        return transport.ask("GET", "/admin/v2/brokers/version").status == 200

    broker.pause()
    try:
        assert broker.is_running()
        with pytest.raises(ConnectionLost):
            answers(timeout_s=1)
    finally:
        broker.resume()
    assert answers(timeout_s=20)


def test_writes_continue_after_one_of_two_bookies_was_restarted(cluster: PulsarCluster, topic: str):
    write(cluster.service_url, topic, [b"1"])
    cluster.bookies[0].kill()
    cluster.restart()
    write(cluster.service_url, topic, [b"2"])
    assert read(cluster.service_url, topic, 2) == [b"1", b"2"]


def test_a_bookie_that_fails_to_register_is_restarted(cluster: PulsarCluster, topic: str):
    """A bookie of 4.0.7 fails to register while the session of a killed process lasts."""
    bookie = cluster.bookies[0]
    before = bookie.pid
    with (bookie.data_dir / "bookie.log").open("a") as log:
        log.write("ERROR Bookie - Couldn't register bookie with zookeeper, shutting down\n")
    bookie.await_ready()
    assert bookie.pid not in (None, before)
    write(cluster.service_url, topic, [b"1"])
    assert read(cluster.service_url, topic, 1) == [b"1"]


def test_a_cluster_needs_a_broker_and_a_bookie():
    with pytest.raises(ConfigurationError, match="at least one"):
        PulsarCluster(brokers=0)
    with pytest.raises(BrokerNotReady, match="not started"):
        _ = PulsarCluster().metadata_store


def test_a_clusters_data_is_kept_and_its_processes_end(tmp_path, topic: str):
    before = set(psutil.Process().children(recursive=True))
    with PulsarCluster(1, 1, tmp_path) as first:
        write(first.service_url, topic, [b"kept"])
    with PulsarCluster(1, 1, tmp_path) as second:
        assert read(second.service_url, topic, 1) == [b"kept"]
    deadline = time.monotonic() + 60
    while set(psutil.Process().children(recursive=True)) - before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
