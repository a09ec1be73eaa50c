"""A connection and a scripted peer, for behaviour that a real broker can't be made to show."""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from eos.errors import (
    BrokerNotReady,
    ConnectionLost,
    EosError,
    ProtocolError,
    RequestTimeout,
    Unauthorized,
)
from eos.transport import _stream as writer_module
from eos.transport import connection as connection_module
from eos.transport._stream import FrameWriter
from eos.transport.auth import Auth
from eos.transport.blocking_connection import BlockingConnection
from eos.transport.connection import Connection
from eos.transport.listeners import AnswerT
from eos.wire import commands
from eos.wire.frames import encode_frame
from tests.support.token_server import TokenServer, token_server
from tests.transport.scripted import (
    CONNECTED,
    Peer,
    ScriptedBroker,
    nothing_left_behind,
    readers,
    wait_until,
)

SECRET = "-".join(("hunter", "2"))  # so that no traceback shows it by showing this file


def open_connection(
    broker: ScriptedBroker, auth: Auth | None = None, timeout_s: float = 10.0
) -> Connection:
    return Connection.open(broker.address, auth or Auth(), timeout_s=timeout_s)


def ask(
    connection: Connection, answer: type[AnswerT] = commands.Success, *, timeout_s: float = 10.0
) -> AnswerT:
    """Any request will do."""
    return connection.request(
        lambda request_id: commands.CloseProducer(producer_id=1, request_id=request_id),
        answer,
        timeout_s=timeout_s,
        doing="Asking",
    )


def send(connection: Connection, payload: bytes) -> None:
    meta = commands.MessageMetadata(producer_name="p", sequence_id=0, publish_time=0)
    connection.send(commands.Send(producer_id=1, sequence_id=0), meta, payload)


def welcome_and_wait(peer: Peer) -> None:
    """Answer CONNECT, and stay until the client closes."""
    peer.welcome()
    peer.next(commands.Ping)


