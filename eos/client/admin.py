"""The few things that only Pulsar's admin REST API does."""

from __future__ import annotations

import http
import json
import time
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, Final, Never, TypeVar

from eos.client.admin_http import Answer, Origin, ask, parse_admin_url
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    ProtocolError,
    TopicNotFound,
    Unauthorized,
    printable,
)
from eos.ids import TopicName, TxnId
from eos.transport.address import Address
from eos.transport.security import Security

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_REFUSALS: Final = {401: Unauthorized, 403: Unauthorized, 404: TopicNotFound}
_CONFLICT: Final = http.HTTPStatus.CONFLICT  # it is there already
_BROKERS: Final = "/admin/v2/brokers"

T = TypeVar("T")


class AdminClient:
    """Asks the admin API at ``admin_url`` (``http://host:8080``), as the same principal.

    **Where a token goes.** To the host of ``admin_url``; and, since brokers redirect to whichever
    of them owns a topic, to hosts that ``service`` names or that the admin API lists as its
    brokers (``/admin/v2/brokers``, which takes a superuser). A redirect to any other host is
    refused; so is one that leaves TLS or comes to it. No proxy of the environment is used.

    Args:
        service: the addresses of the cluster's service URL, where they are known.
        timeout_s: for each question, redirects included.

    Raises:
        ConfigurationError: ``admin_url`` is not http(s), carries a user, password or query; or it
            is ``http://`` although ``service`` is for TLS, and there is a token that would show.
    """

    def __init__(
        self,
        admin_url: str,
        security: Security,
        *,
        timeout_s: float,
        service: Sequence[Address] = (),
    ) -> None:
        self._origin, self._path = parse_admin_url(admin_url)
        has_token = security.method_name == "token"
        if has_token and not self._origin.tls and any(address.tls for address in service):
            raise ConfigurationError(
                "admin_url is http://, and the service URL is for TLS: the token would go over "
                "the network in the clear.",
                hint="Use https:// and the brokers' web port for TLS (8443) in admin_url.",
            )
        self._security = security
        self._has_token = has_token
        self._timeout_s = timeout_s
        self._trusted = {self._origin.host, *(address.host.lower() for address in service)}

    def is_pinned_by(self, topic: TopicName, txn: TxnId) -> bool:
        """Whether the transaction buffer of ``topic`` counts ``txn`` as open, with messages.

        For a transaction that has ended this means: it holds back every reader of the topic.
        Source: ``transactionInBufferStats`` answers ``{"startPosition": ..., "aborted": false}``
        for it (measured on 4.2.4).

        Raises:
            EosError: the API can't be asked.
        """
        name = topic_path(topic)
        path = f"/admin/v3/transactions/transactionInBufferStats/{name}/{txn.most}/{txn.least}"
        try:
            return self.read(path, _is_open_in_buffer)
        except TopicNotFound:
            return False

    def create_topic(self, topic: TopicName) -> None:
        """Create ``topic``, unpartitioned, whatever its namespace lets clients create.

        Raises:
            Unauthorized: the role may not.
            EosError: the API can't be asked, or refuses.
        """
        self._ask(f"/admin/v2/persistent/{topic_path(topic)}", "PUT", also=_CONFLICT)

    def read(self, path: str, shape: Callable[[Any], T]) -> T:
        """What ``shape`` makes of the JSON that ``path`` (from ``/admin`` on) answers with.

        Args:
            shape: raises ValueError when the answer is not what Pulsar gives.

        Raises:
            TopicNotFound: 404.
            Unauthorized: 401 or 403.
            ProtocolError: the answer is no JSON, or has another shape.
            EosError: the API can't be asked.
        """
        try:
            answer = json.loads(self._ask(path).body, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ProtocolError(f"The admin API's answer to {path} is not JSON.") from None
        try:
            return shape(answer)
        except ValueError as error:
            raise ProtocolError(
                f"The admin API's answer to {path} is not one of Pulsar's: {str(error)[:200]}."
            ) from None

    def text(self, path: str) -> tuple[str, str | None]:
        """What ``path`` answers with as text, and the ``Date`` header of the answer.

        Raises:
            EosError: as ``read``.
        """
        answer = self._ask(path)
        return printable(answer.body.decode("utf-8", "replace").strip()), answer.date

    def _ask(self, path: str, method: str = "GET", *, also: int = http.HTTPStatus.OK) -> Answer:
        """``also``: another status than 2xx that means that all is well."""
        deadline = time.monotonic() + self._timeout_s
        origin, path_there = self._origin, self._path + path
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._request(origin, method, path_there, deadline)
            if answer.status not in _REDIRECTS or answer.location is None:
                break
            origin, path_there = self._follow(origin, path_there, answer.location, deadline)
        else:
            raise ConnectionLost(f"The admin API redirects {path} more than {MAX_REDIRECTS} times.")
        if answer.status not in (200, 204, also):
            cls = _REFUSALS.get(answer.status, BrokerNotReady)
            raise cls(f"The admin API answered {answer.status} to {path}.")
        return answer

    def _request(self, origin: Origin, method: str, path: str, deadline: float) -> Answer:
        headers = {"Accept": "*/*", "Connection": "close"}
        if self._has_token:
            headers["Authorization"] = f"Bearer {self._security.read_token()}"
        context = self._security.ssl_context() if origin.tls else None
        return ask(origin, method, path, headers, context, deadline)

    def _follow(
        self, origin: Origin, path: str, location: str, deadline: float
    ) -> tuple[Origin, str]:
        try:
            url = urllib.parse.urljoin(f"{origin}{path}", location)
            parts = urllib.parse.urlsplit(url)
            target = Origin.parse(url)
            there = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        except ValueError:
            raise ProtocolError("The admin API redirects to what is no URL of a host.") from None
        if not there.isascii() or not there.isprintable() or " " in there:
            raise ProtocolError(f"The admin API redirects to {target}, and to no path there.")
        if target.tls != origin.tls:
            raise ProtocolError(f"The admin API redirects from {origin} to {target}.")
        if self._has_token and target.host not in self._trusted:
            self._trust_brokers(deadline)
            if target.host not in self._trusted:
                raise ProtocolError(
                    f"The admin API redirects to {target}, which is no broker that we know of: "
                    "the token does not go there.",
                    hint="Name the brokers in service_url, or give admin_url of a Pulsar proxy.",
                )
        return target, there

    def _trust_brokers(self, deadline: float) -> None:
        """Ask the host that the user named for its brokers. It may refuse to say."""
        try:
            answer = self._request(self._origin, "GET", self._path + _BROKERS, deadline)
            brokers = json.loads(answer.body) if answer.status == 200 else []
            named = {Origin.parse(f"http://{broker}").host for broker in brokers}
        except (EosError, ValueError, TypeError, RecursionError):
            return
        self._trusted |= named


def topic_path(topic: TopicName) -> str:
    """``tenant/namespace/topic`` as a part of a path of the admin API."""
    return f"{topic.namespace_name}/{urllib.parse.quote(topic.local, safe='')}"


def _is_open_in_buffer(stats: Any) -> bool:
    if not isinstance(stats, dict):
        raise ValueError("it is no object")
    start, aborted = stats.get("startPosition"), stats.get("aborted", False)
    if not isinstance(start, str | None) or not isinstance(aborted, bool):
        raise ValueError("startPosition and aborted are a text and a truth value")
    return start is not None and not aborted


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is no JSON")
