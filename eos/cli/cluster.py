"""The cluster of a verb: the options of access and authentication, and the clients."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from eos.admin import AdminClient
from eos.errors import ConfigurationError
from eos.transport.address import Address, ClusterRules, parse_service_url
from eos.transport.auth import Auth

if TYPE_CHECKING:
    from eos.client import PulsarClient
    from eos.transport.message_keys import Encryption

ACCESS: Final = "Access"
"""The panel of these options in the help."""


def _option(variable: str, text: str) -> Any:
    return typer.Option(envvar=variable, help=text, rich_help_panel=ACCESS)


ServiceUrl = Annotated[
    str | None,
    _option("EOS_SERVICE_URL", "pulsar://host:6650 or pulsar+ssl://host:6651."),
]
AdminUrl = Annotated[
    str | None,
    _option(
        "EOS_ADMIN_URL",
        "http://host:8080 or https://host:8443 of the admin API, for facts that only it has.",
    ),
]
TokenFile = Annotated[
    str | None,
    _option(
        "EOS_TOKEN_FILE", "File with the token. (The token itself is read from EOS_TOKEN only.)"
    ),
]
OAuth2IssuerUrl = Annotated[
    str | None,
    _option(
        "EOS_OAUTH2_ISSUER_URL", "https:// URL of a token server, for OAuth2 client credentials."
    ),
]
OAuth2CredentialsFile = Annotated[
    str | None,
    _option("EOS_OAUTH2_CREDENTIALS_FILE", "JSON file with client_id and client_secret."),
]
OAuth2Audience = Annotated[
    str | None,
    _option("EOS_OAUTH2_AUDIENCE", "The cluster's name at the token server, if that requires one."),
]
OAuth2Scope = Annotated[
    str | None,
    _option("EOS_OAUTH2_SCOPE", "Scope of the tokens, if the token server requires one."),
]
OAuth2TrustCertsFile = Annotated[
    str | None,
    _option(
        "EOS_OAUTH2_TRUST_CERTS_FILE", "PEM file of the authorities to trust for the token server."
    ),
]
BasicUser = Annotated[
    str | None,
    _option("EOS_BASIC_USER", "User name. (The password is read from EOS_BASIC_PASSWORD only.)"),
]
TlsTrustCertsFile = Annotated[
    str | None,
    _option(
        "EOS_TLS_TRUST_CERTS_FILE", "PEM file of the authorities to trust; the system's by default."
    ),
]
TlsCertificateFile = Annotated[
    str | None,
    _option("EOS_TLS_CERTIFICATE_FILE", "PEM file of the client's certificate."),
]
TlsPrivateKeyFile = Annotated[
    str | None,
    _option(
        "EOS_TLS_PRIVATE_KEY_FILE",
        "PEM file of the certificate's private key. (Its password is read from "
        "EOS_TLS_PRIVATE_KEY_PASSWORD only.)",
    ),
]
KeyLocation = Annotated[
    str | None,
    _option(
        "EOS_KEY_LOCATION",
        "Folder or https:// URL with NAME.private.pem, to read messages that are encrypted.",
    ),
]
ListenerName = Annotated[
    str | None,
    _option(
        "EOS_LISTENER_NAME", "The brokers' advertised listener to connect to, if they have several."
    ),
]
SubscriptionPrefix = Annotated[
    str | None,
    _option(
        "EOS_SUBSCRIPTION_PREFIX",
        "Prefix of all subscription names: the role's name, if a namespace has "
        "subscriptionAuthMode=Prefix.",
    ),
]
TimeoutS = Annotated[
    float,
    typer.Option(min=0.1, max=3600, help="Timeout of each request.", rich_help_panel=ACCESS),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster; a verb connects to it when needed."""

    service_url: str | None
    admin_url: str | None
    timeout_s: float
    auth: Auth = field(repr=False)  # has secrets
    rules: ClusterRules = field(default_factory=ClusterRules)
    encryption: Encryption | None = None
    as_json: bool = False

    def service_url_of(self, otherwise: str | None = None) -> str:
        """Return the given service URL, or else ``otherwise``.

        Raises:
            ConfigurationError: both are missing.
        """
        url = self.service_url or otherwise
        if not url:
            raise ConfigurationError(
                "No cluster is given.",
                hint="Pass --service-url pulsar://host:6650, or set EOS_SERVICE_URL.",
            )
        return url

    def client(self, otherwise: str | None = None) -> PulsarClient:
        """Return a client of the cluster; the caller closes it. See ``service_url_of``."""
        # Here, because the client costs a verb that only reads logs 0.2 s (``_encryption``, too).
        from eos.client.worker_cache import ClientOptions

        url = self.service_url_of(otherwise)
        return ClientOptions(
            url, self.auth, self.timeout_s, self.rules, encryption=self.encryption
        ).make()

    def admin(self) -> AdminClient:
        """Return a client of the admin API.

        Raises:
            ConfigurationError: no admin URL was given, or it would expose the token or password.
        """
        if not self.admin_url:
            raise ConfigurationError(
                "This command needs the admin API.",
                hint="Pass --admin-url http://host:8080, or set EOS_ADMIN_URL.",
            )
        return AdminClient(
            self.admin_url, self.auth, timeout_s=self.timeout_s, service=self.addresses()
        )

    def addresses(self) -> tuple[Address, ...]:
        """Return the addresses of the service URL; none if it is not given."""
        return parse_service_url(self.service_url) if self.service_url else ()


