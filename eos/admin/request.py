"""The admin REST API: its URL, its name in errors, and its HTTP requests."""

from __future__ import annotations

from typing import Final

from eos.errors import ConfigurationError
from eos.transport.http import HttpService, Origin, Request

ADMIN_API: Final = HttpService(
    "The admin API", "admin_url", "Check that the broker runs and that the admin URL is right."
)
_ALLOWED: Final = "admin_url must be http://host:port[,host:port] or https://host:port[,host:port]"


def parse_admin_url(url: str) -> tuple[tuple[Origin, ...], str]:
    """Return the origins and the path (usually empty) of an admin URL,
    ``http://host:port[,host:port...][/path]``.

    Raises:
        ConfigurationError: the URL is not http(s), or contains a user, a password, a query or a
            fragment, none of which is quoted.
    """
    if "@" in url:
        raise ConfigurationError(f"{_ALLOWED}, without credentials.")
    if "?" in url or "#" in url:
        raise ConfigurationError(f"{_ALLOWED}, without a query: use the option token.")
    scheme, _, rest = url.partition("://")
    hosts, slash, path = rest.partition("/")
    try:
        origins = tuple(Origin.parse(f"{scheme}://{host.strip()}") for host in hosts.split(","))
    except ValueError:  # its text may contain the URL
        raise ConfigurationError(f"{_ALLOWED}.") from None
    return origins, f"{slash}{path}".rstrip("/")


def admin_request(
    method: str, path: str, body: bytes | None = None, *, authorization: str | None
) -> Request:
    """Return a request to the admin API; ``body`` is JSON, ``authorization`` a header's value."""
    headers = {} if authorization is None else {"Authorization": authorization}
    if method != "GET":
        headers["Content-Type"] = "application/json"  # the broker requires it even without a body
    return Request(method, path, body, headers)
