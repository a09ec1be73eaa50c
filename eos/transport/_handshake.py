"""The first words of a connection: both sides authenticate, and the peer may ask again."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from eos import __version__
from eos.errors import ConnectionLost, EosError, ProtocolError, Unauthorized
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.wire import commands

CLIENT_VERSION: Final = f"eos-python-{__version__}"
CHALLENGES: Final = 10
CHALLENGES_S: Final = 5.0
"""A broker asks for a fresh token once a minute, or once a second at most. Each time the user's
token function is called, so ``CHALLENGES`` within ``CHALLENGES_S`` is all that a peer gets."""

ANSWER_S: Final = 30.0
"""For the answer: a broker hangs up when none has come before it asks again."""


class Greeting:
    """Says on one connection who we are, as often as a broker has reason to ask."""

    def __init__(self, auth: Auth) -> None:
        self._login = auth.login
        self._sent = b""
        self._asked: deque[float] = deque(maxlen=CHALLENGES)

    def connect(self, proxy_to: str | None, *, timeout_s: float) -> commands.Connect:
        """CONNECT, with fresh authentication data.

        Raises:
            EosError: the data can't be had.
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

    def refusal(self, error: EosError) -> EosError:
        """``error``, with which the peer answered CONNECT, to raise; a peer may repeat in it what
        it was sent, and that is not sent again where there is other data to be had."""
        hint = error.hint
        if isinstance(error, Unauthorized):
            self._login.forget(self._sent)
            hint = self._login.advice(self._sent)
        return type(error)(self._shown(error.message), hint=hint)

    def words(self, text: str) -> str:
        """What the peer says, without what it was sent."""
        return self._login.hidden(text, self._sent)

    def _shown(self, message: str) -> str:
        if self._login.shows_words:
            return message
        ours, bracket, _ = message.partition(" (")  # behind it stand the peer's words
        return f"{ours}." if bracket else ours

    def answer(self) -> commands.AuthResponse:
        """AUTH_RESPONSE with fresh authentication data.

        Raises:
            EosError: the data can't be had.
            ProtocolError: the peer asks more often than any broker does.
        """
        now = time.monotonic()
        if len(self._asked) == CHALLENGES and now - self._asked[0] < CHALLENGES_S:
            raise ProtocolError(
                f"The peer asked for authentication {CHALLENGES + 1} times in "
                f"{CHALLENGES_S:g} s: no broker does."
            )
        self._asked.append(now)
        self._login.forget(self._sent)  # the broker's clock is the one that counts
        self._sent = self._login.credentials(ANSWER_S)
        return commands.AuthResponse(
            client_version=CLIENT_VERSION,
            protocol_version=commands.PROTOCOL_VERSION,
            response=commands.AuthData(
                auth_method_name=self._login.method_name, auth_data=self._sent
            ),
        )


def check_first_bytes(data: bytes, address: Address) -> None:
    """Tell a peer by the first bytes that it sent; ``b""``: it left without a word.

    Raises:
        ProtocolError: it speaks HTTP or TLS.
        ConnectionLost: it left.
    """
    if not data:
        other = "pulsar://, with the plain port" if address.tls else "pulsar+ssl://, with TLS"
        raise ConnectionLost(
            f"{address} closed the connection before it let us in.",
            hint=f"Check the broker's log, and the port: does it want {other}?",
        )
    if data.startswith(b"HTTP"):
        raise ProtocolError(
            f"{address} is an HTTP port.",
            hint="The service URL needs the broker's binary port (6650); the admin API's belongs "
            "into admin_url.",
        )
    if data[:2] == b"\x15\x03":  # a TLS alert: the answer to what is no TLS
        raise ProtocolError(
            f"{address} is a port for TLS.", hint="Use pulsar+ssl:// in the service URL."
        )