class Listener:
    """Records the calls of a producer's listener."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.closed = threading.Event()

    def on_send_receipt(self, receipt: commands.SendReceipt) -> None:
        self.heard.append(receipt)

    def on_send_error(self, error: commands.SendError) -> None:
        self.heard.append(error)

    def on_closed(self, reason: EosError) -> None:
        self.heard.append(reason)
        self.closed.set()


# --- nonsense -----------------------------------------------------------------------------------

RECEIPT = encode_frame(commands.SendReceipt(producer_id=1, sequence_id=1))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x08\x00\x00\x00\x64abcd",
        b"\xff" * 1000,
        encode_frame(CONNECTED)[:-3],
        encode_frame(CONNECTED)[:3],
        RECEIPT,
        encode_frame(commands.Connected(server_version="x", max_message_size=-1)),
        encode_frame(commands.Connected(server_version="x", max_message_size=0)),
    ],
    ids=["nothing", "http", "long-command", "ff", "cut", "cut-size", "other", "limit-1", "limit0"],
)
def test_a_nonsense_answer_to_connect_is_an_error_and_frees_everything(garbage):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.sock.sendall(garbage)

    with ScriptedBroker(script) as broker, nothing_left_behind(), pytest.raises(EosError):
        open_connection(broker)


@pytest.mark.parametrize("seed", range(12))
def test_random_garbage_ends_the_connection_in_time_and_frees_everything(seed):
    rng = random.Random(seed)
    frames = bytearray(
        encode_frame(CONNECTED)
        + encode_frame(commands.Success(request_id=1))
        + RECEIPT
        + encode_frame(commands.EndTxnResponse(request_id=1, error=24, message="text"))
    )
    for _ in range(rng.randrange(1, 6)):
        frames[rng.randrange(len(frames))] = rng.randrange(256)
    garbage = bytes(frames[: rng.randrange(len(frames))]) + rng.randbytes(rng.randrange(40))

    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next()
        peer.sock.sendall(garbage)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker)
        listener = Listener()
        connection.listeners.add_producer(1, listener)
        started = time.monotonic()
        with contextlib.suppress(EosError):  # the garbage may hold the answer by chance
            ask(connection, timeout_s=2)
        assert listener.closed.wait(20)
        assert not connection.is_alive
        assert time.monotonic() - started < 10


def test_a_frame_size_over_the_limit_ends_the_connection_before_the_frame_arrives():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.sock.sendall(struct.pack(">I", 2**31))
        peer.next(commands.Ping)  # stays open: the client must close

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker)
        wait_until(lambda: not connection.is_alive)
        with pytest.raises(ProtocolError, match="frame of 2147483648 bytes"):
            ask(connection)


def test_a_peer_that_reports_a_huge_limit_can_not_make_the_client_buffer_huge_frames():
    limit = 256 * 1024 * 1024

    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Connected(server_version="x", max_message_size=2**31 - 1))
        peer.next()
        peer.sock.sendall(struct.pack(">I", limit + 1024 * 1024))
        peer.next(commands.Ping)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker)
        assert connection.max_message_bytes == limit
        with pytest.raises(ProtocolError, match="frame of 269484032 bytes"):
            ask(connection)


def test_an_answer_of_another_type_is_a_protocol_error_and_the_connection_stays_usable():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.send(commands.Success(request_id=peer.next().request_id + 1))  # an unknown id
        peer.send(commands.ProducerSuccess(request_id=1, producer_name="p"))
        peer.send(commands.Success(request_id=peer.next().request_id))
        peer.next()

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker)
        with pytest.raises(ProtocolError, match="Asking: the broker answered ProducerSuccess"):
            ask(connection)
        ask(connection)
        connection.close()


# --- silence, refusal, the end ------------------------------------------------------------------


def test_a_peer_that_does_not_answer_connect_is_a_lost_connection():
    with (
        ScriptedBroker(lambda peer: peer.next(commands.Ping)) as broker,
        nothing_left_behind(),
        pytest.raises(ConnectionLost, match=r"no answer .* within 0\.\d s"),
    ):
        open_connection(broker, timeout_s=0.3)


def test_a_request_without_an_answer_times_out_in_doubt_and_its_late_answer_is_dropped():
    def script(peer: Peer) -> None:
        peer.welcome()
        late = peer.next().request_id
        second = peer.next().request_id
        peer.send(commands.Success(request_id=late), commands.Success(request_id=second))
        peer.next()

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker)
        with pytest.raises(RequestTimeout, match=r"Asking: no answer .* within 0\.2 s"):
            ask(connection, timeout_s=0.2)
        assert ask(connection).request_id == 2
        connection.close()


def test_closing_twice_frees_everything_and_fails_waiting_requests():
    with ScriptedBroker(welcome_and_wait) as broker, nothing_left_behind():
        connection = open_connection(broker)
        listener = Listener()
        connection.listeners.add_producer(1, listener)
        failures: list[EosError] = []

        def wait_for_an_answer() -> None:
            try:
                ask(connection, timeout_s=10)
            except EosError as error:
                failures.append(error)

        waiting = [threading.Thread(target=wait_for_an_answer) for _ in range(3)]
        for thread in waiting:
            thread.start()
        wait_until(lambda: len(connection._pending._futures) == 3)
        connection.close()
        connection.close()
        for thread in waiting:
            thread.join(5)
        assert [type(error) for error in failures] == [ConnectionLost] * 3
        # Each has its own error: one object raised in several threads would mix tracebacks.
        assert len({id(error) for error in failures}) == 3
        assert len(listener.heard) == 1
        with pytest.raises(ConnectionLost, match="was closed"):
            ask(connection)
        with pytest.raises(ConnectionLost, match="was closed"):
            connection.listeners.add_producer(2, listener)


def interrupt_at(call_number: int):
    """A trace function that interrupts this thread at its n-th call into the transport's code."""
    calls = itertools.count(1)

    def trace(frame, event, _argument):
        if "/eos/transport/" in frame.f_code.co_filename and next(calls) == call_number:
            raise KeyboardInterrupt

    return trace


@pytest.mark.parametrize("call_number", range(2, 8))
def test_an_interrupted_close_still_tells_every_listener_and_request(call_number, monkeypatch):
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 0.2)
    with ScriptedBroker(welcome_and_wait) as broker, nothing_left_behind():
        connection = open_connection(broker)
        listeners = [Listener() for _ in range(3)]
        for number, listener in enumerate(listeners):
            connection.listeners.add_producer(number, listener)
        waiting = connection._pending.expect(7)
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(interrupt_at(call_number))
            try:
                connection.close()
            finally:
                sys.settrace(None)
        assert isinstance(waiting.exception(10), ConnectionLost)
        for listener in listeners:
            assert listener.closed.wait(10)
            assert len(listener.heard) == 1


