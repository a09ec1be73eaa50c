"""Authentication options: how the client and the broker prove their identity."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final

from eos.errors import ConfigurationError
from eos.transport._auth_methods import Anonymous, ByCertificate, ByPassword, ByToken, Login
from eos.transport._connect import trust_file, verifying_context
from eos.transport.secret_text import check_no_secrets

_SECRETS: Final = ("token", "basic_password", "tls_private_key_password")


@dataclass(frozen=True)
class Auth:
    """Authentication and TLS of all connections. At most one authentication method.

    The driver and, by pickling, all executors use the same one: the broker lets only the principal
    that began a transaction write in it and end it. A repr never shows secrets.

    Args:
        token: a JSON web token, or a function without arguments that returns one; the function
            is called for every connection and whenever the broker asks for a fresh token.
            It must return soon: the connection reads nothing else meanwhile.
        token_file: a file that contains the token; read each time, so it may be rotated.
        oauth2_issuer_url: ``https://`` URL of a token server that issues tokens by OAuth2 client
            credentials.
        oauth2_credentials_file: JSON file with ``client_id`` and ``client_secret``, in the format
            of Pulsar's own clients; read for each token.
        oauth2_audience, oauth2_scope: further parameters of the token request.
        oauth2_trust_certs_file: PEM file of the authorities to trust for the token server.
        basic_user, basic_password: user name and password.
        tls_trust_certs_file: PEM file of the authorities to trust; when absent that of
            ``SSL_CERT_FILE``, else the system's.
        tls_certificate_file, tls_private_key_file: the client's own certificate, for brokers
            that authenticate by TLS.
        tls_private_key_password: of the private key's file, if it is encrypted.

    Raises:
        ConfigurationError: options exclude each other, or one needs another that is missing.
    """

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    token_file: str | None = None
    oauth2_issuer_url: str | None = None
    oauth2_credentials_file: str | None = None
    oauth2_audience: str | None = None
    oauth2_scope: str | None = None
    oauth2_trust_certs_file: str | None = None
    basic_user: str | None = None
    basic_password: str | None = field(default=None, repr=False)
    tls_trust_certs_file: str | None = None
    tls_certificate_file: str | None = None
    tls_private_key_file: str | None = None
    tls_private_key_password: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            is_function = name == "token" and callable(value)
            if value is not None and not is_function and (not isinstance(value, str) or not value):
                raise ConfigurationError(f"{name} must be non-empty text.")
        check_no_secrets(vars(self), _SECRETS)
        for one, other in (
            ("tls_certificate_file", "tls_private_key_file"),
            ("oauth2_issuer_url", "oauth2_credentials_file"),
            ("basic_user", "basic_password"),
        ):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ConfigurationError(f"{one} and {other} belong together: give both or none.")
        if self.tls_private_key_password is not None and self.tls_private_key_file is None:
            raise ConfigurationError("tls_private_key_password needs tls_private_key_file.")
        for name in ("oauth2_audience", "oauth2_scope", "oauth2_trust_certs_file"):
            if getattr(self, name) is not None and self.oauth2_issuer_url is None:
                raise ConfigurationError(f"{name} needs oauth2_issuer_url.")
        ways = ("token", "token_file", "oauth2_issuer_url", "basic_user")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigurationError(f"Give one authentication method, not {' and '.join(given)}.")
        self.login  # noqa: B018 - raises now if its options are invalid

    @property
    def login(self) -> Login:
        """The authentication method."""
        if self.oauth2_issuer_url is not None and self.oauth2_credentials_file is not None:
            # Imported late: the HTTP client costs a new worker 14 ms, and few need it.
            from eos.transport._oauth2 import ByOAuth2

            return ByOAuth2(
                self.oauth2_issuer_url,
                self.oauth2_credentials_file,
                self.oauth2_audience,
                self.oauth2_scope,
                self.oauth2_trust_certs_file,
            )
        if self.basic_user is not None and self.basic_password is not None:
            return ByPassword(self.basic_user, self.basic_password)
        if self.token is not None or self.token_file is not None:
            return ByToken(self.token, self.token_file)
        return Anonymous() if self.tls_certificate_file is None else ByCertificate()

    @property
    def exposes(self) -> str | None:
        """The secret that a network without TLS would expose: "token", "password" or None."""
        return self.login.exposes

    @property
    def trust_file(self) -> str | None:
        """The PEM file of the authorities to trust, also for other libraries that use TLS."""
        return trust_file(self.tls_trust_certs_file)

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context that verifies the broker's certificate and host name.

        Raises:
            ConfigurationError: a certificate or key file can't be read.
        """
        try:
            context = verifying_context(self.tls_trust_certs_file)
            if self.tls_certificate_file is not None:
                # Without a password OpenSSL would prompt for one on the terminal, and wait.
                password = self.tls_private_key_password or ""
                context.load_cert_chain(
                    self.tls_certificate_file, self.tls_private_key_file, password=password
                )
        except OSError as error:
            raise ConfigurationError(
                f"TLS files can't be loaded: {error}.",
                hint="tls_trust_certs_file (or SSL_CERT_FILE), tls_certificate_file and "
                "tls_private_key_file must be PEM files; the key must match the certificate, and "
                "tls_private_key_password the key, if it is encrypted.",
            ) from error
        return context


# They are also options of ``format("pulsar")``.
AUTH_OPTIONS: Final = tuple(one.name for one in fields(Auth))


def take_auth(options: dict[str, Any]) -> Auth:
    """Remove the options of an ``Auth`` from ``options`` and return it.

    Raises:
        ConfigurationError: see ``Auth``.
    """
    return Auth(**{name: options.pop(name) for name in AUTH_OPTIONS if name in options})