def cluster_of(
    service_url: ServiceUrl = None,
    admin_url: AdminUrl = None,
    token_file: TokenFile = None,
    oauth2_issuer_url: OAuth2IssuerUrl = None,
    oauth2_credentials_file: OAuth2CredentialsFile = None,
    oauth2_audience: OAuth2Audience = None,
    oauth2_scope: OAuth2Scope = None,
    oauth2_trust_certs_file: OAuth2TrustCertsFile = None,
    basic_user: BasicUser = None,
    tls_trust_certs_file: TlsTrustCertsFile = None,
    tls_certificate_file: TlsCertificateFile = None,
    tls_private_key_file: TlsPrivateKeyFile = None,
    key_location: KeyLocation = None,
    listener_name: ListenerName = None,
    subscription_prefix: SubscriptionPrefix = None,
    timeout_s: TimeoutS = 30.0,
    json_: Json = False,
) -> Cluster:
    """Return the ``Cluster`` of a verb's options.

    Raises:
        ConfigurationError: two options exclude each other.
    """
    token, password = os.environ.get("EOS_TOKEN"), os.environ.get("EOS_BASIC_PASSWORD")
    if token and token_file:
        raise ConfigurationError(
            "EOS_TOKEN and --token-file (EOS_TOKEN_FILE) are both set.", hint="Set one of them."
        )
    key_password = os.environ.get("EOS_TLS_PRIVATE_KEY_PASSWORD") or None
    if password and not any((basic_user, token, token_file, oauth2_issuer_url)):
        raise ConfigurationError(
            "EOS_BASIC_PASSWORD is set without a user.",
            hint="Pass --basic-user USER, or set EOS_BASIC_USER.",
        )
    if service_url:
        parse_service_url(service_url)
    return Cluster(
        service_url=service_url,
        admin_url=admin_url,
        timeout_s=timeout_s,
        auth=Auth(
            token=token or None,
            token_file=token_file,
            oauth2_issuer_url=oauth2_issuer_url,
            oauth2_credentials_file=oauth2_credentials_file,
            oauth2_audience=oauth2_audience,
            oauth2_scope=oauth2_scope,
            oauth2_trust_certs_file=oauth2_trust_certs_file,
            basic_user=basic_user,
            basic_password=password if basic_user else None,
            tls_trust_certs_file=tls_trust_certs_file,
            tls_certificate_file=tls_certificate_file,
            tls_private_key_file=tls_private_key_file,
            tls_private_key_password=key_password if tls_private_key_file else None,
        ),
        rules=ClusterRules(listener_name or None, subscription_prefix or None),
        encryption=_encryption(key_location) if key_location else None,
        as_json=json_,
    )


def _encryption(key_location: str) -> Encryption:
    from eos.transport.message_keys import Encryption

    return Encryption(key_location)
