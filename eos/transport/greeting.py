"""What a client says about itself: in CONNECT, and when the broker asks again."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from eos.transport.security import Security
from eos.wire import commands


def connect_command(security: Security, proxy_to: str | None) -> commands.Connect:
    """CONNECT, with fresh authentication data.

    Raises:
        Unauthorized: the token can't be had.
    """
    method = security.method_name
    return commands.Connect(
        client_version=_client_version(),
        protocol_version=commands.PROTOCOL_VERSION,
        auth_method_name=method,
        auth_data=security.auth_data() if method else None,
        proxy_to_broker_url=proxy_to,
        feature_flags=commands.FeatureFlags(
            supports_auth_refresh=True, supports_metadata_without_auto_creation=True
        ),
    )


def auth_response(security: Security) -> commands.AuthResponse:
    """The answer to AUTH_CHALLENGE, with fresh authentication data.

    Raises:
        Unauthorized: the token can't be had.
    """
    return commands.AuthResponse(
        client_version=_client_version(),
        protocol_version=commands.PROTOCOL_VERSION,
        response=commands.AuthData(
            auth_method_name=security.method_name, auth_data=security.auth_data()
        ),
    )


def _client_version() -> str:
    try:
        return f"eos-python-{version('eos')}"
    except PackageNotFoundError:  # run from a source tree or a zip
        return "eos-python"
