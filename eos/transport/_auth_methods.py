"""Authentication methods: their credentials for brokers, and their header for the admin API."""

from __future__ import annotations

import base64
import json
import re
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, Protocol

from eos.errors import ConfigurationError, Unauthorized
from eos.transport.secret_text import MAX_TEXT, in_address, path_text, repeats


class Credentials(Protocol):
    """How a client proves its identity to brokers, and checks theirs; ``Auth`` has it."""

    @property
    def login(self) -> Login:
        """The authentication method."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context that verifies the broker's certificate and host name."""


class Login(ABC):
    """One authentication method. A repr never shows secrets."""

    method_name: ClassVar[str | None]  # Pulsar's
    # The secret that ``credentials`` contain, in one word for messages; None: no secret.
    exposes: ClassVar[str | None] = None
    # Whether the text of a peer's refusal may be shown, after ``redact``.
    shows_refusals: ClassVar[bool] = True

    @abstractmethod
    def credentials(self, timeout_s: float) -> bytes:
        """Return the current data for CONNECT and AUTH_RESPONSE.

        Raises:
            Unauthorized: the credentials are unavailable or malformed; the error does not contain
                them.
            EosError: a token server gave no usable answer within ``timeout_s``.
        """

    def forget(self, credentials: bytes) -> bool:  # noqa: ARG002 - most methods cache nothing
        """Drop ``credentials`` from any cache: a peer has rejected them, or asks for new ones.

        Return whether they were cached, so that new ones may be accepted.
        """
        return False

    def http_authorization(self, credentials: bytes) -> str | None:
        """Return the value of the ``Authorization`` header; None: no header."""
        return f"Bearer {credentials.decode()}" if self.exposes else None

    @abstractmethod
    def advice(self, credentials: bytes) -> str:
        """Return a hint for when a peer has rejected ``credentials``, without secrets."""

    def redact(self, text: str, credentials: bytes) -> str:
        """Return a peer's ``text`` without ``credentials``; "" if it repeats them otherwise."""
        if not credentials:
            return text
        secret = credentials.decode()
        text = text[:MAX_TEXT].replace(secret, f"<{self.exposes}>")
        return "" if repeats(text, secret) else text

    def secrets(self, credentials: bytes) -> tuple[str, ...]:
        """Return the texts in ``credentials`` that must not be shown."""
        return (credentials.decode(),) if credentials else ()

    def may_show(self, address: str, credentials: bytes) -> bool:
        """Whether errors may name a peer's ``address``: it does not repeat ``credentials``."""
        return not in_address(address, self.secrets(credentials))


class Anonymous(Login):
    """No authentication."""

    method_name: ClassVar[str | None] = None

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """Return no data."""
        return b""

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "The broker requires authentication: set the options for it."


class ByCertificate(Anonymous):
    """By the client's certificate, which the TLS handshake has already sent."""

    method_name = "tls"

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "Check that the broker accepts TLS authentication and trusts this certificate."


@dataclass(frozen=True)
class ByToken(Login):
    """By a token, a function that returns one, or a file that contains one."""

    token: str | Callable[[], str] | None = field(repr=False)
    token_file: str | None

    method_name = "token"
    exposes = "token"

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """Return the current token. The running time of a token function is not limited."""
        source = "the token function" if callable(self.token) else "token"
        if self.token_file is not None:
            source = f"token_file {path_text(self.token_file)}"
        token: object
        try:
            if self.token_file is not None:
                token = Path(self.token_file).read_text(encoding="utf-8")
            else:
                token = self.token() if callable(self.token) else self.token
        except Exception as error:
            raise Unauthorized(f"No token from {source}: {type(error).__name__}.") from None
        return checked_token(token, source)

    def advice(self, credentials: bytes) -> str:
        """See ``Login``."""
        return token_advice(credentials)


def token_advice(token: bytes) -> str:
    """Return a hint with the expiry of a JSON web token (claim ``exp``, RFC 7519)."""
    advice = "Check the token."
    try:
        claims = token.split(b".")[1]
        exp = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["exp"]
        until = datetime.fromtimestamp(exp, UTC)
    except Exception:  # another kind of token, or one without expiry
        return advice
    return f"{advice} It expires at {until:{_TIME}}; it is now {datetime.now(UTC):{_TIME}}."


_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def checked_token(token: object, source: str) -> bytes:
    """Return ``token`` as it is sent.

    Raises:
        Unauthorized: ``token`` is not a token.
    """
    token = token.strip() if isinstance(token, str) else ""
    # Checked here to keep it out of error messages: http.client quotes an invalid header.
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise Unauthorized(f"The value from {source} is not a token: it must be printable ASCII.")
    return token.encode()


@dataclass(frozen=True)
class ByPassword(Login):
    """By user name and password."""

    user: str
    password: str = field(repr=False)

    method_name = "basic"
    exposes = "password"
    shows_refusals = False

    def __post_init__(self) -> None:
        for name, text in (("basic_user", self.user), ("basic_password", self.password)):
            # Pulsar's provider splits at every colon and accepts exactly two parts.
            if not isinstance(text, str) or not text or ":" in text or not text.isprintable():
                raise ConfigurationError(
                    f"{name} must be non-empty text without colons or control characters."
                )

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """Return ``user:password``."""
        return f"{self.user}:{self.password}".encode()

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "Check basic_user and basic_password."

    def redact(self, text: str, credentials: bytes) -> str:
        """Return ``text``, or "" if it contains the password; the user's name is no secret."""
        # To replace a short password would reveal it by its position in known text.
        text = text[:MAX_TEXT]
        return "" if repeats(text, *self.secrets(credentials)) else text

    def secrets(self, credentials: bytes) -> tuple[str, ...]:
        """See ``Login``."""
        return self.password, base64.b64encode(credentials).decode()

    def http_authorization(self, credentials: bytes) -> str:
        """See ``Login``."""
        return f"Basic {base64.b64encode(credentials).decode()}"
