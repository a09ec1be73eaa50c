"""Where a cluster is, and names that its operators prescribe to clients."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from eos.errors import ConfigurationError, Unauthorized
from eos.transport.secret_text import is_secret_like

_SCHEMES: Final = {"pulsar": (False, 6650), "pulsar+ssl": (True, 6651)}
_HOST_PORT: Final = re.compile(
    r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?"
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
        ConfigurationError: the URL is malformed, or contains a user, a password or a query.
    """
    # The errors never quote the text before an ``@`` or after a ``?``.
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
        if match is None or not 0 < port < 65536 or not _is_ipv6(match["ipv6"] or "::"):
            is_ipv6 = (match is None and part.count(":") > 1) or "[" in part
            raise ConfigurationError(
                f"service_url: {part[:100]!r} is not host:port.",
                hint="An IPv6 address is written in brackets: [::1]:6650." if is_ipv6 else None,
            )
        addresses.append(Address(match["ipv6"] or match["name"], port, tls))
    return tuple(addresses)


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


# For a refused subscription; readers have a subscription, too.
PREFIX_HINT: Final = (
    f"{Unauthorized.default_hint} A namespace with subscriptionAuthMode=Prefix admits only "
    "subscriptions that begin with the name of the role: set subscription_prefix "
    "(subscriptionPrefix, --subscription-prefix) to it."
)


@dataclass(frozen=True)
class ClusterRules:
    """Names that the cluster's operators prescribe.

    Args:
        listener_name: the advertised listener that this client can reach, if the brokers have
            several (``advertisedListeners``); None: the internal one.
        subscription_prefix: the prefix of every subscription that the user has not named; for
            namespaces with ``subscriptionAuthMode=Prefix``, the role's name.

    Raises:
        ConfigurationError: a name is blank or not printable.
    """

    listener_name: str | None = None
    subscription_prefix: str | None = None

    def __post_init__(self) -> None:
        for name in ("listener_name", "subscription_prefix"):
            value = getattr(self, name)
            if value is not None and not (value.strip() and value.isprintable()):
                raise ConfigurationError(f"{name} must be a name, not {value!r}.")

    def subscription(self, name: str) -> str:
        """Return ``name`` with the prefix and a dash in front, unless it has them already."""
        if self.subscription_prefix is None:
            return name
        prefix = f"{self.subscription_prefix.removesuffix('-')}-"
        return name if name.startswith(prefix) else prefix + name
