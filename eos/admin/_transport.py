"""Requests to the admin REST API: redirects, failover, and where credentials may be sent."""

from __future__ import annotations

import http
import json
import re
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Never

from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    Retriable,
    TopicNotFound,
    Unauthorized,
    Unreachable,
    Untrusted,
    no_usable_host,
)
from eos.ids import TopicName
from eos.transport.address import Address
from eos.transport.auth import Auth
from eos.transport.http import HttpService, Origin, Request, Response, perform

ADMIN_API: Final = HttpService(
    "The admin API", "admin_url", "Check that the broker runs and that the admin URL is right."
)
_ALLOWED: Final = "admin_url must be http://host:port[,host:port] or https://host:port[,host:port]"
MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_DONE: Final = (http.HTTPStatus.OK, http.HTTPStatus.NO_CONTENT)
_REFUSED: Final = (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN)
_REFUSALS: Final = {401: Unauthorized, 403: Unauthorized, 404: TopicNotFound}
_REFUSAL_LETTERS: Final = 300  # Pulsar's messages are shorter
_MISSING_ABOVE: Final = (
    "Check the name. Tenants and namespaces are created by their administrators: `pulsar-admin "
    "namespaces create`."
)
_TLS_PORT: Final = 8443
_BROKERS: Final = "/admin/v2/brokers"
_VERSION: Final = f"{_BROKERS}/version"
_NUMBER: Final = re.compile(rb'^"?[0-9]+\.[0-9]+')
_CONFLICT: Final = http.HTTPStatus.CONFLICT  # the topic exists


