"""OAuth2 client credentials and a small token server: fresh tokens, and a faulty server."""

from __future__ import annotations

import http.client
import json
import pickle
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Unauthorized,
)
from eos.transport._oauth2 import FETCH_TIMEOUT_S, token_cache
from eos.transport.auth import Auth
from eos.transport.http import MAX_ANSWER_BYTES
from tests.support.http_server import scripted_server
from tests.support.token_server import METADATA, TokenServer, token_server

SECRET = "-".join(("hunter/2", "two words"))  # so that no traceback shows it by showing this file
TOKEN = "/token?x=1"


@pytest.fixture
def server(tmp_path) -> Iterator[TokenServer]:
    token_cache.cache_clear()
    with token_server(tmp_path, SECRET) as running:
        yield running


def fetch(server: TokenServer, timeout_s: float = 10.0, **options: object) -> str:
    return Auth(**{**server.options(), **options}).login.credentials(timeout_s).decode()


def test_the_token_endpoint_gets_id_secret_audience_and_scope(server):
    assert fetch(server, oauth2_scope="read write") == server.given[0]
    assert server.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "spark-jobs",
            "client_secret": SECRET,
            "audience": "urn:pulsar",
            "scope": "read write",
        }
    ]


def test_a_process_fetches_one_token_and_uses_it_until_shortly_before_it_expires(
    server, monkeypatch
):
    now = time.monotonic()
    monkeypatch.setattr("eos.transport._oauth2.boot_time", lambda: now)
    first = fetch(server)
    travelled = pickle.loads(pickle.dumps(Auth(**server.options())))
    now += 3600 * 0.89
    assert travelled.login.credentials(10) == first.encode()
    now += 3600 * 0.02
    assert fetch(server) == server.given[1] != first
    assert len(server.given) == 2


def test_a_token_expires_while_the_machine_sleeps(server, monkeypatch):
    """``time.monotonic`` does not count a sleep on Linux; the kernel's boot time does."""
    first, real = fetch(server), time.clock_gettime
    monkeypatch.setattr(
        "time.clock_gettime", lambda clock: real(clock) + 3600 * (clock == time.CLOCK_BOOTTIME)
    )
    assert fetch(server) == server.given[1] != first


def test_concurrent_threads_fetch_one_token(server):
    server.before = lambda _: time.sleep(0.1)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: fetch(server), range(8)))) == 1


def test_a_rejected_token_is_not_used_again(server):
    login = Auth(**server.options()).login
    first = login.credentials(10)
    login.forget(b"another one, refused elsewhere")
    assert login.credentials(10) == first
    login.forget(first)
    assert login.credentials(10) == server.given[1].encode() != first


@pytest.mark.parametrize(
    "said", [None, 0, -5, "soon", "3600", "3600.5", True, 1e400, "inf", [], 10**12], ids=str
)
def test_a_token_is_cached_only_as_long_as_the_server_says(server, said):
    body = json.dumps({"access_token": "abc", "expires_in": said}).encode()
    server.instead[TOKEN] = (200, {}, body)
    assert fetch(server) == "abc"
    del server.instead[TOKEN]
    assert (fetch(server) == "abc") == (said in ("3600", "3600.5"))


def test_a_rotated_client_secret_is_read_for_the_next_token(server):
    server.write_credentials("old")
    with pytest.raises(Unauthorized):
        fetch(server)
    server.write_credentials(SECRET)
    assert fetch(server) == server.given[0]


def test_a_credentials_file_may_begin_with_a_byte_order_mark(server):
    path = Path(server.options()["oauth2_credentials_file"])
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert fetch(server) == server.given[0]


# --- a faulty server -----------------------------------------------------------------------------


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def leaks(text: str) -> list[str]:
    forms = (SECRET, "hunter%2F2", "hunter\\/2", "two+words")
    return [form for form in forms if form in text]


def test_a_refused_client_is_unauthorized_and_its_secret_is_redacted(server):
    server.secret = "another"
    with pytest.raises(
        Unauthorized, match=r"401 \(invalid_client\)\..*oauth2_credentials_file"
    ) as c:
        fetch(server)
    assert not leaks(shown(c.value))


@pytest.mark.parametrize("status", [201, 400, 403])
@pytest.mark.parametrize(
    "body",
    [
        b'{"access_token": "TOKENabc123"}',
        b'{"error": "TOKENabc123", "error_description": "TOKENabc123"}',
        b"TOKENabc123",
        b'["TOKENabc123"]',
    ],
)
def test_only_a_known_error_code_of_a_refusal_is_shown(server, status, body):
    server.instead[TOKEN] = (status, {}, body)
    with pytest.raises(Unauthorized) as caught:
        fetch(server)
    assert "TOKENabc" not in shown(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"oauth2_credentials_file": '{"client_secret": "hush"}'},
        {"oauth2_credentials_file": "data:application/json;base64,hush"},
        {"token_file": "eyJhbGciOiJ.eyJzdWIiOi.hush"},
    ],
)
def test_a_secret_instead_of_a_path_is_rejected_and_not_shown(options):
    if "token_file" not in options:
        options |= {"oauth2_issuer_url": "https://localhost"}
    with pytest.raises(ConfigurationError, match="path") as caught:
        Auth(**options)
    assert "hush" not in str(caught.value)


