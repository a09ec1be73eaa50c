"""An HTTP server with scripted answers that no real admin API can be made to give."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = tuple[int, dict[str, str], bytes]


class ScriptedServer(ThreadingHTTPServer):
    """Answers every request with ``answer(path)``; records path and Authorization in ``asked``.

    ``raw``, if set, writes the whole answer.
    """

    daemon_threads = True
    answer: Callable[[str], Answer]
    raw: Callable[[Callable[[bytes], object]], None] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[str, str | None]] = []
        self.give(200, b"{}")

    def give(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer all requests with this."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = lambda _: (status, named, body)

    def handle_error(self, *_: object) -> None:
        """Ignore errors: many tests are about clients that disconnect."""

    def url(self, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ScriptedServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        with contextlib.suppress(OSError):
            if self.server.raw is not None:
                self.server.raw(self.wfile.write)
                return
            status, headers, body = self.server.answer(self.path)
            self.send_response(status)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(body)

    do_PUT = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def scripted_server() -> Iterator[ScriptedServer]:
    """A running ``ScriptedServer``."""
    running = ScriptedServer()
    with serving(running):
        yield running


@contextmanager
def serving(running: ThreadingHTTPServer) -> Iterator[None]:
    """Let ``running`` answer until the end of the block."""
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        running.shutdown()
        running.server_close()
        thread.join()
