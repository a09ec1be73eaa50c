"""Redirects between the brokers of a real cluster with tokens: which ones a token follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from eos.admin import AdminClient, Transport
from eos.client import PulsarClient
from eos.errors import ProtocolError
from eos.ids import TopicName
from eos.testing import PulsarCluster
from eos.transport.auth import Auth
from tests.support.tokens import CONFIG, token

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

ADMIN: Final = token("admin")
JOB: Final = token("job")
NAMESPACE: Final = "public/many"
TOPICS: Final = [TopicName.parse(f"persistent://{NAMESPACE}/t{number}") for number in range(8)]
_LOGIN: Final = {
    "authorizationEnabled": "true",
    "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": f"token:{ADMIN}",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PulsarCluster]:
    """Two brokers, each with some of the topics."""
    with PulsarCluster(brokers=2, bookies=1, config={**CONFIG, **_LOGIN}) as running:
        transport = Transport(running.admin_url, Auth(token=ADMIN), timeout_s=30)
        path = f"/admin/v2/namespaces/{NAMESPACE}"
        transport.ask("PUT", path, {"bundles": {"numBundles": 8}})
        transport.ask("POST", f"{path}/permissions/job", ["produce", "consume"])
        with PulsarClient(running.service_url, auth=Auth(token=JOB)) as client:
            for topic in TOPICS:
                client.entry_producer(str(topic), create=True).close()
            owners = {client.lookup.broker_of(str(topic)).address for topic in TOPICS}
        assert len(owners) == 2
        yield running


def asked(admin_url: str, secret: str) -> list[int]:
    """The number of ledgers of each topic."""
    client = AdminClient(admin_url, Auth(token=secret), timeout_s=30)
    return [len(client.ledgers(topic)) for topic in TOPICS]


def test_a_superuser_follows_redirects_to_every_broker(cluster):
    for broker in cluster.brokers:
        assert all(asked(broker.admin_url, ADMIN))


def test_with_all_brokers_in_admin_url_every_redirect_is_followed(cluster):
    assert all(asked(cluster.admin_url, JOB))


def test_without_superuser_the_error_says_to_list_all_brokers(cluster):
    with pytest.raises(ProtocolError, match="not a known broker") as caught:
        asked(cluster.brokers[0].admin_url, JOB)
    assert "List all brokers in admin_url" in (caught.value.hint or "")