def test_no_redirect_is_followed(server):
    with scripted_server() as elsewhere:
        elsewhere.give(200, b'{"access_token": "abc", "expires_in": 60}')
        for path in (METADATA, TOKEN):
            for location in (elsewhere.url(), server.origin + "/other"):
                server.instead = {path: (307, {"Location": location}, b"")}
                with pytest.raises(ProtocolError, match="redirect"):
                    fetch(server)
        assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("path", "status", "body", "error"),
    [
        (METADATA, 404, b"", Unauthorized),
        (METADATA, 503, b"", ConnectionLost),
        (METADATA, 200, b"<html>", ProtocolError),
        (METADATA, 200, b"{}", ProtocolError),
        (METADATA, 200, b'{"token_endpoint": 7}', ProtocolError),
        (METADATA, 200, b'{"token_endpoint": "http://127.0.0.1/token"}', ProtocolError),
        (METADATA, 200, b'{"token_endpoint": "https://me:pw@127.0.0.1/token"}', ProtocolError),
        (METADATA, 200, b'{"token_endpoint": "https://127.0.0.1/a b"}', ProtocolError),
        (METADATA, 200, b'{"token_endpoint": "https://[::1"}', ProtocolError),
        (TOKEN, 429, b"", ConnectionLost),
        (TOKEN, 200, b"", ProtocolError),
        (TOKEN, 200, b"[1]", ProtocolError),
        (TOKEN, 200, b"[" * 200_000, ProtocolError),
        (TOKEN, 200, b'{"access_token": ' + b"1" * 5000 + b"}", ProtocolError),
        (TOKEN, 200, b"{}", Unauthorized),
        (TOKEN, 200, b'{"access_token": 5}', Unauthorized),
        (TOKEN, 200, b'{"access_token": "a\\r\\nb"}', Unauthorized),
        (TOKEN, 200, b" " * (MAX_ANSWER_BYTES + 1), ProtocolError),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_unusable_answer_is_an_eos_error(server, path, status, body, error):
    server.instead[path] = (status, {}, body)
    with pytest.raises(error) as caught:
        fetch(server)
    assert not leaks(shown(caught.value))


def test_a_silent_or_slow_server_has_one_deadline_for_all_waiting_threads(server):
    go_on = threading.Event()
    server.before = lambda path: go_on.wait(20) if path == TOKEN else None
    started = time.monotonic()

    def wait(_: int) -> str:
        with pytest.raises(ConnectionLost, match=r"token server|No token from") as caught:
            fetch(server, timeout_s=1)
        assert "oauth2_issuer_url" in str(caught.value)
        return str(caught.value)

    # One after the other they would take 20 s.
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(wait, range(20)))
    assert time.monotonic() - started < 9 < FETCH_TIMEOUT_S
    go_on.set()
    assert fetch(server) in server.given  # an earlier request may be answered after it


def test_a_certificate_that_is_not_trusted_names_the_token_servers_own_option(server):
    with pytest.raises(ConfigurationError, match="Set oauth2_trust_certs_file"):
        fetch(server, oauth2_trust_certs_file=None)
    url = server.options()["oauth2_issuer_url"].replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigurationError, match=r"mismatch.*host name in oauth2_issuer_url"):
        fetch(server, oauth2_issuer_url=url)
    with pytest.raises(ConfigurationError, match="oauth2_trust_certs_file"):
        fetch(server, oauth2_trust_certs_file="/nowhere")
    assert server.forms == []


def test_an_unreachable_token_server_is_named(server):
    with pytest.raises(ConnectionLost, match=r"oauth2_issuer_url is right"):
        fetch(server, oauth2_issuer_url="https://127.0.0.1:1")


def test_http_client_debugging_does_not_print_the_secret(server, capfd, monkeypatch):
    monkeypatch.setattr(http.client.HTTPConnection, "debuglevel", 1)
    fetch(server)
    out, err = capfd.readouterr()
    assert not leaks(out + err)


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer", "issuer", "", "https://", "https://me:hunter2@issuer", "https://a b",
        "https://issuer?x=hunter2", "https://issuer#hunter2", "https://issuer:x", "https://[::1",
    ],
)  # fmt: skip
def test_an_invalid_issuer_url_is_rejected_and_not_quoted(url):
    with pytest.raises(ConfigurationError, match="oauth2_issuer_url") as caught:
        Auth(oauth2_issuer_url=url, oauth2_credentials_file="/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (None, "FileNotFoundError"),
        (SECRET, "JSONDecodeError"),
        (b"\xff", "UnicodeDecodeError"),
        (f'["{SECRET}"]', "no client_id or no client_secret"),
        (f'{{"client_id": 7, "client_secret": "{SECRET}"}}', "no client_id"),
        (
            f'{{"type": "sn", "client_id": "a", "client_secret": "{SECRET}"}}',
            "type other than client_credentials",
        ),
    ],
)
def test_an_invalid_credentials_file_is_named_without_its_content(server, text, match):
    if text is None:
        server.credentials_file.unlink()
    else:
        server.credentials_file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(Unauthorized, match=match) as caught:
        fetch(server)
    assert str(server.credentials_file) in str(caught.value)
    assert not leaks(shown(caught.value))


def test_a_pickled_error_does_not_contain_the_secret(server):
    server.secret = "another"
    with pytest.raises(EosError) as caught:
        fetch(server)
    assert not leaks(str(vars(pickle.loads(pickle.dumps(caught.value)))))
