"""Tokens and TLS files: fresh, checked, and never shown."""

from __future__ import annotations

import pickle
import re
import ssl
import traceback
from base64 import b64encode
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from eos.errors import ConfigurationError, Unauthorized
from eos.transport.auth import Auth
from tests.support import tokens

SECRET = "-".join(("hunter", "2"))  # so that no traceback shows it by showing this file


def test_a_token_is_pickled_and_not_in_a_repr():
    auth = Auth(token=SECRET)
    assert SECRET not in repr(auth) + str(auth)
    assert pickle.loads(pickle.dumps(auth)).login.credentials(1) == SECRET.encode()


def test_a_token_file_is_read_again_each_time(tmp_path):
    file = tmp_path / "token"
    auth = Auth(token_file=str(file))
    for token in ("first", "second"):
        file.write_text(f"{token}\n")
        assert auth.login.credentials(1) == token.encode()


@pytest.mark.parametrize(
    "token",
    ["", "   ", f"{SECRET}\n{SECRET}", f"{SECRET} {SECRET}", SECRET + "\udc80", SECRET + "é", None],
    ids=ascii,
)
def test_an_invalid_token_is_rejected_without_showing_it(token):
    with pytest.raises(Unauthorized, match="not a token") as caught:
        Auth(token=lambda: token).login.credentials(1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_error_for_a_failing_token_function_does_not_quote_it():
    def fail() -> str:
        raise ValueError(SECRET)

    with pytest.raises(Unauthorized, match="the token function: ValueError") as caught:
        Auth(token=fail).login.credentials(1)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_missing_token_file_is_named():
    with pytest.raises(Unauthorized, match="/nowhere"):
        Auth(token_file="/nowhere").login.credentials(1)


@pytest.mark.parametrize(
    "options",
    [
        {"token": "a", "token_file": "b"},
        {"tls_certificate_file": "a"},
        {"tls_private_key_file": "a"},
        {"tls_private_key_password": "a"},
        {"oauth2_issuer_url": "https://a"},
        {"oauth2_credentials_file": "a"},
        {"oauth2_scope": "a", "token": "b"},
        {"oauth2_issuer_url": "https://a", "oauth2_credentials_file": ""},
        {"oauth2_issuer_url": "https://a", "oauth2_credentials_file": "b", "token_file": "c"},
        {"basic_user": "a"},
        {"basic_password": "a"},
        {"basic_user": "a", "basic_password": ""},
        {"basic_user": "a:b", "basic_password": "c"},
        {"basic_user": "a", "basic_password": "b:c"},
        {"basic_user": "a", "basic_password": "b", "token": "c"},
    ],
)
def test_contradicting_options_are_rejected(options):
    with pytest.raises(ConfigurationError):
        Auth(**options)


def test_a_password_is_pickled_and_not_in_a_repr():
    auth = Auth(basic_user="spark", basic_password=SECRET)
    assert SECRET not in repr(auth) + repr(auth.login)
    login = pickle.loads(pickle.dumps(auth)).login
    sent = login.credentials(1)
    assert (login.method_name, sent) == ("basic", f"spark:{SECRET}".encode())
    assert login.http_authorization(sent) == f"Basic {b64encode(sent).decode()}"


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (tokens.token("writer", life_s=-10), r"expires at 20\d\d-.* UTC; it is now 20"),
        (tokens.token("writer", life_s=10), r"expires at 20\d\d-.* UTC; it is now 20"),
        (tokens.token("writer", life_s=1e300), r"^Check the token\.$"),
        (tokens.token("writer"), r"^Check the token\.$"),
        ("no.jwt.at all", r"^Check the token\.$"),
        ("", r"^Check the token\.$"),
    ],
)
def test_the_hint_for_a_rejected_token_has_its_expiry(sent, says):
    assert re.search(says, Auth(token="x").login.advice(sent.encode()))


@pytest.mark.parametrize("odd", ["", "a:b", "a\nb", "a\0b", "a\ud800", b"bytes", 5])
@pytest.mark.parametrize("name", ["basic_user", "basic_password"])
def test_an_invalid_user_or_password_is_rejected(name, odd):
    options = {"basic_user": "spark", "basic_password": "secret"} | {name: odd}
    with pytest.raises(ConfigurationError, match=f"^{name} must be") as caught:
        Auth(**options)
    assert "secret" not in str(caught.value)


def test_a_secret_in_a_peers_text_is_redacted():
    for auth in (Auth(token=SECRET), Auth(basic_user="spark", basic_password=SECRET)):
        login = auth.login
        sent = login.credentials(1)
        header = login.http_authorization(sent)
        hidden = login.redact(f"you sent {sent.decode()} as {header}, {SECRET}", sent)
        assert "hunter" not in hidden
        assert header.partition(" ")[2] not in hidden
    assert Auth().login.redact("text", b"") == "text"


def test_the_broker_is_always_verified_and_by_nothing_older_than_tls_1_2():
    context = Auth().ssl_context()
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.timeout(120)
def test_unusable_tls_files_raise_an_error_without_a_password_prompt(tmp_path):
    certificate = trustme.CA().issue_cert("client")
    chain = tmp_path / "client.pem"
    certificate.cert_chain_pems[0].write_to_path(chain)
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    locked = tmp_path / "locked.pem"  # OpenSSL would ask for the password on the terminal
    locked.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"pw"))
    )
    for options in (
        {"tls_trust_certs_file": "/nowhere"},
        {"tls_trust_certs_file": str(locked)},
        {"tls_certificate_file": str(chain), "tls_private_key_file": str(locked)},
        {"tls_certificate_file": str(chain), "tls_private_key_file": str(chain)},
    ):
        with pytest.raises(ConfigurationError, match="TLS files can't be loaded"):
            Auth(**options).ssl_context()
    own = {"tls_certificate_file": str(chain), "tls_private_key_file": str(locked)}
    assert Auth(**own, tls_private_key_password="pw").ssl_context()
    with pytest.raises(ConfigurationError, match="TLS files can't be loaded") as caught:
        Auth(**own, tls_private_key_password=SECRET).ssl_context()
    assert "tls_private_key_password" in caught.value.hint
    assert SECRET not in str(caught.value) + repr(Auth(**own, tls_private_key_password=SECRET))


def test_one_set_of_authorities_serves_every_library(tmp_path, monkeypatch):
    """By default OpenSSL uses the system's authorities, and pulsar-client those of certifi."""
    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    for file in (ours, theirs):
        trustme.CA().cert_pem.write_to_path(file)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    assert Path(Auth().trust_file).is_file()
    monkeypatch.setenv("SSL_CERT_FILE", str(theirs))
    assert Auth().trust_file == str(theirs)
    assert len(Auth().ssl_context().get_ca_certs()) == 1
    assert Auth(tls_trust_certs_file=str(ours)).trust_file == str(ours)
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        Auth().ssl_context()
