"""TLS: the authorities to trust, and contexts that verify the peer's certificate and host name."""

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
"""The systems' certificate bundles, for an OpenSSL that was built with other default paths."""


def trust_file(chosen: str | None) -> str | None:
    """Return the PEM file of the authorities to trust: ``chosen``, else that of ``SSL_CERT_FILE``,
    else the system's.

    Not left to each library's default: that of pulsar-client differs from OpenSSL's. None: there
    is only ``SSL_CERT_DIR``, which pulsar-client ignores, or no file was found.
    """
    if known := chosen or os.environ.get("SSL_CERT_FILE"):
        return known
    if os.environ.get("SSL_CERT_DIR"):
        return None
    bundles = (ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES)
    return next((file for file in bundles if file and Path(file).is_file()), None)


def verifying_context(trust_certs_file: str | None) -> ssl.SSLContext:
    """Return a context that verifies the peer's certificate and host name, for TLS 1.2 and newer.

    Raises:
        OSError: the file of the authorities can't be loaded.
    """
    context = ssl.create_default_context(cafile=trust_file(trust_certs_file))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