def test_a_lost_connection_raises_a_fresh_error_each_time():
    with ScriptedBroker(lambda peer: peer.welcome()) as broker:
        connection = open_connection(broker)
        wait_until(lambda: not connection.is_alive)
        lengths = set()
        for _ in range(20):
            with pytest.raises(ConnectionLost) as caught:
                ask(connection)
            lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
        assert max(lengths) < 10


@pytest.mark.parametrize(("code", "error"), [(3, Unauthorized), (6, BrokerNotReady)])
def test_a_refusal_of_the_connection_has_its_class_and_never_shows_the_token(code, error):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Error(request_id=2**64 - 1, error=code, message="not you"))

    with (
        ScriptedBroker(script) as broker,
        nothing_left_behind(),
        pytest.raises(error) as caught,
    ):
        open_connection(broker, Auth(token=SECRET))
    assert "not you" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_refusal_that_repeats_the_credentials_is_not_quoted():
    def script(peer: Peer) -> None:
        said = peer.next(commands.Connect).auth_data.decode()
        peer.send(commands.Error(request_id=2**64 - 1, error=3, message=f"Who is {said}?"))

    with ScriptedBroker(script) as broker, pytest.raises(Unauthorized) as caught:
        open_connection(broker, Auth(token=SECRET))
    assert "Who is <token>?" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_no_answer_repeats_the_credentials():
    said = f"Who is {SECRET}?"

    def script(peer: Peer) -> None:
        peer.welcome()
        request_id = peer.next(commands.CloseProducer).request_id
        peer.send(commands.SendError(producer_id=1, sequence_id=0, error=3, message=said))
        peer.send(commands.LookupResponse(request_id=request_id, error=3, message=said))

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker, Auth(token=SECRET))
        listener = Listener()
        connection.listeners.add_producer(1, listener)
        answer = ask(connection, commands.LookupResponse)
        connection.close()
    assert answer.message == "Who is <token>?" == listener.heard[0].message


@pytest.mark.parametrize("password", ["role", "r", "a", SECRET])
def test_a_password_is_not_revealed_by_its_redaction(password):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.send(commands.Error(request_id=2**64 - 1, error=3, message="no role a found"))

    auth = Auth(basic_user="spark", basic_password=password)
    with ScriptedBroker(script) as broker, pytest.raises(Unauthorized) as caught:
        open_connection(broker, auth)
    assert caught.value.message == (
        f"Connecting to {broker.address}: the broker answered with code 3."
    )
    assert "Check basic_user and basic_password" in str(caught.value)


def test_an_unavailable_token_leaves_nothing_open():
    def fail() -> str:
        raise KeyError(SECRET)

    with (
        ScriptedBroker(lambda peer: peer.next(commands.Ping)) as broker,
        nothing_left_behind(),
        pytest.raises(Unauthorized) as caught,
    ):
        open_connection(broker, Auth(token=fail))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_failing_listener_does_not_affect_the_others(caplog):
    class Broken(Listener):
        def on_closed(self, reason: EosError) -> None:
            raise ValueError("a bug")

    with ScriptedBroker(welcome_and_wait) as broker, nothing_left_behind():
        connection = open_connection(broker)
        sound = Listener()
        connection.listeners.add_producer(1, Broken())
        connection.listeners.add_producer(2, sound)
        connection.close()
        assert sound.closed.wait(20)
    assert "a bug" in caplog.text


# --- requests of the broker ---------------------------------------------------------------------


def test_a_ping_is_answered():
    def script(peer: Peer) -> None:
        peer.welcome()
        peer.send(commands.Ping())
        broker.received.append(peer.next(commands.Pong))

    with ScriptedBroker(script) as broker:
        open_connection(broker)
        wait_until(lambda: broker.received)


