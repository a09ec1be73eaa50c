"""Two brokers that are reached through a balancer: the service URL is its address alone.

Lookups name the brokers' own addresses, to which clients connect then.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eos.client import PulsarClient
from eos.errors import ConnectionLost
from eos.testing import PulsarCluster
from tests.support.balancer import Balancer, balancer
from tests.support.judge import drain
from tests.support.one_client import use_all

pytestmark = [pytest.mark.broker, pytest.mark.slow]
DEAD = "pulsar://127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[PulsarCluster]:
    with PulsarCluster(2, 1) as running:
        yield running


@pytest.fixture
def topic(cluster, name) -> str:
    """A topic with four partitions, some on each broker."""
    cluster.admin("PUT", f"/v2/persistent/public/default/{name}/partitions", 4)
    return f"persistent://public/default/{name}"


def use_partitions(front: Balancer, topic: str) -> set[str]:
    """Use all partitions by a new client; return the addresses to which it connected."""
    with PulsarClient(front.service_url, timeout_s=15) as client:
        return {use_all(client, f"{topic}-partition-{number}") for number in range(4)}


def test_lookups_by_any_broker_lead_to_the_brokers_own_addresses(cluster, topic):
    brokers = [one.service_url for one in cluster.brokers]
    with balancer(brokers) as front:
        assert use_partitions(front, topic) == set(brokers)
        with PulsarClient(front.service_url, timeout_s=15) as client:
            assert client.partition_count(topic) == 4
        assert {str(one) for one in front.used} == set(brokers), "one broker for each client"
        assert sorted(one.value for one in drain(front.service_url, topic)) == [b"x"] * 4


@pytest.mark.parametrize("dead", [1, 2])
def test_a_dead_broker_that_the_balancer_still_has_is_passed_over(cluster, topic, dead):
    brokers = [one.service_url for one in cluster.brokers]
    with balancer([DEAD] * dead + brokers) as front:
        assert use_partitions(front, topic) == set(brokers)
        assert [str(one) for one in front.used] == [DEAD] * dead + brokers[:1]


def test_a_balancer_with_dead_brokers_only_is_a_lost_connection():
    with (
        balancer([DEAD]) as front,
        PulsarClient(front.service_url, timeout_s=15) as client,
        pytest.raises(ConnectionLost, match="Check"),
    ):
        client.coordinators.count()
    assert 1 < len(front.used) < 10
