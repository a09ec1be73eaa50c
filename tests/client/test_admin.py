"""The admin questions, facing a scripted HTTP server: what a token must never do."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from eos.client.admin import AdminClient
from eos.errors import BrokerNotReady, EosError, ProtocolError, Unauthorized
from eos.ids import TopicName, TxnId
from eos.transport.security import Security

SECRET = "-".join(("hunter", "2"))  # so that no traceback shows it by showing this file
TOPIC = TopicName("t", "n", "what?ever#50%/")


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    """Gives every request ``server.answer``; notes it in ``server.asked``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.server.asked.append((self.path, self.headers.get("Authorization")))
            status, headers, body = self.server.answer
            self.send_response(status)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    running = HTTPServer(("127.0.0.1", 0), Handler)
    running.asked, running.answer = [], (200, {}, b"{}")
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    running.server_close()
    thread.join()


def admin(server: HTTPServer) -> AdminClient:
    url = f"http://127.0.0.1:{server.server_port}"
    return AdminClient(url, Security(token=SECRET), timeout_s=10)


def test_the_topic_is_quoted_and_the_token_goes_along(server):
    server.answer = (200, {}, b'{"startPosition": "1:1", "aborted": false}')
    assert admin(server).is_pinned_by(TOPIC, TxnId(1, 2))
    path = "/admin/v3/transactions/transactionInBufferStats/t/n/what%3Fever%2350%25%2F/1/2"
    assert server.asked == [(path, f"Bearer {SECRET}")]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((401, {}, b""), Unauthorized),
        ((500, {}, b""), BrokerNotReady),
        ((200, {}, b"no json"), ProtocolError),
        ((200, {}, b"[1]"), ProtocolError),
        ((200, {"Content-Length": "100"}, b"{"), ProtocolError),
        ((307, {"Location": "ftp://elsewhere/"}, b""), EosError),
    ],
)
def test_what_can_not_be_used_is_an_error_of_ours_without_the_token(server, answer, error):
    server.answer = answer
    with pytest.raises(error) as caught:
        admin(server).is_pinned_by(TOPIC, TxnId(1, 2))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_what_is_not_found_is_not_pinned(server):
    server.answer = (404, {}, b"")
    assert not admin(server).is_pinned_by(TOPIC, TxnId(1, 2))