def test_a_ping_is_answered_after_a_blocked_send_and_receipts_are_read_meanwhile():
    """The reading thread waits for no writer: a broker may read only after its output is read."""
    go_on = threading.Event()
    pong = encode_frame(commands.Pong())
    payload = b"x" * (16 << 20)

    def script(peer: Peer) -> None:
        peer.welcome()
        size, tail = len(peer.sock.recv(100)), b""  # the send has begun
        peer.send(*[commands.Ping()] * 500, commands.SendReceipt(producer_id=1, sequence_id=7))
        go_on.wait(10)
        while not tail.endswith(b"x" + pong):
            part = peer.sock.recv(1 << 20)
            size += len(part)
            tail = (tail + part)[-len(pong) - 1 :]
        broker.received.append(size)

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker)
        listener = Listener()
        connection.listeners.add_producer(1, listener)
        sender = threading.Thread(target=send, args=(connection, payload))
        sender.start()
        wait_until(lambda: listener.heard)
        assert sender.is_alive()
        go_on.set()
        wait_until(lambda: broker.received)
        sender.join(5)
        assert broker.received[0] - len(payload) < 100  # one PONG for all that piled up
        connection.close()


def test_a_peer_that_does_not_answer_a_ping_counts_as_lost(monkeypatch):
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 0.1)

    def script(peer: Peer) -> None:
        peer.welcome()
        broker.received.append(peer.next(commands.Ping))
        peer.next()

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker)
        wait_until(lambda: not connection.is_alive)
        assert broker.received == [commands.Ping()]
        with pytest.raises(ConnectionLost, match="is silent"):
            ask(connection)


def test_a_quiet_peer_that_answers_pings_is_kept(monkeypatch):
    monkeypatch.setattr(connection_module, "KEEP_ALIVE_S", 1.0)

    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            broker.received.append(peer.next(commands.Ping))
            peer.send(commands.Pong())

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker)
        wait_until(lambda: len(broker.received) >= 2)
        assert connection.is_alive
        connection.close()


def test_an_auth_challenge_is_answered_with_a_fresh_token():
    tokens = iter(["first", "second", "third"])

    def script(peer: Peer) -> None:
        broker.received.append(peer.welcome().auth_data)
        for _ in range(2):
            peer.send(commands.AuthChallenge())
            response = peer.next(commands.AuthResponse).response
            broker.received.append(response.auth_data)

    with ScriptedBroker(script) as broker:
        open_connection(broker, Auth(token=lambda: next(tokens)))
        wait_until(lambda: len(broker.received) == 3)
        assert broker.received == [b"first", b"second", b"third"]


@pytest.fixture
def issuer(tmp_path) -> Iterator[TokenServer]:
    with token_server(tmp_path, SECRET) as running:
        yield running


def test_an_auth_challenge_gets_a_new_token_instead_of_the_cached_one(issuer):
    """A token that has expired by the broker's clock is not sent again."""

    def script(peer: Peer) -> None:
        broker.received.append(peer.welcome().auth_data)
        peer.send(commands.AuthChallenge())
        broker.received.append(peer.next(commands.AuthResponse).response.auth_data)

    with ScriptedBroker(script) as broker:
        open_connection(broker, Auth(**issuer.options()))
        wait_until(lambda: len(broker.received) == 2)
        assert broker.received == [given.encode() for given in issuer.given]


def test_a_token_that_the_broker_rejected_is_removed_from_the_cache(issuer):
    auth = Auth(**issuer.options())

    def script(peer: Peer) -> None:
        broker.received.append(peer.next(commands.Connect).auth_data)
        peer.send(commands.Error(request_id=2**64 - 1, error=3, message="expired"))

    with ScriptedBroker(script) as broker:
        for _ in range(2):
            with pytest.raises(Unauthorized):
                open_connection(broker, auth)
        assert broker.received == [given.encode() for given in issuer.given]
        assert len(set(broker.received)) == 2


