"""The fault proxy: every fault does its action, as often as requested, for any client."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from eos.chaos.cluster.proxy import FaultProxy, FrameAction, Hold, Replace, _Socket
from eos.client import PulsarClient
from eos.errors import ConnectionLost, EosError, RequestTimeout
from eos.transport.address import parse_service_url
from eos.transport.auth import Auth
from eos.transport.connection import Connection
from eos.wire import commands
from eos.wire.frames import encode_frame
from eos.wire.messages import WireMessage
from tests.support.judge import drain, quiet_client
from tests.transport.scripted import Peer, ScriptedBroker, nothing_left_behind, wait_until


def echo(peer: Peer) -> None:
    """A broker that answers and records CLOSE_PRODUCER."""
    peer.welcome()
    while True:
        command = peer.next(commands.CloseProducer)
        noted.append(command.producer_id)
        peer.send(commands.Success(request_id=command.request_id))


noted: list[int] = []


@pytest.fixture
def proxy():
    noted.clear()
    with ScriptedBroker(echo) as broker, FaultProxy(broker.url) as running:
        yield running


def ask(connection: Connection, number: int, *, timeout_s: float = 10) -> commands.Success:
    return connection.request(
        lambda request_id: commands.CloseProducer(producer_id=number, request_id=request_id),
        commands.Success,
        timeout_s=timeout_s,
        doing="Asking",
    )


def connect(proxy: FaultProxy) -> Connection:
    with PulsarClient(proxy.service_url) as client:
        (address,) = client.lookup._service
    return Connection.open(address, Auth(), timeout_s=10)


@pytest.mark.parametrize(
    ("verdict", "error", "arrives"),
    [
        (FrameAction.DROP, RequestTimeout, False),
        (FrameAction.CUT, ConnectionLost, False),
        (FrameAction.CUT_WITHIN, ConnectionLost, False),
        (FrameAction.CUT_AFTER, ConnectionLost, True),
    ],
)
def test_action_on_a_request_is_applied_once(proxy, verdict, error, arrives):
    connection = connect(proxy)
    ask(connection, 1)
    with proxy.fault(commands.CloseProducer, verdict) as fault:
        with pytest.raises(error):
            ask(connection, 2, timeout_s=2 if error is RequestTimeout else 10)
        assert fault.fired.is_set()
        assert fault.count == 1
        if verdict is not FrameAction.DROP:
            connection = connect(proxy)
        ask(connection, 3)
        assert fault.count == 1
    ask(connection, 4)
    if arrives:
        wait_until(lambda: 2 in noted)
    assert [n for n in noted if n != 2] == [1, 3, 4]
    assert (2 in noted) is arrives
    connection.close()


def test_answer_faster_than_the_cut_is_lost(proxy, monkeypatch):
    connection = connect(proxy)
    send = _Socket.send

    def linger(end: _Socket, frame: bytes) -> None:
        send(end, frame)
        time.sleep(0.2)

    monkeypatch.setattr(_Socket, "send", linger)
    with proxy.fault(commands.CloseProducer, FrameAction.CUT_AFTER), pytest.raises(ConnectionLost):
        ask(connection, 1)
    assert noted == [1]


def test_forged_answer_replaces_the_receiver(proxy):
    connection = connect(proxy)

    def answer(command: commands.CloseProducer) -> commands.Success:
        return commands.Success(request_id=command.request_id)

    with proxy.fault(commands.CloseProducer, answer):
        ask(connection, 1)
    ask(connection, 2)
    assert noted == [2]
    connection.close()


def test_replaced_command_is_forwarded(proxy):
    connection = connect(proxy)
    with proxy.fault(commands.CloseProducer, lambda c: Replace(replace(c, producer_id=9))):
        ask(connection, 1)
    assert noted == [9]
    connection.close()


def test_passed_commands_are_seen_but_not_counted_as_fired(proxy):
    connection = connect(proxy)
    with proxy.fault(commands.CloseProducer, FrameAction.PASS) as fault:
        ask(connection, 1)
    assert fault.count == 0
    assert not fault.fired.is_set()
    assert proxy.seen[commands.CloseProducer] == proxy.seen[commands.Success] == 1
    connection.close()


def test_fault_fires_at_most_n_times_on_many_connections(proxy):
    connections = [connect(proxy) for _ in range(6)]
    together = threading.Barrier(6)

    def cut(_: commands.CloseProducer) -> FrameAction:
        together.wait(20)
        return FrameAction.CUT

    lost: list[int] = []

    def run(number: int) -> None:
        try:
            ask(connections[number], number, timeout_s=30)
        except EosError:
            lost.append(number)

    with proxy.fault(commands.CloseProducer, cut, times=2) as fault:
        threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert fault.count == 2
    assert len(lost) == 2
    for connection in connections:
        connection.close()


def test_held_frame_is_forwarded_when_the_rule_returns(proxy):
    connection = connect(proxy)
    release = threading.Event()

    def hold(_: commands.Success) -> FrameAction:
        release.wait(5)
        return FrameAction.PASS

    with proxy.fault(commands.Success, hold, times=100):
        with pytest.raises(RequestTimeout):
            ask(connection, 1, timeout_s=2)
        release.set()
        ask(connection, 2)
    connection.close()


def test_a_slow_link_delays_each_frame_and_counts_it(proxy):
    connection = connect(proxy)
    with proxy.fault(WireMessage, Hold(0.2), times=100) as fault:
        began = time.monotonic()
        ask(connection, 1)
    assert time.monotonic() - began >= 0.4  # there, and back
    assert fault.count == 2
    connection.close()


@pytest.mark.parametrize(("towards", "arrived"), [("broker", []), ("client", [1])])
def test_one_way_loss_keeps_the_other_direction(proxy, towards, arrived):
    connection = connect(proxy)
    with (
        proxy.fault(WireMessage, FrameAction.DROP, times=100, towards=towards) as fault,
        pytest.raises(RequestTimeout),
    ):
        ask(connection, 1, timeout_s=2)
    assert fault.count == 1
    assert noted == arrived
    ask(connection, 2)
    connection.close()


def test_cut_all_cuts_open_connections_only(proxy):
    connection = connect(proxy)
    assert proxy.cut_all() == 1
    wait_until(lambda: not connection.is_alive)
    connection = connect(proxy)
    ask(connection, 1)
    connection.close()


def test_forged_answers_never_land_within_another_frame(proxy):
    """Both directions then write to the client; large frames make a collision likely."""
    blob = commands.Error(request_id=10**9, error=0, message="x" * 200_000)

    def flood(peer: Peer) -> None:
        peer.welcome()
        for _ in range(100):
            peer.send(blob)
        peer.next(commands.Ping)

    with ScriptedBroker(flood) as broker, FaultProxy(broker.url) as between:
        connection = connect(between)
        with between.fault(
            commands.CloseProducer, lambda c: commands.Success(request_id=c.request_id), times=10**6
        ):
            for number in range(200):
                connection.request(
                    lambda n: commands.CloseProducer(producer_id=1, request_id=n),
                    commands.Success,
                    timeout_s=5,
                    doing=f"Asking {number}",
                )
        assert connection.is_alive
        connection.close()


def test_unknown_frames_are_forwarded(proxy):
    """Other clients have more commands: a frame that eos can't decode is forwarded."""
    garbled = encode_frame(commands.Success(request_id=1))[:-1] + b"\xff"

    def script(peer: Peer) -> None:
        broker.received.append(peer.sock.recv(1000))

    with ScriptedBroker(script) as broker, FaultProxy(broker.url) as between:
        port = int(between.service_url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), 5) as sock:
            sock.sendall(garbled)
            wait_until(lambda: broker.received)
        assert broker.received == [garbled]


