"""A message that is unreadable without its key."""

from __future__ import annotations

from pathlib import Path

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


def send_encrypted(url: str, topic: str, folder: Path) -> None:
    """Send ``secret`` by ``pulsar-client``; the keys are made in ``folder``."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    sender = pulsar.Client(url)
    try:
        producer = sender.create_producer(
            topic,
            encryption_key="mine",
            crypto_key_reader=pulsar.CryptoKeyReader(str(public), str(private)),
        )
        producer.send(b"secret")
    finally:
        sender.close()
