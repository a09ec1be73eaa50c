"""Authentication: how the client and the broker prove their identity.

One ``Security`` object serves the driver and, pickled, every executor: the broker lets only the
principal that began a transaction write in it and end it. Secrets never show in a repr.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eos.errors import ConfigurationError, Unauthorized

_SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # BSD, macOS
)
"""Where systems keep their authorities in one file, when OpenSSL was built to look elsewhere."""


@dataclass(frozen=True)
class Security:
    """Authentication and TLS of all connections.

    Args:
        token: a JSON web token, or a function without arguments that returns one; the function
            is called again for every connection and whenever the broker asks for a fresh token.
            It has to return soon: what else the broker says waits behind it.
        token_file: a file that holds the token; read again each time, so it may be rotated.
        tls_trust_certs_file: PEM file of the authorities to trust; when absent that of
            ``SSL_CERT_FILE``, else the system's.
        tls_certificate_file, tls_private_key_file: the client's own certificate, for brokers
            that authenticate by TLS.

    Raises:
        ConfigurationError: options that exclude each other, or half of a key pair.
    """

    token: str | Callable[[], str] | None = field(default=None, repr=False)
    token_file: str | None = None
    tls_trust_certs_file: str | None = None
    tls_certificate_file: str | None = None
    tls_private_key_file: str | None = None

    def __post_init__(self) -> None:
        if self.token is not None and self.token_file is not None:
            raise ConfigurationError("Give token or token_file, not both.")
        if (self.tls_certificate_file is None) != (self.tls_private_key_file is None):
            raise ConfigurationError(
                "tls_certificate_file and tls_private_key_file go together: give both or none."
            )

    @property
    def method_name(self) -> str | None:
        """Pulsar's name of the authentication method in use, or None without authentication."""
        if self.token is not None or self.token_file is not None:
            return "token"
        return "tls" if self.tls_certificate_file is not None else None

    def auth_data(self) -> bytes:
        """What CONNECT and AUTH_RESPONSE carry: a fresh token, or nothing for TLS.

        Raises:
            Unauthorized: the token can't be had; its text is never part of the error.
        """
        return self.read_token().encode() if self.method_name == "token" else b""

    def read_token(self) -> str:
        """The current token.

        Raises:
            Unauthorized: the file can't be read, the function failed, or it is no token.
        """
        source = self.token_file or ("the token function" if callable(self.token) else "token")
        token: object
        try:
            if self.token_file is not None:
                token = Path(self.token_file).read_text(encoding="utf-8")
            else:
                token = self.token() if callable(self.token) else self.token
        except Exception as error:
            raise Unauthorized(f"No token from {source}: {type(error).__name__}.") from None
        # Checked here, where the text can be kept out of the error: http.client shows a header
        # that it does not like.
        token = token.strip() if isinstance(token, str) else ""
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Unauthorized(f"What {source} gives is no token: printable ASCII is expected.")
        return token

    @property
    def trust_file(self) -> str | None:
        """The PEM file of the authorities to trust, for everything that speaks TLS for us.

        Named and not left to each library's default: pulsar-client would take another set than
        OpenSSL. None: there is only ``SSL_CERT_DIR``, which pulsar-client does not look at, or
        nothing at all.
        """
        if chosen := self.tls_trust_certs_file or os.environ.get("SSL_CERT_FILE"):
            return chosen
        if os.environ.get("SSL_CERT_DIR"):
            return None
        known = (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES)
        return next((file for file in known if file and Path(file).is_file()), None)

    def ssl_context(self) -> ssl.SSLContext:
        """A context that verifies the broker's certificate and host name.

        Raises:
            ConfigurationError: a certificate or key file can't be read.
        """
        try:
            context = ssl.create_default_context(cafile=self.trust_file)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.tls_certificate_file is not None:
                # With no password given, OpenSSL would ask for one on the terminal, and wait.
                context.load_cert_chain(
                    self.tls_certificate_file, self.tls_private_key_file, password=""
                )
        except OSError as error:
            raise ConfigurationError(
                f"TLS files can't be loaded: {error}.",
                hint="tls_trust_certs_file (or SSL_CERT_FILE), tls_certificate_file and "
                "tls_private_key_file have to be PEM files; the key must not be encrypted, and fit "
                "the certificate.",
            ) from error
        return context
