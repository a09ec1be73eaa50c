"""TLS: whom to trust, and contexts that verify the peer's certificate and host name."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Final

_SYSTEM_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Red Hat
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # BSD, macOS
)
"""Where systems keep their authorities in one file, when OpenSSL was built to look elsewhere."""


def trust_file(chosen: str | None) -> str | None:
    """The PEM file of the authorities to trust: ``chosen``, else that of ``SSL_CERT_FILE``, else
    the system's.

    Named and not left to each library's default: pulsar-client would take another set than
    OpenSSL. None: there is only ``SSL_CERT_DIR``, which pulsar-client does not look at, or
    nothing at all.
    """
    if known := chosen or os.environ.get("SSL_CERT_FILE"):
        return known
    if os.environ.get("SSL_CERT_DIR"):
        return None
    bundles = (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES)
    return next((file for file in bundles if file and Path(file).is_file()), None)


def verifying_context(trust_certs_file: str | None) -> ssl.SSLContext:
    """A context that verifies the peer's certificate and host name, for TLS 1.2 and newer.

    Raises:
        OSError: the file of the authorities can't be loaded.
    """
    context = ssl.create_default_context(cafile=trust_file(trust_certs_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
