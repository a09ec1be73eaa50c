"""Broker addresses, and service URLs, which list them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from eos.errors import ConfigurationError
from eos.transport.secret_text import is_secret_like

_SCHEMES: Final = {"pulsar": (False, 6650), "pulsar+ssl": (True, 6651)}
_HOST_PORT: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True)
class Address:
    """The address of one broker or proxy, and whether to use TLS."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'pulsar+ssl' if self.tls else 'pulsar'}://{host}:{self.port}"

    @property
    def host_port(self) -> str:
        """``host:port``, the form of ``proxy_to_broker_url``."""
        return str(self).split("://", 1)[1]


def parse_service_url(url: str) -> tuple[Address, ...]:
    """Return the addresses of ``pulsar://host[:port][,host[:port]...]`` (or ``pulsar+ssl://``).

    Raises:
        ConfigurationError: the URL is malformed, or contains a user, a password or a query. The
            error never quotes the text before an ``@`` or after a ``?``.
    """
    if "@" in url:
        raise ConfigurationError(
            "service_url must not contain a user or password: use the authentication options."
        )
    if "?" in url or "#" in url:
        raise ConfigurationError(
            "service_url must be pulsar://host:port without a query: use the option token."
        )
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ConfigurationError(
            "service_url must begin with pulsar:// or pulsar+ssl://"
            + (f", not {scheme[:20]!r}." if separator and not is_secret_like(scheme) else ".")
        )
    tls, default_port = _SCHEMES[scheme]
    addresses = []
    for part in rest.rstrip("/").split(","):
        match = _HOST_PORT.fullmatch(part.strip())
        port = int(match["port"] or default_port) if match else 0
        if match is None or not 0 < port < 65536:
            raise ConfigurationError(f"service_url: {part[:100]!r} is not host:port.")
        addresses.append(Address(match["host"].strip("[]"), port, tls))
    return tuple(addresses)
