"""Authentication by OAuth2 client credentials: a token server issues the tokens.

The flow and the credentials file are those of Pulsar's own clients (``AuthenticationOAuth2``).
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Unauthorized,
)
from eos.forking import lock_of_process
from eos.transport._auth_methods import Login, checked_token, token_advice
from eos.transport._connect import verifying_context
from eos.transport.http import HttpService, Origin, Request, Response, perform
from eos.transport.secret_text import path_text
from eos.waiting import boot_time

# Even if the caller could wait longer: a connection that answers a challenge reads nothing else.
FETCH_TIMEOUT_S: Final = 10.0
# A token is used for this share of its life; the rest is for requests in flight.
USED_SHARE: Final = 0.9
_MAX_LIFE_S: Final = 10**9
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_TOKEN_SERVER: Final = HttpService(
    "The token server",
    "oauth2_issuer_url",
    "Check that it runs and that oauth2_issuer_url is right.",
)
_URL: Final = "must be https://host[:port][/path]"
_CLIENT: Final = ("client_id", "client_secret")
_TYPE: Final = "client_credentials"
# From RFC 6749, section 5.2; and ``access_denied``, which some servers use for a wrong audience.
_ERROR_CODES: Final = (
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
)


@dataclass(frozen=True)
class ByOAuth2(Login):
    """By a token from ``issuer_url``, for the client id and secret in ``credentials_file``."""

    issuer_url: str
    credentials_file: str
    audience: str | None
    scope: str | None
    trust_certs_file: str | None

    method_name = "token"
    exposes = "token"

    def __post_init__(self) -> None:
        if not self.credentials_file:
            raise ConfigurationError("oauth2_credentials_file must not be empty.")
        if self.credentials_file.lstrip().startswith(("{", "data:", "file:")):
            # The value is not shown: it may contain the secret.
            raise ConfigurationError(
                "oauth2_credentials_file must be a path, not the file's content and not a URL."
            )
        if _https_origin(self.issuer_url) is None or {"?", "#"} & set(self.issuer_url):
            # The value is not shown: it may contain a password.
            raise ConfigurationError(
                f"oauth2_issuer_url {_URL}, without user, password and query: "
                "the client's secret must not be sent unencrypted."
            )

    def credentials(self, timeout_s: float) -> bytes:
        """Return a token that does not expire soon."""
        return _cached(self).get(min(timeout_s, FETCH_TIMEOUT_S))

    def advice(self, credentials: bytes) -> str:
        """See ``Login``."""
        return f"{token_advice(credentials)} It came from {self.issuer_url}."

    def forget(self, credentials: bytes) -> bool:
        """See ``Login``."""
        return _cached(self).forget(credentials)


class _CachedToken:
    """The token that all connections of a process share. One thread at a time fetches it."""

    def __init__(self, login: ByOAuth2) -> None:
        self._login = login
        self._lock = lock_of_process()
        self._token = b""
        self._use_until = 0.0  # by ``boot_time``
        self._is_reused = False

    def get(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise ConnectionLost(
                f"No token from {self._login.issuer_url} within {round(timeout_s, 1):g} s.",
                hint=_TOKEN_SERVER.hint,
            )
        try:
            asked_at, token = boot_time(), self._token
            self._is_reused = bool(token) and asked_at < self._use_until
            if not self._is_reused:
                token, life_s = _fetch(self._login, deadline)
                self._token, self._use_until = token, asked_at + life_s * USED_SHARE
            return token
        finally:
            self._lock.release()

    def forget(self, token: bytes) -> bool:
        # Without the lock, which a fetching thread holds. At worst a new token is dropped, too.
        if self._token != token:  # another thread dropped it
            return True
        self._token = b""
        return self._is_reused


token_cache: Final = lru_cache(maxsize=16)(_CachedToken)
_cache_lock: Final = lock_of_process()


def _cached(login: ByOAuth2) -> _CachedToken:
    with _cache_lock:  # lru_cache alone may create two objects for two concurrent first calls
        return token_cache(login)


# --- one token -----------------------------------------------------------------------------------


def _fetch(login: ByOAuth2, deadline: float) -> tuple[bytes, float]:
    """Return a new token and its life in seconds; 0 if the server does not say."""
    # The issuer names the token endpoint (RFC 8414), which receives client id and secret in a form
    # (RFC 6749, sections 2.3.1 and 4.4). The secret is sent only there: through TLS, and without
    # following redirects.
    client_id, secret = _read_client(login.credentials_file)
    metadata = _ask(login, login.issuer_url.rstrip("/") + _WELL_KNOWN, None, deadline)
    endpoint = metadata.get("token_endpoint")
    if not isinstance(endpoint, str) or _https_origin(endpoint) is None:
        raise ProtocolError(
            f"The token_endpoint that {login.issuer_url} names {_URL}.", hint=_TOKEN_SERVER.hint
        )
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "audience": login.audience,
        "scope": login.scope,
    }
    body = urlencode({name: value for name, value in form.items() if value}).encode()
    answer = _ask(login, endpoint, body, deadline)
    return checked_token(answer.get("access_token"), login.issuer_url), _life_s(answer)


def _read_client(file: str) -> tuple[str, str]:
    # Errors name only the exception's type: its text may contain them.
    hint = (
        "It must be a JSON object with client_id and client_secret, on the driver and each "
        "executor."
    )
    try:
        client = json.loads(Path(file).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unauthorized(
            f"oauth2_credentials_file {path_text(file)}: {type(error).__name__}.", hint=hint
        ) from None
    client = client if isinstance(client, dict) else {}
    client_id, secret = (client.get(name) for name in _CLIENT)
    if not (isinstance(client_id, str) and isinstance(secret, str) and client_id and secret):
        raise Unauthorized(
            f"oauth2_credentials_file {path_text(file)} has no {' or no '.join(_CLIENT)}.",
            hint=hint,
        )
    if client.get("type", _TYPE) != _TYPE:
        raise Unauthorized(
            f"oauth2_credentials_file {path_text(file)} has a type other than {_TYPE}."
        )
    return client_id, secret


def _ask(login: ByOAuth2, url: str, form: bytes | None, deadline: float) -> dict[str, Any]:
    origin = _https_origin(url)
    assert origin is not None
    parts = urlsplit(url)
    path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    headers = {"Accept": "application/json"}
    if form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    try:
        context = verifying_context(login.trust_certs_file)
    except OSError as error:
        raise ConfigurationError(
            f"TLS files can't be loaded: {error}.",
            hint="oauth2_trust_certs_file (or SSL_CERT_FILE) must be a PEM file.",
        ) from error
    request = Request("GET" if form is None else "POST", path, form, headers)
    answer = perform(request, _TOKEN_SERVER, origin, context, deadline)
    if answer.status != 200:
        raise _refusal(answer, origin)
    parsed = _object(answer.body)
    if parsed is None:
        raise ProtocolError(
            f"The token server's answer from {origin} is not a JSON object.",
            hint=_TOKEN_SERVER.hint,
        )
    return parsed


def _refusal(answer: Response, origin: Origin) -> EosError:
    text = f"The token server at {origin} answered {answer.status}"
    if 300 <= answer.status < 400:
        return ProtocolError(
            f"{text}, a redirect, which the client's secret must not follow.",
            hint="If you trust the redirect's target, set oauth2_issuer_url to it.",
        )
    if answer.status == 429 or answer.status >= 500:
        return ConnectionLost(f"{text}.", hint=_TOKEN_SERVER.hint)
    # RFC 6749, section 5.2: ``error`` is a single ASCII code. Only a known code is quoted: the rest
    # of the answer may repeat the secret, in any encoding.
    code = (_object(answer.body) or {}).get("error")
    if code in _ERROR_CODES:
        text += f" ({code})"
    return Unauthorized(
        f"{text}.",
        hint="Check oauth2_issuer_url, oauth2_audience, oauth2_scope and the client in "
        "oauth2_credentials_file.",
    )


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _life_s(answer: dict[str, Any]) -> float:
    said = answer.get("expires_in")
    if isinstance(said, str):  # some servers send a string
        with contextlib.suppress(ValueError):
            said = float(said)
    if isinstance(said, bool) or not isinstance(said, int | float) or not 0 < said < _MAX_LIFE_S:
        return 0.0
    return float(said)


def _https_origin(url: str) -> Origin | None:
    try:
        origin = Origin.parse(url)
    except ValueError:
        return None
    sound = url.isascii() and url.isprintable() and " " not in url
    return origin if origin.tls and sound else None
