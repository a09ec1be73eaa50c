"""The admin API's transport and a scripted HTTP server: where a token is sent, and the limits on an
answer's time and size."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from eos.admin import AdminClient, Transport
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Unauthorized,
)
from eos.ids import TopicName, TxnId
from eos.transport.address import parse_service_url
from eos.transport.auth import Auth
from eos.transport.http import MAX_ANSWER_BYTES
from tests.support.http_server import ScriptedServer, scripted_server
from tests.support.token_server import token_server

SECRET = "-".join(("hunter", "2"))  # so that no traceback shows it by showing this file
VERSION = "/admin/v2/brokers/version"
TOPIC = TopicName("t", "n", "what?ever#50%/")
PLAIN = parse_service_url("pulsar://broker")
TLS = parse_service_url("pulsar+ssl://broker")


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as running:
        yield running


@pytest.fixture
def elsewhere() -> Iterator[ScriptedServer]:
    """A second server; under the name ``localhost`` it is also on another host."""
    with scripted_server() as running:
        here = b'{"startPosition": "1:1", "aborted": false}'
        running.answer = lambda path: (200, {}, b'"4.2.4"' if path == VERSION else here)
        yield running


def admin(server: ScriptedServer, **options) -> AdminClient:
    return AdminClient(server.url(), Auth(token=SECRET), **{"timeout_s": 10} | options)


def ask(client: AdminClient) -> bool:
    return client.is_open_in_buffer(TOPIC, TxnId(1, 2))


def test_the_topic_is_quoted_and_the_token_is_sent(server):
    server.give(200, b'{"startPosition": "1:1", "aborted": false}')
    assert ask(admin(server))
    path = "/admin/v3/transactions/transactionInBufferStats/t/n/what%3Fever%2350%25%2F/1/2"
    assert server.asked == [(path, f"Bearer {SECRET}")]


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize(
    ("status", "headers", "body", "error"),
    [
        (401, {}, b"", Unauthorized),
        (500, {}, b"", BrokerNotReady),
        (500, {}, f"Who is {SECRET}?".encode(), BrokerNotReady),
        (200, {}, b"", ProtocolError),
        (200, {}, b"no json", ProtocolError),
        (200, {}, b"[1]", ProtocolError),
        (200, {}, b"NaN", ProtocolError),
        (200, {}, DEEP, ProtocolError),
        (200, {}, b'{"startPosition": 1}', ProtocolError),
        (200, {}, b'{"aborted": "no"}', ProtocolError),
        (200, {"Content-Length": "100"}, b"{", ConnectionLost),
        (200, {"Content-Length": "many"}, b"{}" * 5_000_000, ProtocolError),
        (200, {"Content-Length": "many"}, b"{}", ProtocolError),
        (200, {"Content-Length": "-5"}, b"{}", ProtocolError),
        (200, {"Content-Length": "2, 3"}, b"{}", ProtocolError),
        (307, {"Location": "http://[::1"}, b"", ProtocolError),
        (307, {"Location": "//user:pw@127.0.0.1/"}, b"", ProtocolError),
    ],
    ids=str,
)
def test_an_unusable_answer_is_an_eos_error_without_the_token(server, status, headers, body, error):
    server.answer = lambda _: (status, headers, body)
    with pytest.raises(error) as caught:
        ask(admin(server))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_port_that_speaks_something_else_is_a_protocol_error(server):
    server.raw = lambda write: write(b"\x00\x00\x00\x08\x00\x00\x00\x04\r\n")
    with pytest.raises(ProtocolError, match="does not speak HTTP"):
        ask(admin(server))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"Topic has producers.", ": Topic has producers."),
        (b'{"reason":"Topic has producers"}', ": Topic has producers."),
        (b"\x1b[2J!\nat java.lang", ": \ufffd[2J!."),
        (b"!" * 5000, f": {'!' * 300}."),
        (b"{", ": {."),
        (b" ", "."),
    ],
)
def test_the_reason_of_a_refusal_is_in_the_message(server, body, why):
    server.give(412, body)
    with pytest.raises(BrokerNotReady, match="answered 412") as caught:
        ask(admin(server))
    assert caught.value.message == f"The admin API answered 412 to {server.asked[-1][0]}{why}"


def test_a_transaction_that_is_not_found_is_not_open_in_the_buffer(server):
    server.give(404)
    assert not ask(admin(server))


# --- where the token is sent --------------------------------------------------------------------


def test_a_token_is_not_sent_unencrypted_if_the_brokers_use_tls():
    token = Auth(token=SECRET)
    with pytest.raises(ConfigurationError, match=r"sent unencrypted.*https://"):
        AdminClient("http://broker:8080", token, timeout_s=1, service=TLS)
    AdminClient("http://broker:8080", token, timeout_s=1, service=PLAIN)
    AdminClient("https://broker:8443", token, timeout_s=1, service=TLS)
    AdminClient("http://broker:8080", Auth(), timeout_s=1, service=TLS)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://broker", "broker:8080", "http://", "http://:80", "http://broker:port",
        f"http://{SECRET}@broker", f"http://broker?token={SECRET}", f"http://broker/#{SECRET}",
        f"http://[{SECRET}",
    ],
)  # fmt: skip
def test_an_invalid_admin_url_is_rejected_and_not_quoted(url):
    with pytest.raises(ConfigurationError, match="admin_url must be http://host:port") as caught:
        AdminClient(url, Auth(), timeout_s=1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


PASSWORD = Auth(basic_user="spark", basic_password=SECRET)


def test_a_password_is_sent_and_an_answer_that_repeats_it_is_not_shown(server):
    server.answer = lambda _: (500, {}, f"Who is {server.asked[-1][1]}, {SECRET}?".encode())
    with pytest.raises(BrokerNotReady) as caught:
        ask(AdminClient(server.url(), PASSWORD, timeout_s=10))
    sent = base64.b64encode(f"spark:{SECRET}".encode()).decode()
    assert server.asked[0][1] == f"Basic {sent}"
    assert SECRET not in str(caught.value)
    assert "Who" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="the password would be sent unencrypted"):
        AdminClient("http://broker:8080", PASSWORD, timeout_s=1, service=TLS)


def test_a_token_that_the_api_rejects_is_removed_from_the_cache(server, tmp_path):
    with token_server(tmp_path, SECRET) as issuer:
        admin_client = AdminClient(server.url(), Auth(**issuer.options()), timeout_s=10)
        server.give(401)
        for _ in range(2):
            with pytest.raises(Unauthorized):
                ask(admin_client)
        assert [sent for _, sent in server.asked] == [f"Bearer {one}" for one in issuer.given]
        assert len(issuer.given) == 2


def test_a_cached_token_that_the_api_rejects_is_fetched_again_once(server, tmp_path):
    with token_server(tmp_path, SECRET) as issuer:
        auth = Auth(**issuer.options())
        old = f"Bearer {auth.login.credentials(10).decode()}"
        here = (200, {}, b'{"startPosition": "1:1", "aborted": false}')
        server.answer = lambda _: (401, {}, b"") if server.asked[-1][1] == old else here
        assert ask(AdminClient(server.url(), auth, timeout_s=10))
        assert len(issuer.given) == 2


def test_a_proxy_of_the_environment_is_not_used(server, elsewhere, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, elsewhere.url())
    ask(admin(server))
    assert elsewhere.asked == []


def redirected(server: ScriptedServer, target: str, brokers: object = None) -> None:
    """Let ``server`` redirect its requests to ``target``, and list ``brokers``."""

    def answer(path: str) -> tuple[int, dict[str, str], bytes]:
        if path == "/admin/v2/brokers":
            return (401, {}, b"") if brokers is None else (200, {}, json.dumps(brokers).encode())
        if path == VERSION:
            return 200, {}, b'"4.2.4"'
        return 307, {"Location": f"{target}{path}"}, b""

    server.answer = answer


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_redirect_to_a_port_that_is_not_in_admin_url_gets_no_token(server, elsewhere, name):
    redirected(server, elsewhere.url(name), [f"{name}:1"])
    service = parse_service_url(f"pulsar://{name}")
    with pytest.raises(ProtocolError, match="not a known broker"):
        ask(admin(server, service=service))
    assert elsewhere.asked == []
    both = f"{server.url()},{elsewhere.url(name).partition('//')[2]}"
    assert ask(AdminClient(both, Auth(token=SECRET), timeout_s=10))
    assert elsewhere.asked[0][1] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "auth",
    [Auth(token="s" * 20), Auth(basic_user="joe", basic_password="s" * 20)],
    ids=["token", "password"],
)
def test_a_redirect_that_repeats_the_credentials_is_not_shown(server, auth):
    redirected(server, f"http://{'S' * 20}:80", None)
    with pytest.raises(ProtocolError, match="has the credentials"):
        ask(AdminClient(server.url(), auth, timeout_s=10))


def test_a_password_may_be_a_part_of_an_address():
    for password in ("pulsar", "apache-pulsar", "-" * 20 + "a"):
        login = Auth(basic_user="a", basic_password=password).login
        assert login.may_show("pulsar://apache-pulsar-0.apache-pulsar:6650", login.credentials(1))


@pytest.mark.parametrize("brokers", [None, [], ["broker:8080"], {"a": 1}, "localhost", [None]])
def test_a_redirect_to_an_unknown_host_gets_no_token(server, elsewhere, brokers):
    redirected(server, elsewhere.url("localhost"), brokers)
    with pytest.raises(ProtocolError, match="not a known broker") as caught:
        ask(admin(server))
    assert elsewhere.asked == []
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_redirect_to_a_broker_that_the_admin_host_lists_is_followed(server, elsewhere):
    redirected(
        server,
        elsewhere.url("localhost"),
        ["other:8080", elsewhere.url("localhost").partition("//")[2]],
    )
    client = admin(server)
    assert ask(client)
    assert ask(client)
    listings = [path for path, _ in server.asked if path == "/admin/v2/brokers"]
    assert len(listings) == 1
    assert elsewhere.asked[0][1] == f"Bearer {SECRET}"


def test_a_redirect_to_a_broker_of_the_service_url_is_followed_to_the_same_port(server):
    def answer(path: str):
        if len(server.asked) == 1:
            return 307, {"Location": f"{server.url('localhost')}{path}"}, b""
        return 200, {}, b'{"startPosition": "1:1", "aborted": false}'

    server.answer = answer
    assert ask(admin(server, service=parse_service_url("pulsar://other,LOCALHOST")))
    assert server.asked[1][1] == f"Bearer {SECRET}"


def test_without_a_token_redirects_to_any_host_of_the_same_scheme_are_followed(server, elsewhere):
    redirected(server, elsewhere.url("localhost"))
    assert ask(AdminClient(server.url(), Auth(), timeout_s=10))


@pytest.mark.parametrize("scheme", ["ftp", "https", "file"])
def test_a_redirect_to_another_scheme_is_refused_before_a_request(server, elsewhere, scheme):
    redirected(server, elsewhere.url().replace("http", scheme))
    with pytest.raises(ProtocolError, match="redirects"):
        ask(admin(server))
    assert elsewhere.asked == []


def test_a_redirect_loop_ends(server):
    redirected(server, server.url())
    with pytest.raises(ConnectionLost, match="more than 5 times"):
        ask(admin(server))
    assert len(server.asked) == 6


def backwards(text: str) -> str:
    return text[::-1]


def in_base64(text: str) -> str:
    return base64.b64encode(f"no {text}".encode()).decode()


ENCODINGS = {
    "as it is": str,
    "backwards": backwards,
    "base64": in_base64,
    "base64 twice": lambda text: in_base64(in_base64(text)),
    "base64 backwards": lambda text: backwards(in_base64(text)),
    "base64 for URLs": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "hex": lambda text: text.encode().hex(" "),
    "percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "escapes": lambda text: "".join(f"\\u{ord(letter):04x}" for letter in text),
    "entities": lambda text: "".join(f"&#{ord(letter)};" for letter in text),
    "spaced": " ".join,
    "upper case": str.upper,
    "a part": lambda text: text[20:40],
    "without its dots": lambda text: text.replace(".", " "),
}
LONG_SECRET = ".".join(("eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJzcGFyayJ9", "q7-X_z" * 7))


@pytest.mark.parametrize("encoded", ENCODINGS.values(), ids=ENCODINGS)
def test_a_refusal_that_repeats_the_token_in_any_form_is_not_quoted(server, encoded):
    server.give(500, f"Who is {encoded(LONG_SECRET)}?".encode())
    with pytest.raises(BrokerNotReady) as caught:
        ask(AdminClient(server.url(), Auth(token=LONG_SECRET), timeout_s=10))
    words = caught.value.message.partition(": ")[2]
    assert words in ("", "Who is <token>?.")
    server.give(500, b"Topic persistent://public/default/orders-partition-0 is fenced.")
    with pytest.raises(BrokerNotReady) as caught:
        ask(AdminClient(server.url(), Auth(token=LONG_SECRET), timeout_s=10))
    assert "orders-partition-0 is fenced" in caught.value.message


# --- how long, and how much ---------------------------------------------------------------------


def dripping(head: bytes, drop: bytes, stop: threading.Event) -> Callable:
    def write_all(write: Callable[[bytes], object]) -> None:
        write(head)
        while not stop.wait(0.1):
            write(drop)

    return write_all


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"", b""),
    ],
    ids=["body", "chunks", "header", "continue", "silence"],
)
def test_one_deadline_covers_the_whole_request(server, head, drop):
    stop = threading.Event()
    server.raw = dripping(head, drop, stop)
    started = time.monotonic()
    try:
        with pytest.raises(ConnectionLost, match="too long"):
            ask(admin(server, timeout_s=0.5))
    finally:
        stop.set()
    assert time.monotonic() - started < 20


def test_an_endless_answer_is_read_up_to_a_limit(server):
    sent = 0

    def flood(write: Callable[[bytes], object]) -> None:
        nonlocal sent
        write(b"HTTP/1.1 200 OK\r\n\r\n")
        while sent < 400_000_000:
            write(b" " * 1_000_000)
            sent += 1_000_000

    server.raw = flood
    with pytest.raises(ProtocolError, match="longer than"):
        ask(admin(server, timeout_s=30))
    assert sent < 10 * MAX_ANSWER_BYTES


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture
def secure(server) -> Callable[[trustme.LeafCert], str]:
    """Return a function that switches the server to TLS and returns its URL."""

    def with_certificate(certificate: trustme.LeafCert) -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(context)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        return server.url().replace("http", "https")

    return with_certificate


def test_https_works_with_a_trusted_authority(server, secure, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    auth = Auth(token=SECRET, tls_trust_certs_file=str(tmp_path / "ca.pem"))
    url = secure(authority.issue_cert("127.0.0.1"))
    assert not ask(AdminClient(url, auth, timeout_s=10, service=TLS))
    assert server.asked[0][1] == f"Bearer {SECRET}"


def test_a_certificate_that_can_not_be_verified_has_the_hint_that_helps(secure, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trusting = Auth(tls_trust_certs_file=str(tmp_path / "ca.pem"))
    url = secure(authority.issue_cert("elsewhere.example"))
    with pytest.raises(ConfigurationError, match="Set tls_trust_certs_file"):
        ask(AdminClient(url, Auth(), timeout_s=10))
    with pytest.raises(ConfigurationError, match="Use a host name in admin_url"):
        ask(AdminClient(url, trusting, timeout_s=10))


def test_the_hint_for_an_expired_certificate_is_to_renew_it(secure, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    trusting = Auth(tls_trust_certs_file=str(tmp_path / "ca.pem"))
    yesterday = datetime.now(UTC) - timedelta(days=1)
    url = secure(authority.issue_cert("127.0.0.1", not_after=yesterday))
    with pytest.raises(ConfigurationError, match=r"expired\..*local time is 20.*renew") as caught:
        ask(AdminClient(url, trusting, timeout_s=10))
    assert "tls_trust_certs_file" not in str(caught.value)


def test_https_to_a_plain_port_says_which_port_it_needs(server):
    url = server.url().replace("http", "https")
    with pytest.raises(ConnectionLost, match=r"needs the broker's web port for TLS"):
        ask(AdminClient(url, Auth(), timeout_s=5))


def test_the_brokers_of_a_real_cluster_are_listed_by_host(pulsar_standalone):
    """Redirects are compared with this list."""
    transport = Transport(pulsar_standalone.admin_url, Auth(), timeout_s=10)
    named = set(transport._named)
    transport._named.clear()
    transport._trust_brokers(time.monotonic() + 10)
    assert (transport._brokers, transport._named) == ({"127.0.0.1"}, named)


def test_an_unreachable_host_is_an_eos_error():
    with pytest.raises(EosError, match=r"Can't connect to http://127\.0\.0\.1:1"):
        ask(AdminClient("http://127.0.0.1:1", Auth(), timeout_s=2))
