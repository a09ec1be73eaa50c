"""Certificates of brokers and clients, as files."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


def issue(
    folder: Path, authority: trustme.CA, certificate: trustme.LeafCert, name: str
) -> tuple[str, str]:
    """Write chain and key of ``certificate``; return their paths. Pulsar reads only PKCS8 keys."""
    authority.cert_pem.write_to_path(folder / "ca.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(folder / f"{name}.pem", append=True)
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}-key.pem").write_bytes(private)
    return str(folder / f"{name}.pem"), str(folder / f"{name}-key.pem")


def tls_config(folder: Path, authority: trustme.CA, provider: str) -> dict[str, str]:
    """broker.conf settings for TLS and authentication by ``provider``."""
    chain, private = issue(folder, authority, authority.issue_cert("127.0.0.1"), "broker")
    return {
        "brokerServicePortTls": "0",
        "tlsCertificateFilePath": chain,
        "tlsKeyFilePath": private,
        "tlsTrustCertsFilePath": str(folder / "ca.pem"),
        "authenticationEnabled": "true",
        "authenticationProviders": f"org.apache.pulsar.broker.authentication.{provider}",
    }
