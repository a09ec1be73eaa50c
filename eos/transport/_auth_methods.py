"""Ways to log in: what each one sends to a broker, and as a header to its admin API.

A broker asks again when what it was sent has expired; then ``forget`` comes first.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from eos.errors import ConfigurationError, Unauthorized
from eos.transport.secret_text import MAX_TEXT, path_text, repeats


class Login(ABC):
    """One way to log in. Secrets never show in a repr."""

    method_name: ClassVar[str | None]
    """Pulsar's name of it."""

    exposes: ClassVar[str | None] = None
    """What whoever sees ``credentials`` has got, in a word; None: nothing."""

    shows_words: ClassVar[bool] = True
    """Whether what a peer says when it refuses us may be shown, as ``hidden`` leaves it."""

    @abstractmethod
    def credentials(self, timeout_s: float) -> bytes:
        """What CONNECT and AUTH_RESPONSE carry, as fresh as can be had.

        Raises:
            Unauthorized: they can't be had; nothing of them is in the error.
            EosError: a token server gave no answer that can be used in ``timeout_s``.
        """

    def forget(self, credentials: bytes) -> None:  # noqa: B027 - most keep nothing
        """The peer does not take ``credentials``, or not any more: don't keep them."""

    def http_authorization(self, credentials: bytes) -> str | None:
        """The header ``Authorization`` for them; None for none."""
        return f"Bearer {credentials.decode()}" if self.exposes else None

    @abstractmethod
    def advice(self, credentials: bytes) -> str:
        """What to look at when a peer has refused ``credentials``; nothing secret."""

    def hidden(self, text: str, credentials: bytes) -> str:
        """``text`` of a peer without what the peer was sent; nothing of it where it repeats that in
        part, or in another form."""
        if not credentials:
            return text
        secret = credentials.decode()
        text = text[:MAX_TEXT].replace(secret, f"<{self.exposes}>")
        return "" if repeats(text, secret) else text


class Anonymous(Login):
    """Without authentication."""

    method_name = None

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """Nothing."""
        return b""

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "The broker wants its clients to log in: give the options for that."


class ByCertificate(Login):
    """By the client's certificate, which TLS has shown already."""

    method_name = "tls"

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """Nothing."""
        return b""

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "Check that the broker lets clients log in by certificate, and trusts this one."


@dataclass(frozen=True)
class ByToken(Login):
    """By a token, a function that returns one, or a file that holds one."""

    token: str | Callable[[], str] | None = field(repr=False)
    token_file: str | None

    method_name = "token"
    exposes = "token"

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """The current token. A function's time is not limited."""
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
    """What a JSON web token says of its end (claim ``exp``, RFC 7519): no broker tells."""
    advice = "Check the token."
    try:
        claims = token.split(b".")[1]
        exp = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["exp"]
        until = datetime.fromtimestamp(exp, UTC)
    except Exception:  # it is another kind of token, or never ends
        return advice
    return f"{advice} It is good until {until:{_TIME}}; here it is {datetime.now(UTC):{_TIME}}."


_TIME: Final = "%Y-%m-%d %H:%M:%S UTC"


def checked_token(token: object, source: str) -> bytes:
    """``token`` as it is sent.

    Checked here, where the text can be kept out of the error: http.client shows a header that it
    does not like.

    Raises:
        Unauthorized: it is none.
    """
    token = token.strip() if isinstance(token, str) else ""
    if not re.fullmatch(r"[\x21-\x7e]+", token):
        raise Unauthorized(f"What {source} gives is no token: printable ASCII is expected.")
    return token.encode()


@dataclass(frozen=True)
class ByPassword(Login):
    """By user name and password."""

    user: str
    password: str = field(repr=False)

    method_name = "basic"
    exposes = "password"
    shows_words = False

    def __post_init__(self) -> None:
        for name, text in (("basic_user", self.user), ("basic_password", self.password)):
            # A colon: Pulsar's own provider splits at each of them, and takes two parts only.
            if not isinstance(text, str) or not text or ":" in text or not text.isprintable():
                raise ConfigurationError(
                    f"{name} has to be text without a colon or control characters, not empty."
                )

    def credentials(self, timeout_s: float) -> bytes:  # noqa: ARG002
        """``user:password``."""
        return f"{self.user}:{self.password}".encode()

    def advice(self, credentials: bytes) -> str:  # noqa: ARG002
        """See ``Login``."""
        return "Check basic_user and basic_password."

    def hidden(self, text: str, credentials: bytes) -> str:
        """``text``, or nothing of it if the password is there: so short a word as it may be would
        show by the gap where it was. The user's name is no secret."""
        text = text[:MAX_TEXT]
        secrets = (self.password, base64.b64encode(credentials).decode())
        return "" if repeats(text, *secrets) else text

    def http_authorization(self, credentials: bytes) -> str:
        """See ``Login``."""
        return f"Basic {base64.b64encode(credentials).decode()}"
