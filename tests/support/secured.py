"""A broker with all security enabled: TLS, authorization, four authentication methods."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.tls import issue, tls_config
from tests.support.tokens import CONFIG, token

PASSWORD: Final = "-".join(("correct", "horse", "battery"))
_HTPASSWD: Final = "writer:$apr1$eoseoseo$U2Y.ce3XaZbTDdGEpEYgf0\n"
_PROVIDERS: Final = ("Token", "Basic", "Tls")
ADMIN: Final = token("admin")
NAMESPACES: Final = ("public/default", "pulsar/system")


@dataclass(frozen=True)
class Secured:
    """The broker, its authority's files, and the files of a client with the role ``writer``."""

    broker: PulsarStandalone
    trusted: str
    certificate: str
    key: str

    def allow(self, where: str, *actions: str) -> None:
        """Allow the role ``writer`` only ``actions`` in a namespace or on a topic.

        Without actions, it may do nothing there. A topic is ``tenant/namespace/topic``.
        """
        kind = "namespaces" if where.count("/") == 1 else "persistent"
        path = f"/v2/{kind}/{where}/permissions/writer"
        method = "POST" if actions else "DELETE"
        admin.call(self.broker.admin_url, method, path, list(actions) or None, token=ADMIN)


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """A running secured broker, which looks every four seconds for expired tokens.

    If a client has not answered the last question by then, it closes the connection.
    """
    authority = trustme.CA()
    providers = [
        f"org.apache.pulsar.broker.authentication.AuthenticationProvider{name}"
        for name in _PROVIDERS
    ]
    config = {
        **tls_config(folder, authority, "AuthenticationProviderToken"),
        **CONFIG,
        "authenticationProviders": ",".join(providers),
        "authorizationEnabled": "true",
        "authenticationRefreshCheckSeconds": "4",
        "webServicePortTls": "0",
        "basicAuthConf": f"data:;base64,{base64.b64encode(_HTPASSWD.encode()).decode()}",
    }
    own = authority.issue_cert("client.example", common_name="writer")
    certificate, key = issue(folder, authority, own, "client")
    with PulsarStandalone(config=config, admin_token=ADMIN) as broker:
        secured = Secured(broker, str(folder / "ca.pem"), certificate, key)
        for namespace in NAMESPACES:
            secured.allow(namespace, "produce", "consume")
        yield secured
