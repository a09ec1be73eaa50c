"""Log in by OAuth2 client credentials: a token server gives the tokens.

The flow and its file are those of Pulsar's own clients (``AuthenticationOAuth2``): the issuer's
``/.well-known/openid-configuration`` names the token endpoint (RFC 8414), which gets id and secret
in a form (RFC 6749, sections 2.3.1 and 4.4). The secret goes there and nowhere else: only through
TLS, and no redirect is followed. A process keeps one token for all of its connections.
"""

from __future__ import annotations

import contextlib
import json
import threading
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
from eos.transport._auth_methods import Login, checked_token, token_advice
from eos.transport._tls import verifying_context
from eos.transport.http import HttpService, Origin, Request, Response, perform
from eos.transport.secret_text import path_text

FETCH_TIMEOUT_S: Final = 10.0
"""For a token, however long its user could wait: a connection that is asked for a fresh one reads
nothing else meanwhile."""

KEPT_SHARE: Final = 0.9
"""Of its life a token is used; the rest is left for what is still under way with it."""

_MAX_LIFE_S: Final = 10**9
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_TOKEN_SERVER: Final = HttpService(
    "The token server",
    "oauth2_issuer_url",
    "Check that it runs and that oauth2_issuer_url is right.",
)
_URL: Final = "has to be https://host[:port][/path]"


@dataclass(frozen=True)
class ByOAuth2(Login):
    """By a token that ``issuer_url`` gives for the client id and secret in ``credentials_file``."""

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
            # Its text is not shown: it may be the secret.
            raise ConfigurationError(
                "oauth2_credentials_file must be a path, not the file's content and not a URL."
            )
        if _https_origin(self.issuer_url) is None or {"?", "#"} & set(self.issuer_url):
            # Its text may hold a password.
            raise ConfigurationError(
                f"oauth2_issuer_url {_URL}, without user, password and query: "
                "the client's secret does not go over the network in the clear."
            )

    def credentials(self, timeout_s: float) -> bytes:
        """A token that is not about to expire."""
        return _kept(self).get(min(timeout_s, FETCH_TIMEOUT_S))

    def advice(self, credentials: bytes) -> str:
        """See ``Login``."""
        return f"{token_advice(credentials)} It came from {self.issuer_url}."

    def forget(self, credentials: bytes) -> None:
        """See ``Login``."""
        _kept(self).forget(credentials)


class _KeptToken:
    """A process's token; one thread at a time fetches."""

    def __init__(self, login: ByOAuth2) -> None:
        self._login = login
        self._lock = threading.Lock()
        self._token = b""
        self._use_until = 0.0

    def get(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise ConnectionLost(
                f"No token from {self._login.issuer_url} within {round(timeout_s, 1):g} s.",
                hint=_TOKEN_SERVER.hint,
            )
        try:
            asked_at, token = time.monotonic(), self._token
            if not token or asked_at >= self._use_until:
                token, life_s = _fetch(self._login, deadline)
                self._token, self._use_until = token, asked_at + life_s * KEPT_SHARE
            return token
        finally:
            self._lock.release()

    def forget(self, token: bytes) -> None:
        # Without the lock: whoever fetches holds it. At worst a new token is dropped, too.
        if self._token == token:
            self._token = b""


kept_tokens: Final = lru_cache(maxsize=16)(_KeptToken)
_kept_lock: Final = threading.Lock()


def _kept(login: ByOAuth2) -> _KeptToken:
    with _kept_lock:  # else two threads may get two of them at the first time
        return kept_tokens(login)


# --- one token -----------------------------------------------------------------------------------


def _fetch(login: ByOAuth2, deadline: float) -> tuple[bytes, float]:
    """A new token, and for how many seconds it is good; 0 when nobody says."""
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
    """Client id and secret. The text of an error of JSON might show them: only its kind is told."""
    hint = "It is a JSON object with client_id and client_secret, on the driver and each executor."
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
            f"oauth2_credentials_file {path_text(file)} is of a type other than {_TYPE}."
        )
    return client_id, secret


_CLIENT: Final = ("client_id", "client_secret")
_TYPE: Final = "client_credentials"


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
            hint="oauth2_trust_certs_file (or SSL_CERT_FILE) has to be a PEM file.",
        ) from error
    request = Request("GET" if form is None else "POST", path, form, headers)
    answer = perform(request, _TOKEN_SERVER, origin, context, deadline)
    if answer.status != 200:
        raise _refusal(answer, origin)
    parsed = _object(answer.body)
    if parsed is None:
        raise ProtocolError(
            f"The token server's answer from {origin} is no JSON object.", hint=_TOKEN_SERVER.hint
        )
    return parsed


def _refusal(answer: Response, origin: Origin) -> EosError:
    text = f"The token server at {origin} answered {answer.status}"
    if 300 <= answer.status < 400:
        return ProtocolError(
            f"{text}, a redirect: the client's secret does not follow it.",
            hint="Set oauth2_issuer_url to where it leads, if you trust that.",
        )
    if answer.status == 429 or answer.status >= 500:
        return ConnectionLost(f"{text}.", hint=_TOKEN_SERVER.hint)
    # Of its words only the code: the rest may repeat the secret, in whatever encoding.
    code = (_object(answer.body) or {}).get("error")
    if code in _ERROR_CODES:
        text += f" ({code})"
    return Unauthorized(
        f"{text}.",
        hint="Check oauth2_issuer_url, oauth2_audience, oauth2_scope and the client in "
        "oauth2_credentials_file.",
    )


_ERROR_CODES: Final = (
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "access_denied",
)
"""RFC 6749, section 5.2; and what some servers say for a wrong audience."""


def _object(body: bytes) -> dict[str, Any] | None:
    """The JSON object in ``body``; None if it is none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _life_s(answer: dict[str, Any]) -> float:
    said = answer.get("expires_in")
    if isinstance(said, str):  # some servers quote it
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