def parse_admin_url(url: str) -> tuple[tuple[Origin, ...], str]:
    """Return the origins and the path (usually empty) of an admin URL,
    ``http://host:port[,host:port...][/path]``.

    Raises:
        ConfigurationError: the URL is not http(s), or contains a user, a password or a query.
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


class Transport:
    """Sends requests to the admin API at ``admin_url`` (``http://host:8080``).

    With several hosts (``http://host:8080,other:8080``) the next one is tried when a host can't be
    reached or is not an admin API, and when a read-only request gets no answer in its share of the
    time.

    **Where a token or password is sent.** To the hosts of ``admin_url``, each at its port; and,
    because brokers redirect to the owner of a topic, to the brokers that the admin API lists
    (``/admin/v2/brokers``, which requires a superuser), each at its port. On hosts that it lists,
    or that ``service`` names, also to the ports of ``admin_url``, and with TLS to 8443. A redirect
    to any other host or port is refused; so is one between TLS and plain HTTP. Proxies of the
    environment are not used.

    Args:
        service: the addresses of the cluster's service URL, if known.
        timeout_s: for each request, including redirects.

    Raises:
        ConfigurationError: ``admin_url`` is not http(s), or contains a user, password or query; or
            it is ``http://`` although ``service`` uses TLS, and would expose a token or password.
    """

    def __init__(
        self,
        admin_url: str,
        auth: Auth,
        *,
        timeout_s: float,
        service: Sequence[Address] = (),
    ) -> None:
        self._origins, self._path = parse_admin_url(admin_url)
        exposes = auth.exposes
        if exposes and not self._origins[0].tls and any(address.tls for address in service):
            raise ConfigurationError(
                f"admin_url is http:// although the service URL uses TLS: the {exposes} would be "
                "sent unencrypted.",
                hint="Use https:// and the brokers' web port for TLS (8443) in admin_url.",
            )
        self._auth = auth
        self._exposes = exposes
        self._timeout_s = timeout_s
        self._checked: set[Origin] = set()
        self._named = {(origin.host, origin.port) for origin in self._origins}
        self._ports = {origin.port for origin in self._origins}
        if self._origins[0].tls:
            # The list has one port of each broker, which may be the one without TLS.
            self._ports.add(_TLS_PORT)
        self._brokers = {address.host.lower() for address in service}

    def ask(
        self, method: str, path: str, body: object = None, *, also: int = http.HTTPStatus.OK
    ) -> Response:
        """Send a request to ``path`` (from ``/admin`` on) and return the complete answer.

        Args:
            body: is sent as JSON.
            also: another status, besides 200 and 204, that means success.

        Raises:
            TopicNotFound: 404.
            Unauthorized: 401 or 403.
            BrokerNotReady: any other status. A note on all of these has the broker's text.
            EosError: the API can't be reached.
        """
        data = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + self._timeout_s
        path_there = self._path + path
        origin, answer = self._first_answer(deadline, method, path_there, data)
        redirects = 0  # brokers redirect to the owner of a topic
        while answer.status in _REDIRECTS and answer.location is not None:
            redirects += 1
            if redirects > MAX_REDIRECTS:
                raise ConnectionLost(
                    f"The admin API redirects {path} more than {MAX_REDIRECTS} times."
                )
            origin, path_there = self._follow(origin, path_there, answer.location, deadline)
            answer = self._perform(origin, deadline, method, path_there, data)
        if answer.status not in (*_DONE, also):
            raise _refusal(path, answer)
        return answer

    def ask_json(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to ``path`` and return the parsed JSON; None for an empty answer.

        Raises:
            ProtocolError: the answer is not JSON.
            EosError: as ``ask``.
        """
        answer = self.ask(method, path, body)
        if not answer.body:
            return None
        try:
            return json.loads(answer.body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ProtocolError(f"The admin API's answer to {path} is not JSON.") from None

    def _first_answer(
        self, deadline: float, method: str, path: str, body: bytes | None = None
    ) -> tuple[Origin, Response]:
        """Return the answer of the first host of ``admin_url`` that gives one, and the host."""
        problems: dict[str, EosError] = {}
        origins = self._origins
        for number, origin in enumerate(origins):
            now = time.monotonic()
            # A host that does not answer leaves the others their share of the time.
            until = now + (deadline - now) / (len(origins) - number)
            try:
                self._check_is_admin_api(origin, until)
                answer = self._perform(origin, until, method, path, body)
            except (Retriable, ProtocolError, Untrusted) as error:
                was_asked = origin in self._checked and not isinstance(error, Unreachable)
                if was_asked and method != "GET":
                    raise  # the change may have been made
                problems[str(origin)] = error
                continue
            # The next request tries this host first, so a dead one costs its timeout only once.
            self._origins = (*origins[number:], *origins[:number])
            return origin, answer
        raise no_usable_host("admin_url", problems)

    def _check_is_admin_api(self, origin: Origin, deadline: float) -> None:
        # With several hosts: any HTTP server would answer, and its "not found" would say nothing
        # about the topic.
        if len(self._origins) > 1 and origin not in self._checked:
            answer = self._perform(origin, deadline, "GET", self._path + _VERSION)
            is_one = answer.status == http.HTTPStatus.OK and _NUMBER.search(answer.body)
            if not is_one and answer.status not in _REFUSED:
                # A server error may be temporary; any other status shows another kind of server.
                kind = BrokerNotReady if answer.status >= 500 else ProtocolError
                raise kind(
                    f"{origin} is not an admin API: it answered {answer.status} to {_VERSION}.",
                    hint="admin_url needs the brokers' web port (8080, 8443 for TLS).",
                )
        self._checked.add(origin)

    def _perform(
        self,
        origin: Origin,
        deadline: float,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        again: bool = True,
    ) -> Response:
        login = self._auth.login
        left_s = max(0.0, deadline - time.monotonic())
        credentials = login.credentials(left_s)
        authorization = login.http_authorization(credentials)
        context = self._auth.ssl_context() if origin.tls else None
        request = admin_request(method, path, body, authorization=authorization)
        answer = perform(request, ADMIN_API, origin, context, deadline)
        if authorization is None or answer.status in _DONE:
            return answer
        if answer.status == http.HTTPStatus.UNAUTHORIZED and login.forget(credentials) and again:
            return self._perform(origin, deadline, method, path, body, again=False)
        if answer.location is not None and not login.may_show(answer.location, credentials):
            raise ProtocolError("The admin API redirects to an address that has the credentials.")
        # The text of a refusal is shown, and a peer may repeat the credentials in it.
        text = login.redact(answer.body.decode("utf-8", "replace"), credentials)
        if not login.shows_refusals and answer.status in _REFUSED:
            text = ""
        return replace(answer, body=text.encode())

    def _follow(
        self, origin: Origin, path: str, location: str, deadline: float
    ) -> tuple[Origin, str]:
        try:
            url = urllib.parse.urljoin(f"{origin}{path}", location)
            parts = urllib.parse.urlsplit(url)
            target = Origin.parse(url)
            there = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        except ValueError:
            raise ProtocolError("The admin API redirects to an invalid URL.") from None
        if not there.isascii() or not there.isprintable() or " " in there:
            raise ProtocolError(f"The admin API redirects to an invalid path on {target}.")
        if target.tls != origin.tls:
            raise ProtocolError(f"The admin API redirects from {origin} to {target}.")
        if self._exposes and not self._is_trusted(target):
            self._trust_brokers(deadline)
            if not self._is_trusted(target):
                raise ProtocolError(
                    f"The admin API redirects to {target}, which is not a known broker: the "
                    f"{self._exposes} is not sent there.",
                    hint="List all brokers in admin_url, each with its port, or set it to a Pulsar "
                    "proxy.",
                )
        return target, there

    def _is_trusted(self, target: Origin) -> bool:
        # Its scheme is that of ``admin_url``.
        is_named = (target.host, target.port) in self._named
        return is_named or (target.host in self._brokers and target.port in self._ports)

    def _trust_brokers(self, deadline: float) -> None:
        try:
            _, answer = self._first_answer(deadline, "GET", self._path + _BROKERS)
            brokers = json.loads(answer.body) if answer.status == 200 else []
            named = [Origin.parse(f"http://{broker}") for broker in brokers]
        except (EosError, ValueError, TypeError, RecursionError):
            return  # the list requires a superuser
        self._named |= {(origin.host, origin.port) for origin in named}
        self._brokers |= {origin.host for origin in named}


def _refusal(path: str, answer: Response) -> EosError:
    cls = _REFUSALS.get(answer.status, BrokerNotReady)
    # In the message, which is shown everywhere; notes are not, and pickling loses them.
    text = answer.body.decode("utf-8", "replace").strip()
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            text = str(found.get("reason") or text)
    why = f": {text.splitlines()[0][:_REFUSAL_LETTERS].rstrip('.')}" if text else ""
    is_above = cls is TopicNotFound and text.startswith(("Tenant", "Namespace"))
    hint = _MISSING_ABOVE if is_above else None
    return cls(f"The admin API answered {answer.status} to {path}{why}.", hint=hint)


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def create_topic(transport: Transport, topic: TopicName, partitions: int = 0) -> None:
    """Create ``topic`` if it does not exist, even if its namespace forbids automatic creation.

    ``partitions``: 0 for an unpartitioned topic. Errors as ``Transport.ask``.
    """
    if partitions:
        transport.ask("PUT", topic_path(topic, "partitions"), partitions, also=_CONFLICT)
    else:
        transport.ask("PUT", topic_path(topic), also=_CONFLICT)


def set_retention(transport: Transport, topic: TopicName, minutes: int) -> None:
    """Retain acknowledged messages of ``topic`` for ``minutes``, without a size limit; -1: forever.

    Errors as ``Transport.ask``.
    """
    policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": -1}
    transport.ask("POST", topic_path(topic, "retention"), policy)


def path_of(topic: TopicName) -> str:
    """Return ``tenant/namespace/topic``, as the API's paths contain it."""
    return f"{topic.namespace_name}/{urllib.parse.quote(topic.local, safe='')}"


def topic_path(topic: TopicName, rest: str = "") -> str:
    """Return the path of ``topic``, or of ``rest`` below it."""
    return f"/admin/v2/persistent/{path_of(topic)}" + (f"/{rest}" if rest else "")
