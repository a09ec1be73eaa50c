"""An admin URL with several hosts, of which one is dead, silent, or not an admin API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from eos.admin import Transport, _transport, parse_admin_url
from eos.errors import BrokerNotReady, ConnectionLost, ProtocolError, TopicNotFound, Unreachable
from eos.transport.auth import Auth
from eos.transport.http import Origin, Response, perform
from tests.support.http_server import Answer, ScriptedServer, scripted_server

DEAD = "127.0.0.1:1"


VERSION = "/admin/v2/brokers/version"


def answers(server: ScriptedServer, status: int, body: bytes = b"{}") -> None:
    """A script that answers like an admin API: its version, and this to all other requests."""

    def answer(path: str) -> Answer:
        if path.endswith(VERSION):
            return 200, {}, b"4.2.4"
        return status, {}, body

    server.answer = answer


def asked(server: ScriptedServer) -> list[str]:
    """The paths of all other requests."""
    return [path for path, _ in server.asked if not path.endswith(VERSION)]


@pytest.fixture
def first() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        answers(running, 200)
        yield running


@pytest.fixture
def second() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        answers(running, 200)
        yield running


def transport(*hosts: str | ScriptedServer, timeout_s: float = 10, path: str = "") -> Transport:
    names = [one if isinstance(one, str) else f"127.0.0.1:{one.server_port}" for one in hosts]
    return Transport(f"http://{','.join(names)}{path}", Auth(), timeout_s=timeout_s)


def test_hosts_and_path_of_an_admin_url_are_separated():
    origins, path = parse_admin_url("https://one:8443, two/pulsar/")
    assert origins == (Origin(True, "one", 8443), Origin(True, "two", 443))
    assert path == "/pulsar"


def test_a_dead_host_is_skipped_and_tried_last_from_then_on(second):
    both = transport(DEAD, second, path="/pulsar")
    assert both.ask_json("GET", "/admin/x") == {}
    assert both.ask_json("PUT", "/admin/y") == {}
    assert asked(second) == ["/pulsar/admin/x", "/pulsar/admin/y"]
    assert len(second.asked) == 3  # the version once
    assert [str(origin) for origin in both._origins][-1] == f"http://{DEAD}"


def test_a_change_is_sent_to_the_next_host_if_the_first_was_unreachable(second):
    assert transport(DEAD, second).ask_json("PUT", "/admin/x") == {}


def test_a_silent_host_gets_its_share_of_the_timeout(first, second, monkeypatch):
    """Requests that end at their deadline are in test_transport.py."""
    deadlines: dict[int, float] = {}

    def silent_first(request: Any, service: Any, origin: Origin, *more: Any) -> Response:
        deadlines[origin.port] = more[-1]
        if origin.port == first.server_port:
            raise ConnectionLost("no answer")
        return perform(request, service, origin, *more)

    monkeypatch.setattr(_transport, "perform", silent_first)
    began = time.monotonic()
    assert transport(first, second, timeout_s=20).ask_json("GET", "/admin/x") == {}
    took_s = time.monotonic() - began
    assert began + 10 <= deadlines[first.server_port] <= began + 10 + took_s
    assert began + 20 <= deadlines[second.server_port] <= began + 20 + took_s


def test_a_change_that_may_have_been_made_is_not_sent_to_a_second_host(first, second):
    say = first.answer

    def say_nothing(path: str) -> Answer:
        if path.endswith(VERSION):
            return say(path)
        raise ConnectionResetError  # after the request has arrived

    first.answer = say_nothing
    with pytest.raises(ConnectionLost):
        transport(first, second).ask("PUT", "/admin/x")
    assert (asked(first), second.asked) == (["/admin/x"], [])


def test_a_refusal_is_an_answer(first, second):
    answers(first, 404)
    with pytest.raises(TopicNotFound):
        transport(first, second).ask("GET", "/admin/x")
    assert second.asked == []


HTML = b"<html><body>Welcome!</body></html>"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, HTML),
        (200, HTML),
        (200, b"{}"),
        (302, b""),
        (500, HTML),
        (503, b""),
        (None, b"SSH-2.0\r\n"),
    ],
)
def test_a_host_that_is_not_an_admin_api_is_skipped_and_named(first, second, status, body, method):
    if status is None:
        first.raw = lambda write: write(body)
    else:
        first.give(status, body, Location="http://127.0.0.1:1/")
    assert transport(first, second).ask_json(method, "/admin/x") == {}
    assert asked(first) == []
    said = f"127.0.0.1:{first.server_port}.*127.0.0.1:1"
    with pytest.raises((ProtocolError, ConnectionLost, BrokerNotReady), match=said):
        transport(first, DEAD).ask(method, "/admin/x")


def test_if_no_host_answers_the_error_names_each():
    with pytest.raises(Unreachable, match=r"admin_url.*127\.0\.0\.1:1.*127\.0\.0\.1:2"):
        transport(DEAD, "127.0.0.1:2").ask("GET", "/admin/x")
