"""The commands of connecting, authentication and keep-alive."""

from __future__ import annotations

from typing import Final

from eos.wire.messages import WireMessage, field

PROTOCOL_VERSION: Final = 21


class FeatureFlags(WireMessage):
    supports_auth_refresh: bool | None = field(1, "bool", default=None)
    supports_partial_producer: bool | None = field(3, "bool", default=None)
    supports_metadata_without_auto_creation: bool | None = field(5, "bool", default=None)


class Connect(WireMessage):
    client_version: str = field(1, "string")
    auth_data: bytes | None = field(3, "bytes", default=None)
    protocol_version: int | None = field(4, "int32", default=None)
    auth_method_name: str | None = field(5, "string", default=None)
    proxy_to_broker_url: str | None = field(6, "string", default=None)
    feature_flags: FeatureFlags | None = field(10, FeatureFlags, default=None)

    def __repr__(self) -> str:
        """Return a text without ``auth_data``, which is a secret."""
        return f"Connect(auth_method_name={self.auth_method_name!r})"


class Connected(WireMessage):
    server_version: str = field(1, "string")
    protocol_version: int = field(2, "int32", default=0)
    max_message_size: int = field(3, "int32", default=5 * 1024 * 1024)


class AuthData(WireMessage):
    auth_method_name: str | None = field(1, "string", default=None)
    auth_data: bytes | None = field(2, "bytes", default=None)

    def __repr__(self) -> str:
        """Return a text without ``auth_data``, which is a secret."""
        return f"AuthData(auth_method_name={self.auth_method_name!r})"


class AuthChallenge(WireMessage):
    server_version: str | None = field(1, "string", default=None)
    challenge: AuthData | None = field(2, AuthData, default=None)
    protocol_version: int | None = field(3, "int32", default=None)


class AuthResponse(WireMessage):
    client_version: str | None = field(1, "string", default=None)
    response: AuthData | None = field(2, AuthData, default=None)
    protocol_version: int | None = field(3, "int32", default=None)


class Ping(WireMessage):
    pass


class Pong(WireMessage):
    pass
