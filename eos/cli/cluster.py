"""The cluster of a verb, and the authentication."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from eos.admin import AdminClient
from eos.cli import access_options as options
from eos.client import PulsarClient
from eos.client.worker_cache import ClientOptions
from eos.errors import ConfigurationError
from eos.transport.address import Address, ClusterRules, parse_service_url
from eos.transport.auth import Auth


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster; a verb connects to it when needed."""

    service_url: str | None
    admin_url: str | None
    timeout_s: float
    auth: Auth = field(repr=False)
    rules: ClusterRules = field(default_factory=ClusterRules)
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
        url = self.service_url_of(otherwise)
        return ClientOptions(url, self.auth, self.timeout_s, self.rules).make()

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
    service_url: options.ServiceUrl = None,
    admin_url: options.AdminUrl = None,
    token_file: options.TokenFile = None,
    oauth2_issuer_url: options.OAuth2IssuerUrl = None,
    oauth2_credentials_file: options.OAuth2CredentialsFile = None,
    oauth2_audience: options.OAuth2Audience = None,
    oauth2_scope: options.OAuth2Scope = None,
    oauth2_trust_certs_file: options.OAuth2TrustCertsFile = None,
    basic_user: options.BasicUser = None,
    tls_trust_certs_file: options.TlsTrustCertsFile = None,
    tls_certificate_file: options.TlsCertificateFile = None,
    tls_private_key_file: options.TlsPrivateKeyFile = None,
    listener_name: options.ListenerName = None,
    subscription_prefix: options.SubscriptionPrefix = None,
    timeout_s: options.TimeoutS = 30.0,
    json_: options.Json = False,
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
        ),
        rules=ClusterRules(listener_name or None, subscription_prefix or None),
        as_json=json_,
    )