@pytest.mark.parametrize("kind", [Connection, BlockingConnection])
def test_a_cached_token_that_the_broker_rejects_is_fetched_again_once(issuer, kind):
    """As after a sleep of the machine, or a rotation of the token server's keys."""
    rejected, accepts_any = [], True

    def script(peer: Peer) -> None:
        said = peer.next(commands.Connect).auth_data
        broker.received.append(said)
        if said in rejected or not accepts_any:
            peer.send(commands.Error(request_id=2**64 - 1, error=3, message="expired"))
        else:
            peer.send(CONNECTED)
            peer.next(commands.Ping)

    auth = Auth(**issuer.options())
    with ScriptedBroker(script) as broker, nothing_left_behind():
        rejected.append(auth.login.credentials(10))
        kind.open(broker.address, auth, timeout_s=10).close()
        first, second = issuer.given
        assert broker.received == [first.encode(), second.encode()]
        accepts_any = False
        with pytest.raises(Unauthorized):
            kind.open(broker.address, auth, timeout_s=10)
        assert broker.received[2:] == [second.encode(), issuer.given[2].encode()]


def test_a_silent_token_server_does_not_exceed_the_connections_deadline(issuer):
    go_on = threading.Event()
    issuer.before = lambda _: go_on.wait(20)
    with ScriptedBroker(lambda peer: peer.next()) as broker:
        started = time.monotonic()
        with pytest.raises(ConnectionLost, match="token server"):
            open_connection(broker, Auth(**issuer.options()), timeout_s=1)
        assert time.monotonic() - started < 15
        go_on.set()


def test_a_token_function_that_fails_at_a_challenge_ends_the_connection():
    tokens = iter(["first"])

    def script(peer: Peer) -> None:
        peer.welcome()
        peer.send(commands.AuthChallenge())
        peer.next(commands.Ping)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker, Auth(token=lambda: next(tokens)))
        wait_until(lambda: not connection.is_alive)
        with pytest.raises(Unauthorized, match="the token function: StopIteration"):
            ask(connection)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_token_function_that_raises_systemexit_only_ends_the_connection():
    calls: list[int] = []

    def token() -> str:
        calls.append(1)
        if len(calls) > 1:
            raise SystemExit
        return "first"

    def script(peer: Peer) -> None:
        peer.welcome()
        peer.next()
        peer.send(commands.AuthChallenge())
        peer.next(commands.Ping)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker, Auth(token=token))
        with pytest.raises(ConnectionLost, match="reader"):
            ask(connection, timeout_s=5)


@pytest.mark.parametrize("pause_s", [0.0, 0.005])
def test_a_flood_of_auth_challenges_ends_the_connection_after_ten_token_calls(pause_s):
    calls: list[int] = []

    def token() -> str:
        calls.append(1)
        return "token"

    def script(peer: Peer) -> None:
        peer.welcome()
        while True:
            peer.send(commands.AuthChallenge())
            time.sleep(pause_s)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker, Auth(token=token))
        wait_until(lambda: not connection.is_alive)
        with pytest.raises(ProtocolError, match="asked for authentication 11 times"):
            ask(connection)
    assert len(calls) == 1 + 10  # for CONNECT, and the allowed challenges


@pytest.mark.parametrize(
    ("said", "error", "match"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError, r"HTTP port\..*binary port \(6650"),
        (b"\x15\x03\x03\x00\x02\x02\x50", ProtocolError, r"TLS port\..*pulsar\+ssl"),
        (b"", ConnectionLost, r"the port: does it need pulsar\+ssl"),
    ],
    ids=["http", "tls alert", "nothing"],
)
def test_another_protocol_is_recognised_by_its_first_bytes(said, error, match):
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        peer.sock.sendall(said)

    with ScriptedBroker(script) as broker, pytest.raises(error, match=match):
        open_connection(broker)


def test_one_timeout_covers_connecting_and_authenticating():
    def script(peer: Peer) -> None:
        peer.next(commands.Connect)
        time.sleep(0.4)
        for _ in range(200):
            peer.send(commands.Ping())
            time.sleep(0.1)

    with ScriptedBroker(script) as broker:
        started = time.monotonic()
        with pytest.raises(ConnectionLost):
            open_connection(broker, timeout_s=0.8)
        assert time.monotonic() - started < 15


# --- writing ------------------------------------------------------------------------------------


def test_a_peer_that_accepts_no_bytes_counts_as_lost(monkeypatch):
    monkeypatch.setattr(writer_module, "SEND_STALL_S", 0.2)
    hold = threading.Event()

    def script(peer: Peer) -> None:
        peer.welcome()
        hold.wait(10)

    with ScriptedBroker(script) as broker, nothing_left_behind():
        connection = open_connection(broker)
        with pytest.raises(ConnectionLost, match="stalls"):
            send(connection, b"x" * (64 << 20))
        assert not connection.is_alive
        hold.set()


