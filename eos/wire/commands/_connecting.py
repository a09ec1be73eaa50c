"""The commands of connecting, authentication, keep-alive, and of topics: their partitions, brokers,
names and schemas."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from eos.wire.commands._common import SchemaInfo
from eos.wire.messages import WireMessage, field

PROTOCOL_VERSION: Final = 21


class FeatureFlags(WireMessage):
    supports_auth_refresh: bool | None = field(1, "bool", default=None)
    supports_partial_producer: bool | None = field(3, "bool", default=None)
    supports_topic_watchers: bool | None = field(4, "bool", default=None)
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
    feature_flags: FeatureFlags | None = field(4, FeatureFlags, default=None)


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


class LookupType(IntEnum):
    """The action that the answer to LOOKUP requests from the client."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


class TopicsMode(IntEnum):
    """Which topics of a namespace to list."""

    PERSISTENT = 0


class PartitionedMetadata(WireMessage):
    topic: str = field(1, "string")
    request_id: int = field(2, "uint64")
    metadata_auto_creation_enabled: bool | None = field(6, "bool", default=None)


class PartitionedMetadataResponse(WireMessage):
    partitions: int = field(1, "uint32", default=0)
    request_id: int = field(2, "uint64")
    response: int = field(3, "int32", default=0)
    error: int | None = field(4, "int32", default=None)
    message: str = field(5, "string", default="")


class Lookup(WireMessage):
    topic: str = field(1, "string")
    request_id: int = field(2, "uint64")
    authoritative: bool | None = field(3, "bool", default=None)
    advertised_listener_name: str | None = field(7, "string", default=None)


class LookupResponse(WireMessage):
    broker_url: str | None = field(1, "string", default=None)
    broker_url_tls: str | None = field(2, "string", default=None)
    response: int = field(3, "int32", default=int(LookupType.FAILED))
    request_id: int = field(4, "uint64")
    authoritative: bool = field(5, "bool", default=False)
    error: int | None = field(6, "int32", default=None)
    message: str = field(7, "string", default="")
    proxy_through_service_url: bool = field(8, "bool", default=False)


class GetTopics(WireMessage):
    """GET_TOPICS_OF_NAMESPACE."""

    request_id: int = field(1, "uint64")
    namespace: str = field(2, "string")
    mode: int | None = field(3, "int32", default=None)


class GetTopicsResponse(WireMessage):
    request_id: int = field(1, "uint64")
    topics: tuple[str, ...] = field(2, "string", default=())


class GetSchema(WireMessage):
    """Requests a topic's newest schema, or one version of it."""

    request_id: int = field(1, "uint64")
    topic: str = field(2, "string")
    schema_version: bytes | None = field(3, "bytes", default=None)


class GetSchemaResponse(WireMessage):
    request_id: int = field(1, "uint64")
    error: int | None = field(2, "int32", default=None)
    message: str = field(3, "string", default="")
    schema: SchemaInfo | None = field(4, SchemaInfo, default=None)
    schema_version: bytes = field(5, "bytes", default=b"")