def test_closing_frees_every_thread_and_socket():
    with ScriptedBroker(echo) as broker, nothing_left_behind():
        with FaultProxy(broker.url) as running:
            connections = [connect(running) for _ in range(5)]
            ask(connections[0], 1)
        wait_until(lambda: not any(connection.is_alive for connection in connections))
        names = [thread.name for thread in threading.enumerate()]
        assert "fault-proxy" not in names
        running.close()


def test_dead_broker_is_a_lost_connection():
    with FaultProxy("pulsar://127.0.0.1:1") as running, pytest.raises(ConnectionLost):
        connect(running)


def test_all_connections_of_pulsar_client_use_the_proxy(pulsar_standalone, name):
    with FaultProxy(pulsar_standalone.service_url) as running:
        client = quiet_client(running.service_url)
        producer = client.create_producer(name)
        for n in range(10):
            producer.send(b"%d" % n)
        client.close()
        assert running.seen[commands.Send] == 10
        assert len(drain(running.service_url, name)) == 10
        assert running.seen[commands.LookupResponse] >= 1


@pytest.fixture
def two():
    """Two brokers that record their names, and a proxy in front of them."""
    noted.clear()

    def named(name: int) -> Callable[[Peer], None]:
        def script(peer: Peer) -> None:
            peer.welcome()
            while True:
                command = peer.next(commands.CloseProducer)
                noted.append(name)
                peer.send(commands.Success(request_id=command.request_id))

        return script

    with ScriptedBroker(named(1)) as one, ScriptedBroker(named(2)) as other:
        both = f"{one.url},{other.url.removeprefix('pulsar://')}"
        with FaultProxy(both) as between:
            yield between, one, other


def through(proxy: FaultProxy, broker: ScriptedBroker | None = None) -> Connection:
    """A connection through the proxy, to ``broker`` if given."""
    (address,) = parse_service_url(proxy.service_url)
    wanted = None if broker is None else broker.url.removeprefix("pulsar://")
    return Connection.open(address, Auth(), timeout_s=5, proxy_to=wanted)


def test_client_gets_the_broker_it_names(two):
    between, one, other = two
    for broker, name in ((one, 1), (other, 2), (one, 1)):
        ask(through(between, broker), 7)
        assert noted[-1] == name


def test_client_without_a_broker_name_gets_a_living_one(two):
    between, one, _ = two
    one.__exit__()
    for _ in range(6):
        ask(through(between), 7)
    assert set(noted) == {2}


def test_only_the_isolated_broker_is_unreachable(two):
    between, one, other = two
    there, elsewhere = through(between, one), through(between, other)
    with between.isolated(one.url) as count:
        assert count == 1
        wait_until(lambda: not there.is_alive)
        ask(elsewhere, 7)
        with pytest.raises(EosError):
            through(between, one)
        for _ in range(6):
            ask(through(between), 7)
        assert set(noted) == {2}
    ask(through(between, one), 7)
    assert noted[-1] == 1