class FullStream:
    """Has no room until ``has_room`` is set."""

    def __init__(self) -> None:
        self.has_room, self.sent = threading.Event(), []

    def takes(self, _num_bytes: int) -> bool:
        return self.has_room.is_set()

    def send(self, parts: list[bytes], _timeout_s: float) -> None:
        assert self.has_room.wait(10)
        self.sent += parts


FLOWS = [commands.Flow(consumer_id=1, permits=permits) for permits in (1, 2)]
FLOW_FRAMES = [encode_frame(one) for one in FLOWS]


def test_a_notice_waits_for_nobody():
    """Locks are held around it that the reading thread needs."""
    stream = FullStream()
    writer = FrameWriter(stream)
    with ThreadPoolExecutor(1) as pool:
        for one in FLOWS:
            pool.submit(writer.write_soon, one).result(5)
        assert stream.sent == []
        stream.has_room.set()
        wait_until(lambda: stream.sent == FLOW_FRAMES)


def test_a_notice_is_sent_before_all_later_requests():
    stream = FullStream()
    stream.has_room.set()
    writer = FrameWriter(stream)
    with ThreadPoolExecutor(1) as pool:
        with writer._lock:  # another thread sends
            for one in FLOWS:
                writer.write_soon(one)
            request = pool.submit(writer.write, (b"request",))
        request.result(5)
    assert stream.sent == [*FLOW_FRAMES, b"request"]


def test_an_interrupted_send_ends_the_connection_because_its_frame_is_incomplete(monkeypatch):
    with ScriptedBroker(welcome_and_wait) as broker:
        connection = open_connection(broker)
        stream = connection._stream
        real_send = stream.send

        def interrupted(parts, timeout_s):
            real_send([bytes(parts[0])[:5]], timeout_s)
            raise KeyboardInterrupt

        monkeypatch.setattr(stream, "send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            send(connection, b"x")
        assert not connection.is_alive
        with pytest.raises(ConnectionLost, match="interrupted"):
            send(connection, b"y")


def test_an_interrupt_right_after_the_writers_lock_leaves_no_thread_waiting_for_it(monkeypatch):
    with ScriptedBroker(welcome_and_wait) as broker, nothing_left_behind():
        connection = open_connection(broker)
        writer, failures = connection._writer, []
        real_write, taken = writer._write_and_release, threading.Event()

        def interrupted(parts):  # signals are handled at the entry of a function
            if threading.current_thread() is not threading.main_thread():
                return real_write(parts)
            taken.set()
            time.sleep(0.2)  # the others wait for the lock
            raise KeyboardInterrupt

        def send_next() -> None:
            taken.wait(10)
            try:
                writer.write((b"x",))
            except OSError as error:
                failures.append(error)

        monkeypatch.setattr(writer, "_write_and_release", interrupted)
        others = [threading.Thread(target=send_next, daemon=True) for _ in range(3)]
        for thread in others:
            thread.start()
        with pytest.raises(KeyboardInterrupt):
            send(connection, b"x")
        for thread in others:
            thread.join(5)
        assert len(failures) == 3


def test_a_request_does_not_exceed_its_timeout_waiting_for_other_senders():
    hold = threading.Event()

    def script(peer: Peer) -> None:
        peer.welcome()
        hold.wait(10)

    with ScriptedBroker(script) as broker:
        connection = open_connection(broker)

        def send_much() -> None:
            with pytest.raises(ConnectionLost):
                send(connection, b"x" * (64 << 20))

        sender = threading.Thread(target=send_much)
        sender.start()
        wait_until(lambda: connection._writer._lock.locked())
        started = time.monotonic()
        with pytest.raises(RequestTimeout):
            ask(connection, timeout_s=0.3)
        assert time.monotonic() - started < 8
        connection.close()  # wakes the sender
        sender.join(5)
        assert not sender.is_alive()
        hold.set()


def test_opening_many_connections_leaves_no_reading_thread():
    with ScriptedBroker(welcome_and_wait) as broker, nothing_left_behind():
        connections = [open_connection(broker) for _ in range(10)]
        assert readers(broker.address) == 10
        for connection in connections:
            connection.close()
