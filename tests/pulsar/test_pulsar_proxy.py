"""Pulsar's own proxy in front of two brokers: the service URL is the only address that is used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from eos.client import PulsarClient
from eos.errors import BrokerNotReady, TopicNotFound
from eos.testing import PulsarCluster
from tests.support import admin
from tests.support.balancer import balancer
from tests.support.judge import drain
from tests.support.one_client import use_all
from tests.support.plain_driver import PlainDriver
from tests.support.pulsar_proxy import PulsarProxy, pulsar_proxy

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[PulsarCluster]:
    with PulsarCluster(2, 1) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(cluster, tmp_path_factory) -> Iterator[PulsarProxy]:
    with pulsar_proxy(cluster, tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def topics(cluster, name) -> list[str]:
    """The partitions of a topic, some on each broker."""
    topic = f"persistent://public/default/{name}"
    cluster.admin("PUT", f"/v2/persistent/public/default/{name}/partitions", 4)
    partitions = [f"{topic}-partition-{number}" for number in range(4)]
    assert len({cluster.owner(one).service_url for one in partitions}) == 2
    return partitions


def test_a_client_reaches_both_brokers_through_the_proxy_only(proxy, cluster, topics):
    with PulsarClient(proxy.service_url, timeout_s=15) as client:
        assert {use_all(client, one) for one in topics} == {proxy.service_url}
        connections = client.lookup._pool.connections
        assert {str(one.address) for one in connections} == {proxy.service_url}
        assert len(connections) == 1 + len(cluster.brokers), "for lookups, and for each broker"


def test_a_sinks_driver_commits_through_the_proxy(proxy, cluster, topics, name, tmp_path):
    topic = topics[0].removesuffix("-partition-0")
    with closing(PlainDriver(proxy.service_url, tmp_path / "log", name, topic)) as driver:
        assert driver.run("0").status == "written"
        assert driver.run("1").status == "written"
    through, directly = (
        sorted(one.value for one in drain(url, topic))
        for url in (proxy.service_url, cluster.service_url)
    )
    assert through == directly != []


def test_a_missing_topic_is_not_found_and_not_created(proxy, cluster, name):
    """Also by the first requests of the proxy to each broker, and where topics are partitioned."""
    namespace = f"public/{name}"
    cluster.admin("PUT", f"/v2/namespaces/{namespace}")
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    cluster.admin("POST", f"/v2/namespaces/{namespace}/autoTopicCreation", policy)
    with PulsarClient(proxy.service_url, timeout_s=15) as client:
        for number in range(4):
            missing = f"persistent://{namespace}/missing-{number}"
            with pytest.raises(TopicNotFound, match="create=True"):
                client.partition_count(missing)
            with pytest.raises(TopicNotFound):
                client.entry_producer(missing)
        with pytest.raises((TopicNotFound, BrokerNotReady)):
            client.partition_count(f"persistent://public/not-{name}/missing")
    assert cluster.admin("GET", f"/v2/persistent/{namespace}") == []
    assert cluster.admin("GET", f"/v2/persistent/{namespace}/partitioned") == []


def test_the_admin_api_is_reached_through_the_proxy(proxy, topics):
    base = topics[0].removesuffix("-partition-0").replace("://", "/")
    assert admin.call(proxy.admin_url, "GET", f"/v2/{base}/partitions")["partitions"] == 4


def test_a_dead_proxy_of_several_is_passed_over_by_way_of_a_balancer(proxy, topics):
    with (
        balancer(["pulsar://127.0.0.1:1", proxy.service_url]) as front,
        PulsarClient(front.service_url, timeout_s=15) as client,
    ):
        assert {use_all(client, one) for one in topics} == {front.service_url}
    assert len(front.used) > 3


def test_the_proxy_ignores_the_name_of_a_listener(proxy, topics):
    with PulsarClient(proxy.service_url, listener_name="nowhere", timeout_s=15) as client:
        assert use_all(client, topics[0]) == proxy.service_url
