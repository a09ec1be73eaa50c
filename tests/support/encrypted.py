"""Keys of end-to-end encryption, and a message that is unreadable without its key."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pulsar
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

KEY_NAMES: Final = ("rsa", "ec")


def make_keys(folder: Path) -> Path:
    """Make ``NAME.public.pem`` and ``NAME.private.pem`` for ``KEY_NAMES`` in ``folder``."""
    keys = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048),
        ec.generate_private_key(ec.SECP256R1()),
    )
    for name, key in zip(KEY_NAMES, keys, strict=True):
        (folder / f"{name}.private.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (folder / f"{name}.public.pem").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
    return folder


def plain_keys(folder: Path, name: str) -> pulsar.CryptoKeyReader:
    """The same for ``pulsar-client``, which has one pair of keys."""
    return pulsar.CryptoKeyReader(
        str(folder / f"{name}.public.pem"), str(folder / f"{name}.private.pem")
    )


def send_encrypted(url: str, topic: str, folder: Path) -> None:
    """Send ``secret`` by ``pulsar-client``; the keys are made in ``folder``."""
    sender = pulsar.Client(url)
    try:
        producer = sender.create_producer(
            topic, encryption_key="rsa", crypto_key_reader=plain_keys(make_keys(folder), "rsa")
        )
        producer.send(b"secret")
    finally:
        sender.close()
