"""Peers that are not the brokers themselves: a proxy's answers, and a balancer that hangs up."""

from __future__ import annotations

import pytest

from eos.client import PulsarClient
from eos.client._lookup import BALANCER_TRIES
from eos.errors import ConnectionLost, TopicNotFound, Unreachable
from eos.wire import commands
from tests.transport.scripted import Peer, ScriptedBroker

TOPIC = "persistent://public/default/t"
OWNER = "pulsar://owner.example:6650"
OF_A_PROXY = commands.Connected(
    server_version="proxy", feature_flags=commands.FeatureFlags(supports_topic_watchers=False)
)


def proxy(peer: Peer) -> None:
    """Look up for the client; give the partitions only on connections to the topic's broker."""
    connect = peer.next(commands.Connect)
    peer.send(OF_A_PROXY)
    while True:
        asked = peer.next()
        if isinstance(asked, commands.Lookup):
            answer = commands.LookupResponse(
                request_id=asked.request_id, response=1, broker_url=OWNER,
                proxy_through_service_url=True,
            )  # fmt: skip
        elif connect.proxy_to_broker_url:
            answer = commands.PartitionedMetadataResponse(request_id=asked.request_id, partitions=3)
        else:
            answer = commands.LookupResponse(request_id=asked.request_id, response=2, error=11)
        peer.send(answer)


def test_the_partitions_are_asked_of_the_topics_broker_through_a_proxy():
    """Not of the proxy, which may forget that the topic must not be created."""
    with ScriptedBroker(proxy) as front, PulsarClient(front.url, timeout_s=5) as client:
        assert client.partition_count(TOPIC) == 3
        assert front.connections == 2


def test_a_lookups_error_as_the_answer_about_partitions_is_that_error():
    with (
        ScriptedBroker(proxy) as front,
        PulsarClient(front.url, timeout_s=5) as client,
        pytest.raises(TopicNotFound, match="code 11"),
    ):
        client.entry_producer(TOPIC, create=True)


@pytest.mark.parametrize(("hang_ups", "ends_well"), [(BALANCER_TRIES - 1, True), (99, False)])
def test_an_address_alone_that_hangs_up_is_tried_again(hang_ups, ends_well):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        if front.connections > hang_ups:
            peer.send(commands.Connected(server_version="broker"))
            peer.next(commands.Ping)

    with ScriptedBroker(script) as front, PulsarClient(front.url, timeout_s=5) as client:
        if ends_well:
            client.lookup.any_broker()
        else:
            with pytest.raises(ConnectionLost):
                client.lookup.any_broker()
        assert front.connections == BALANCER_TRIES


def test_an_unreachable_address_is_not_tried_again_and_the_options_for_it_are_named():
    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            asked = peer.next(commands.Lookup)
            peer.send(
                commands.LookupResponse(
                    request_id=asked.request_id, response=1, broker_url="pulsar://127.0.0.1:1"
                )
            )

    with ScriptedBroker(script) as broker, PulsarClient(broker.url, timeout_s=5) as client:
        for connect in (client.lookup.broker_of, client.lookup.dedicated_connection):
            with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: .* set listener_name .* proxy"):
                connect(TOPIC)
