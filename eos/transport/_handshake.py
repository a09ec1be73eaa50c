"""Authenticates a connection: CONNECT, and answers to later authentication challenges."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final, TypeVar

from eos import __version__
from eos.errors import ConnectionLost, EosError, ProtocolError, RequestTimeout, Unauthorized
from eos.transport._auth_methods import Login
from eos.transport.address import Address
from eos.wire import commands
from eos.wire.messages import WireMessage

CommandT = TypeVar("CommandT", bound=WireMessage)
T = TypeVar("T")

CLIENT_VERSION: Final = f"eos-python-{__version__}"

# A peer may send so many challenges in so many seconds, as each one calls the user's token
# function. Brokers challenge once a minute, or once a second at most.
MAX_CHALLENGES: Final = 10
CHALLENGES_S: Final = 5.0
# No real broker has a smaller limit.
MIN_MESSAGE_BYTES: Final = 4096
# Frames of this size are buffered: a peer must not decide alone how much memory that takes.
MAX_MESSAGE_BYTES: Final = 256 * 1024 * 1024
# A broker that has no answer by its next challenge disconnects.
RESPONSE_TIMEOUT_S: Final = 30.0

_NOT_SHOWN: Final = "(not shown: it repeats the credentials)"  # no address


class StaleToken(Unauthorized):
    """The peer refuses a cached token; it may accept a new one."""


def with_fresh_token(connect: Callable[[float], T], timeout_s: float) -> T:
    """Return ``connect(timeout_s)``; try once more if the peer refuses a cached token."""
    deadline = time.monotonic() + timeout_s
    with suppress(StaleToken):
        return connect(timeout_s)
    return connect(max(0.0, deadline - time.monotonic()))


class Authenticator:
    """Authenticates one connection, and keeps its credentials out of error messages."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._sent = b""
        self._challenges: deque[float] = deque(maxlen=MAX_CHALLENGES)

    def connect(self, proxy_to: str | None, *, timeout_s: float) -> commands.Connect:
        """Return CONNECT with current credentials.

        Raises:
            EosError: the credentials are unavailable.
        """
        self._sent = self._login.credentials(timeout_s)
        method = self._login.method_name
        return commands.Connect(
            client_version=CLIENT_VERSION,
            protocol_version=commands.PROTOCOL_VERSION,
            auth_method_name=method,
            auth_data=self._sent if method else None,
            proxy_to_broker_url=proxy_to,
            feature_flags=commands.FeatureFlags(
                supports_auth_refresh=True, supports_metadata_without_auto_creation=True
            ),
        )

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Around the request CONNECT: raise its errors as those of a connection attempt.

        Raises:
            ConnectionLost: no answer in time.
            EosError: the peer refuses; its text is without the credentials.
        """
        try:
            yield
        except RequestTimeout as error:  # no request was sent yet, so no outcome is in doubt
            raise ConnectionLost(error.message) from None
        except EosError as error:
            raise self._refusal(error) from None

    def _refusal(self, error: EosError) -> EosError:
        hint, kind = error.hint, type(error)
        if isinstance(error, Unauthorized):
            kind = StaleToken if self._login.forget(self._sent) else kind
            hint = self._login.advice(self._sent)
        return kind(self._shown(error.message), hint=hint)

    def redacted(self, answer: CommandT) -> CommandT:
        """Return ``answer`` without the credentials, if its text or an address has them."""
        shown = {}
        if text := getattr(answer, "message", ""):
            shown["message"] = self._login.redact(text, self._sent)
        if isinstance(answer, commands.LookupResponse):
            for name in ("broker_url", "broker_url_tls"):
                address = getattr(answer, name)
                if address and not self._login.may_show(address, self._sent):
                    shown[name] = _NOT_SHOWN
        return replace(answer, **shown) if shown else answer  # type: ignore[type-var]

    def _shown(self, message: str) -> str:
        if self._login.shows_refusals:
            return message
        own_text, bracket, _ = message.partition(" (")  # the peer's text is in parentheses
        return f"{own_text}." if bracket else own_text

    def challenge_response(self) -> commands.AuthResponse:
        """Return AUTH_RESPONSE with fresh credentials.

        Raises:
            EosError: the credentials are unavailable.
            ProtocolError: the peer challenges more often than any broker does.
        """
        now = time.monotonic()
        if len(self._challenges) == MAX_CHALLENGES and now - self._challenges[0] < CHALLENGES_S:
            raise ProtocolError(
                f"The peer asked for authentication {MAX_CHALLENGES + 1} times in "
                f"{CHALLENGES_S:g} s, which no broker does."
            )
        self._challenges.append(now)
        self._login.forget(self._sent)  # expiry is decided by the broker's clock
        self._sent = self._login.credentials(RESPONSE_TIMEOUT_S)
        return commands.AuthResponse(
            client_version=CLIENT_VERSION,
            protocol_version=commands.PROTOCOL_VERSION,
            response=commands.AuthData(
                auth_method_name=self._login.method_name, auth_data=self._sent
            ),
        )


def checked_message_limit(connected: commands.Connected, address: Address) -> int:
    """Return the size limit of messages that the peer reports, at most ``MAX_MESSAGE_BYTES``.

    Raises:
        ProtocolError: it is too small for a broker.
    """
    if connected.max_message_size < MIN_MESSAGE_BYTES:
        raise ProtocolError(
            f"{address} reports a maximum message size of {connected.max_message_size} "
            "bytes, which is too small for a broker."
        )
    return min(connected.max_message_size, MAX_MESSAGE_BYTES)


def check_first_bytes(data: bytes, address: Address) -> None:
    """Check that the first bytes from a peer can be Pulsar's; ``b""``: it sent none and closed.

    Raises:
        ProtocolError: the peer speaks HTTP or TLS.
        ConnectionLost: the peer closed the connection.
    """
    if not data:
        other = "pulsar://, with the plain port" if address.tls else "pulsar+ssl://, with TLS"
        raise ConnectionLost(
            f"{address} closed the connection during the handshake.",
            hint=f"Check the broker's log, and the port: does it need {other}?",
        )
    if data.startswith(b"HTTP"):
        raise ProtocolError(
            f"{address} is an HTTP port.",
            hint="Use the broker's binary port (6650) in the service URL, and the HTTP port in "
            "admin_url.",
        )
    if data[:2] == b"\x15\x03":  # a TLS alert, the answer to a client without TLS
        raise ProtocolError(f"{address} is a TLS port.", hint="Use pulsar+ssl:// for this port.")
