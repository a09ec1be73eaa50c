"""Look-up: topics, redirects, proxies, several hosts; nothing is created, nothing leaks."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace

import pytest
import trustme

from eos.chaos.cluster.proxy import FrameAction, Replace
from eos.client import PulsarClient
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    Fatal,
    ProtocolError,
    RequestTimeout,
    TopicNotFound,
    Unauthorized,
)
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.wire import commands
from tests.support import admin
from tests.transport.scripted import (
    Peer,
    ScriptedBroker,
    nothing_left_behind,
    readers,
    wait_until,
)

TOPIC = "persistent://public/default/t"


def test_an_unknown_topic_is_refused_and_not_created(client, pulsar_standalone, name):
    admin.create_partitioned(pulsar_standalone.admin_url, f"{name}-two", 2)
    missing = f"persistent://public/missing/{name}"
    for unknown in (name, f"{name}-partition-0", f"{name}-two-partition-2", missing):
        for _ in range(2):
            with pytest.raises(TopicNotFound, match="or with create=True"):
                client.entry_producer(unknown)
            with pytest.raises(TopicNotFound):
                client.partition_count(unknown)
    topics = admin.call(pulsar_standalone.admin_url, "GET", "/v2/persistent/public/default")
    assert [topic for topic in topics if name in topic] == [
        f"persistent://public/default/{name}-two-partition-{n}" for n in range(2)
    ]


def test_a_namespace_that_is_missing_is_not_created_either(client, name):
    with pytest.raises(Fatal):
        client.entry_producer(f"persistent://public/{name}/t", create=True)


def test_a_partitioned_topics_base_name_is_refused(client, pulsar_standalone, name):
    admin.create_partitioned(pulsar_standalone.admin_url, name, 2)
    for create in (False, True):
        with pytest.raises(ConfigurationError, match=r"2 partitions.*-partition-0"):
            client.entry_producer(name, create=create)
    assert client.partition_count(name) == 2
    client.entry_producer(f"{name}-partition-1").close()


def test_dead_hosts_in_the_service_url_are_passed_over_and_asked_last(pulsar_standalone):
    url = pulsar_standalone.service_url.replace("pulsar://", "pulsar://127.0.0.1:1,")
    with PulsarClient(url, timeout_s=5) as client:
        assert client.coordinators.count() >= 1
        assert client.lookup.service[0].host_port in pulsar_standalone.service_url
    with PulsarClient("pulsar://127.0.0.1:1", timeout_s=5) as client, pytest.raises(ConnectionLost):
        client.coordinators.count()


def reset(peer: Peer) -> None:
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.sock.close()


STRANGERS: dict[str, Callable[[Peer], object]] = {
    "mute": lambda peer: peer.next(commands.Ping),
    "not ready": lambda peer: peer.send(commands.Error(request_id=0, error=6)),
    "speaks HTTP": lambda peer: peer.sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "speaks TLS": lambda peer: peer.sock.sendall(b"\x15\x03\x01\x00\x02\x02\x46"),
    "speaks SSH": lambda peer: peer.sock.sendall(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "speaks nonsense": lambda peer: peer.sock.sendall(b"\0\0\0\x08\0\0\0\x04\xff\xff\xff\xff"),
    "answers something else": lambda peer: peer.send(commands.Success(request_id=0)),
    "hangs up": lambda peer: peer.sock.close(),
    "resets": reset,
}


@pytest.mark.parametrize("first", STRANGERS)
def test_a_host_that_is_no_broker_is_passed_over_and_named(pulsar_standalone, first):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        STRANGERS[first](peer)
        peer.next(commands.Ping)

    with ScriptedBroker(script) as useless:
        url = f"{useless.url},{pulsar_standalone.service_url.split('://')[1]}"
        with PulsarClient(url, timeout_s=12) as client:
            assert client.coordinators.count() >= 1
            assert client.coordinators.count() >= 1
        assert useless.connections == 1
        said = rf"service_url.*127\.0\.0\.1:{useless.address.port}.*127\.0\.0\.1:1\b"
        both_useless = PulsarClient(f"{useless.url},127.0.0.1:1", timeout_s=2)
        with both_useless as client, pytest.raises(ConnectionLost, match=said):
            client.coordinators.count()


def test_a_listener_that_the_brokers_do_not_have_is_named(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    said = r"'nowhere'.*advertisedListeners"
    nowhere = PulsarClient(url, listener_name="nowhere", timeout_s=5)
    with nowhere as client, pytest.raises(ConfigurationError, match=said):
        client.entry_producer(name, create=True)


def test_hosts_whose_certificates_nobody_signed_are_named_each():
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    def script(peer: Peer) -> None:
        with contextlib.suppress(ssl.SSLError):
            context.wrap_socket(peer.sock, server_side=True)

    with ScriptedBroker(script) as stranger:
        url = f"pulsar+ssl://{stranger.address.host_port},127.0.0.1:1"
        said = rf"service_url.*:{stranger.address.port} can't be verified.*127\.0\.0\.1:1\b"
        with PulsarClient(url, timeout_s=3) as client, pytest.raises(ConnectionLost, match=said):
            client.coordinators.count()


def test_a_host_that_refuses_us_is_not_passed_over():
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Error(request_id=0, error=3))

    with ScriptedBroker(script) as strict:
        url = f"{strict.url},127.0.0.1:1"
        with PulsarClient(url, timeout_s=2) as client, pytest.raises(Unauthorized):
            client.coordinators.count()


def test_a_host_name_that_can_not_be_one_is_a_lost_connection():
    url = f"pulsar://{'a' * 70}.example"
    with PulsarClient(url, timeout_s=2) as client, pytest.raises(ConnectionLost):
        client.coordinators.count()


def test_through_a_proxy_every_connection_names_the_broker_behind_it(
    through, proxy, pulsar_standalone, name
):
    targets = []

    def note(connect: commands.Connect) -> FrameAction:
        targets.append(connect.proxy_to_broker_url)
        return FrameAction.PASS

    with (
        proxy.fault(commands.Connect, note, times=100),
        through.transaction(timeout_s=60) as txn,
    ):
        through.entry_producer(name, create=True).send(b"x", txn=txn)
    assert targets == [None, pulsar_standalone.service_url.split("://")[1]]


def answering(
    answer: Callable[[commands.Lookup], commands.LookupResponse],
) -> Callable[[Peer], None]:
    """A script that answers every look-up with ``answer``."""

    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            peer.send(answer(peer.next(commands.Lookup)))

    return script


def test_redirects_are_followed_and_the_answer_of_the_last_counts():
    asked = []

    def answer(asker: str, response: int) -> Callable[[commands.Lookup], commands.LookupResponse]:
        def give(lookup: commands.Lookup) -> commands.LookupResponse:
            asked.append((asker, lookup.authoritative))
            return commands.LookupResponse(
                request_id=lookup.request_id,
                response=response,
                broker_url=owner.url,
                authoritative=True,
            )

        return give

    with (
        ScriptedBroker(answering(answer("owner", 1))) as owner,
        ScriptedBroker(answering(answer("entry", 0))) as entry,
        PulsarClient(entry.url, timeout_s=3) as client,
    ):
        assert client.lookup.broker_of(TOPIC).address == owner.address
        assert asked == [("entry", False), ("owner", True)]


def test_a_circle_of_redirects_ends_and_uses_one_connection():
    def redirect(lookup: commands.Lookup) -> commands.LookupResponse:
        return commands.LookupResponse(
            request_id=lookup.request_id, response=0, broker_url=broker.url
        )

    with (
        ScriptedBroker(answering(redirect)) as broker,
        PulsarClient(broker.url, timeout_s=3) as client,
    ):
        with pytest.raises(ConnectionLost, match="more than 20 redirects"):
            client.lookup.broker_of(TOPIC)
        assert broker.connections == 1


def chain(stack: ExitStack, length: int, pause_s: float = 0.0) -> list[ScriptedBroker]:
    """Return brokers that each redirect to the next one, and the last to the first."""
    brokers: list[ScriptedBroker] = []

    def redirect_from(number: int) -> Callable[[commands.Lookup], commands.LookupResponse]:
        def give(lookup: commands.Lookup) -> commands.LookupResponse:
            time.sleep(pause_s)
            url = brokers[(number + 1) % length].url
            return commands.LookupResponse(request_id=lookup.request_id, response=0, broker_url=url)

        return give

    for number in range(length):
        brokers.append(stack.enter_context(ScriptedBroker(answering(redirect_from(number)))))
    return brokers


def test_connections_made_on_the_way_only_are_closed_again():
    with ExitStack() as stack:
        brokers = chain(stack, 30)
        client = stack.enter_context(PulsarClient(brokers[0].url, timeout_s=10))
        client.lookup.any_broker()
        with nothing_left_behind():
            for _ in range(3):
                with pytest.raises(ConnectionLost, match="more than 20 redirects"):
                    client.lookup.broker_of(TOPIC)
        assert [len(client.lookup._pool.connections), readers()] == [1, 1]


@pytest.mark.parametrize("length", [25, 1])
def test_one_deadline_holds_for_all_redirects_together(length):
    with ExitStack() as stack:
        brokers = chain(stack, length, pause_s=0.9)
        client = stack.enter_context(PulsarClient(brokers[0].url, timeout_s=1))
        started = time.monotonic()
        with pytest.raises((RequestTimeout, ConnectionLost)):
            client.lookup.broker_of(TOPIC)
        assert time.monotonic() - started < 12  # of the 18 s of 20 redirects


def test_a_connection_that_died_is_dropped_with_the_next_look_up():
    def answer(lookup: commands.Lookup) -> commands.LookupResponse:
        return commands.LookupResponse(
            request_id=lookup.request_id, response=1, broker_url=owners[lookup.topic].url
        )

    def owner(peer: Peer) -> None:
        peer.welcome()
        peer.next(commands.Ping)

    with ExitStack() as stack:
        owners = {f"t{n}": stack.enter_context(ScriptedBroker(owner)) for n in range(5)}
        entry = stack.enter_context(ScriptedBroker(answering(answer)))
        client = stack.enter_context(PulsarClient(entry.url, timeout_s=10))
        for topic in owners:
            client.lookup.broker_of(topic)
        pool = client.lookup._pool
        assert len(pool.connections) == 6
        for topic in list(owners)[1:]:
            owners[topic].__exit__()
        wait_until(lambda: sum(c.is_alive for c in pool.connections) == 2)
        client.lookup.broker_of("t0")
        assert len(pool.connections) == 2


def test_look_ups_that_pass_through_one_broker_share_its_connection():
    """The first look-up to finish must not close it while the others use it."""
    arrived = threading.Barrier(4)

    def via(lookup: commands.Lookup) -> commands.LookupResponse:
        return commands.LookupResponse(
            request_id=lookup.request_id, response=0, broker_url=middle.url
        )

    def script(peer: Peer) -> None:
        peer.welcome()
        asked = [peer.next(commands.Lookup)]
        arrived.wait(10)  # all four are under way; the other three use this connection too
        asked += [peer.next(commands.Lookup) for _ in range(3)]
        for lookup in asked:
            peer.send(
                commands.LookupResponse(
                    request_id=lookup.request_id, response=1, broker_url=entry.url
                )
            )
            time.sleep(0.05)
        peer.next(commands.Ping)

    with (
        ScriptedBroker(script) as middle,
        ScriptedBroker(answering(via)) as entry,
        PulsarClient(entry.url, timeout_s=10) as client,
    ):
        failed: list[EosError] = []
        threads = []
        for number in range(4):
            thread, errors = in_background(
                lambda number=number: (
                    arrived.wait(10) if number else None,
                    client.lookup.broker_of(TOPIC),
                )
            )
            threads.append(thread)
            failed = errors if errors else failed
        for thread in threads:
            thread.join(20)
        assert failed == []
        assert middle.connections == 1
        assert len(client.lookup._pool.connections) == 1


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"broker_url": None}, ProtocolError),
        ({"broker_url": "nonsense"}, ProtocolError),
        ({"broker_url": "pulsar://a:1,b:2"}, ProtocolError),
        ({"broker_url": "pulsar+ssl://127.0.0.1:1"}, ProtocolError),
        ({"response": 2, "error": 6}, BrokerNotReady),
        ({"response": 77}, EosError),
    ],
)
def test_an_answer_that_leads_nowhere_is_refused(change, error):
    def answer(lookup: commands.Lookup) -> commands.LookupResponse:
        good = commands.LookupResponse(
            request_id=lookup.request_id, response=1, broker_url=broker.url
        )
        return replace(good, **change)

    with (
        ScriptedBroker(answering(answer)) as broker,
        PulsarClient(broker.url, timeout_s=3) as client,
        pytest.raises(error),
    ):
        client.lookup.broker_of(TOPIC)


TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJqb2UifQ.ipevRNuRP6HflG8cFKnmUPtypruRC4fb1DWtoLL62SY"


@pytest.mark.parametrize("host", [TOKEN, f"{TOKEN} x", TOKEN[::-1], f"{TOKEN[30:60]}.localhost"])
def test_an_address_that_repeats_the_token_is_neither_used_nor_shown(host):
    def answer(lookup: commands.Lookup) -> commands.LookupResponse:
        return commands.LookupResponse(
            request_id=lookup.request_id, response=1, broker_url=f"pulsar://{host}:6650"
        )

    with (
        ScriptedBroker(answering(answer)) as broker,
        PulsarClient(broker.url, auth=Auth(token=TOKEN), timeout_s=3) as client,
        pytest.raises(ProtocolError, match="not shown: it repeats"),
    ):
        client.lookup.broker_of(TOPIC)


def test_a_look_up_that_leaves_tls_is_not_followed():
    """The token would be sent unencrypted."""
    asked = Address("broker", 6651, tls=True)
    answer = commands.LookupResponse(
        request_id=1, response=1, broker_url_tls="pulsar://broker:6650"
    )
    with (
        PulsarClient(str(asked)) as client,
        pytest.raises(ProtocolError, match="changes between TLS"),
    ):
        client.lookup._route(answer, asked)


def test_a_number_of_partitions_that_nobody_has_is_refused(through, proxy, name):
    def many(answer: commands.PartitionedMetadataResponse) -> Replace:
        return Replace(replace(answer, partitions=10**9, error=None, response=0))

    with proxy.fault(commands.PartitionedMetadataResponse, many), pytest.raises(ProtocolError):
        through.partition_count(name)


def test_many_threads_share_one_connection(pulsar_standalone):
    with PulsarClient(pulsar_standalone.service_url, timeout_s=10) as client:
        found: set[int] = set()
        start = threading.Barrier(8)

        def look_up() -> None:
            start.wait()
            found.add(id(client.lookup.any_broker()))

        threads = [threading.Thread(target=look_up) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 1


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[EosError]]:
    """Start ``call`` in a thread; return the thread and a list that receives its error."""
    failed: list[EosError] = []

    def run() -> None:
        try:
            call()
        except EosError as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def test_a_host_that_hangs_holds_up_neither_others_nor_close():
    """One broker that does not answer must not make every look-up of the client wait."""

    def answer(lookup: commands.Lookup) -> commands.LookupResponse:
        url = mute.url if lookup.topic.endswith("mute") else entry.url
        return commands.LookupResponse(request_id=lookup.request_id, response=1, broker_url=url)

    with (
        ScriptedBroker(lambda peer: peer.next(commands.Ping)) as mute,
        ScriptedBroker(answering(answer)) as entry,
        nothing_left_behind(),
    ):
        client = PulsarClient(entry.url, timeout_s=20)
        client.lookup.broker_of(TOPIC)
        thread, failed = in_background(lambda: client.lookup.broker_of("mute"))
        wait_until(lambda: mute.connections)
        started = time.monotonic()
        client.lookup.broker_of(TOPIC)
        client.close()
        assert time.monotonic() - started < 15
        mute.__exit__()
        thread.join(30)
        assert len(failed) == 1


def test_a_connection_that_is_ready_only_after_close_is_closed_too():
    held = threading.Event()

    def slow(peer: Peer) -> None:
        peer.next(commands.Connect)
        held.wait(10)
        peer.send(commands.Connected(server_version="slow"))
        peer.next(commands.Ping)

    with ScriptedBroker(slow) as broker, nothing_left_behind():
        client = PulsarClient(broker.url, timeout_s=5)
        thread, failed = in_background(client.lookup.any_broker)
        wait_until(lambda: broker.connections)
        client.close()
        held.set()
        thread.join(10)
        assert [str(error) for error in failed] == ["The client is closed."]


def test_a_client_that_is_closed_leaves_no_thread_and_no_socket(pulsar_standalone, name):
    with (
        nothing_left_behind(),
        PulsarClient(pulsar_standalone.service_url, timeout_s=10) as client,
        client.transaction() as txn,
    ):
        client.entry_producer(name, create=True).send(b"x", txn=txn)
