"""The few questions that only Pulsar's admin REST API answers."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    ProtocolError,
    TopicNotFound,
    Unauthorized,
)
from eos.ids import TopicName, TxnId
from eos.transport.security import Security

MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024


class AdminClient:
    """Asks the admin API at ``admin_url`` (``http://host:8080``), as the same principal.

    Raises:
        ConfigurationError: ``admin_url`` is not http(s), or carries a user or password.
    """

    def __init__(self, admin_url: str, security: Security, *, timeout_s: float) -> None:
        if not admin_url.startswith(("http://", "https://")) or "@" in admin_url:
            raise ConfigurationError(
                "admin_url must be http://host:port or https://host:port, without credentials."
            )
        self._base = admin_url.rstrip("/")
        self._security = security
        self._timeout_s = timeout_s

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
            stats = self.get(path)
        except TopicNotFound:
            return False
        if not isinstance(stats, dict):
            raise ProtocolError(f"The admin API's answer to {path} is no object.")
        return stats.get("startPosition") is not None and not stats.get("aborted")

    def get(self, path: str) -> Any:
        """The JSON that ``path`` (from ``/admin`` on) answers with.

        Raises:
            TopicNotFound: 404.
            Unauthorized: 401 or 403.
            EosError: the API can't be asked, or answers something else.
        """
        try:
            return json.loads(self._fetch(path)[0])
        except ValueError:
            raise ProtocolError(f"The admin API's answer to {path} is not JSON.") from None

    def text(self, path: str) -> tuple[str, str | None]:
        """What ``path`` answers with as text, and the ``Date`` header of the answer.

        Raises:
            EosError: as ``get``.
        """
        body, date = self._fetch(path)
        return body.decode("utf-8", "replace").strip(), date

    def _fetch(self, path: str) -> tuple[bytes, str | None]:
        request = urllib.request.Request(self._base + path)  # noqa: S310 - the scheme is checked
        if self._security.method_name == "token":
            request.add_header("Authorization", f"Bearer {self._security.read_token()}")
        handlers: list[urllib.request.BaseHandler] = [_StayWithTls()]
        if self._base.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=self._security.ssl_context()))
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=self._timeout_s) as response:
                return response.read(MAX_ANSWER_BYTES), response.headers.get("Date")
        except urllib.error.HTTPError as error:
            error.close()
            known = {401: Unauthorized, 403: Unauthorized, 404: TopicNotFound}
            cls = known.get(error.code, BrokerNotReady)
            raise cls(f"The admin API answered {error.code} to {path}.") from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLost(
                f"The admin API at {self._base}: {error}.",
                hint="Check that the broker runs and that the admin URL is right.",
            ) from None


def topic_path(topic: TopicName) -> str:
    """``tenant/namespace/topic`` as a part of a path of the admin API."""
    return f"{topic.namespace_name}/{urllib.parse.quote(topic.local, safe='')}"


class _StayWithTls(urllib.request.HTTPRedirectHandler):
    """Brokers redirect to each other, and the token goes along: never from https to http."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if req.type == "https" and not newurl.startswith("https://"):
            raise urllib.error.HTTPError(req.full_url, code, "left TLS", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
