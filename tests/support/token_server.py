"""A small token server for tests: OAuth2 client credentials over TLS, JSON web tokens.

It is as strict as RFC 6749 (sections 4.4 and 5) and RFC 8414: one grant type, a form, the right
client. For an answer that no correct server gives, a test sets ``instead``.
"""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import trustme

from tests.support.http_server import Answer, serving
from tests.support.tokens import token

METADATA = "/realm/.well-known/openid-configuration"
CLIENT = "spark-jobs"


class TokenServer(ThreadingHTTPServer):
    """Issues tokens for ``role``, valid for ``life_s``; records each request's path and form."""

    daemon_threads = True

    def __init__(self, folder: Path, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        authority = trustme.CA()
        self.trust_certs_file = str(folder / "token-server-ca.pem")
        authority.cert_pem.write_to_path(self.trust_certs_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.secret = secret
        self.credentials_file = folder / "client.json"
        self.write_credentials(secret)
        self.role = "admin"
        self.life_s = 3600.0
        self.forms: list[dict[str, str]] = []
        self.given: list[str] = []
        self.instead: dict[str, Answer] = {}
        self.before: Callable[[str], object] = lambda _: None

    @property
    def origin(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    def write_credentials(self, secret: str) -> None:
        """Write the client's credentials file."""
        client = {"type": "client_credentials", "client_id": CLIENT, "client_secret": secret}
        self.credentials_file.write_text(json.dumps(client))

    def options(self) -> dict[str, Any]:
        """Options for ``Auth`` and sinks to use this server."""
        return {
            "oauth2_issuer_url": f"{self.origin}/realm",
            "oauth2_credentials_file": str(self.credentials_file),
            "oauth2_audience": "urn:pulsar",
            "oauth2_trust_certs_file": self.trust_certs_file,
        }

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """Answer a request."""
        self.before(path)
        if path in self.instead:
            return self.instead[path]
        if (method, path) == ("GET", METADATA):
            return _json(
                200, issuer=f"{self.origin}/realm", token_endpoint=f"{self.origin}/token?x=1"
            )
        if (method, path) != ("POST", "/token?x=1"):
            return 404, {}, b""
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.forms.append(form)
        if form.get("grant_type") != "client_credentials":
            return _json(400, error="unsupported_grant_type")
        if (form.get("client_id"), form.get("client_secret")) != (CLIENT, self.secret):
            # Like a careless server, it repeats the received body.
            return _json(401, error="invalid_client", error_description=body.decode())
        self.given.append(token(self.role, life_s=self.life_s))
        return _json(
            200, access_token=self.given[-1], token_type="Bearer", expires_in=int(self.life_s)
        )

    def handle_error(self, *_: object) -> None:
        """Ignore errors: clients that do not trust this server disconnect."""


def _json(status: int, **fields: object) -> Answer:
    return status, {"Content-Type": "application/json"}, json.dumps(fields).encode()


class _Handler(BaseHTTPRequestHandler):
    server: TokenServer

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        with contextlib.suppress(OSError):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, said = self.server.answer(self.command, self.path, body)
            self.send_response(status)
            for header in headers.items():
                self.send_header(*header)
            self.end_headers()
            self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def token_server(folder: Path, secret: str) -> Iterator[TokenServer]:
    """A running ``TokenServer`` with its files in ``folder``."""
    running = TokenServer(folder, secret)
    with serving(running):
        yield running
