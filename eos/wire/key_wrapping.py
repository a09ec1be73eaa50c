"""Encrypts data keys with the public keys of readers, and decrypts them with the private ones.

By RSA (OAEP with SHA-1), or by ECIES for keys on an elliptic curve. Source: ``MessageCryptoBc`` of
the Java client.
"""

from __future__ import annotations

import functools
import hmac
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from eos.errors import ConfigurationError, pip_install

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.padding import OAEP

_MAC_KEY_BYTES: Final = 16
_MAC_BYTES: Final = 20
_PUBLIC: Final = re.compile(
    rb"-----BEGIN ((?:RSA )?PUBLIC KEY|CERTIFICATE)-----.*?-----END \1-----", re.DOTALL
)
_FORMATS: Final = "an RSA key or a key on an elliptic curve, in PEM"


def require_cryptography() -> None:
    """Raise ConfigurationError if the package ``cryptography`` can't be imported."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigurationError(
            "End-to-end encryption needs the package cryptography.",
            hint=f"Run: {pip_install('encryption')}, on the executors too.",
        ) from None


def wrapping(name: str, pem: bytes) -> Callable[[bytes], bytes]:
    """Return the function that encrypts a data key with the public key ``pem``."""
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    # OpenSSL writes EC PARAMETERS before a key on a curve.
    found = _PUBLIC.search(pem)
    pem = pem if found is None else found[0]
    key: object = None
    for load in (
        load_pem_public_key,
        lambda data: x509.load_pem_x509_certificate(data).public_key(),
    ):
        try:
            key = load(pem)
            break
        except Exception:  # noqa: S112 - it has many, and some show the key
            continue
    if isinstance(key, rsa.RSAPublicKey):
        return functools.partial(key.encrypt, padding=_oaep())
    if isinstance(key, ec.EllipticCurvePublicKey):
        return functools.partial(_ecies_encrypt, key)
    raise ConfigurationError(
        f"The public key {name!r} can't be used: it must be {_FORMATS}, or a certificate."
    )


def unwrapped(name: str, pem: bytes, encrypted: bytes) -> bytes | None:
    """Return the data key that ``encrypted`` contains; None: it does not belong to the key."""
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    key = _private_key(pem)
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            return key.decrypt(encrypted, _oaep())
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return _ecies_decrypt(key, encrypted)
    except ValueError:  # of OAEP, or of a point that is not on the curve
        return None
    raise ConfigurationError(
        f"The private key {name!r} can't be used: it must be {_FORMATS}, without a password."
    )


@functools.lru_cache(maxsize=64)
def _private_key(pem: bytes) -> object:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password=None)
    except Exception:
        return None  # its text may show the key


def _oaep() -> OAEP:
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA1

    return padding.OAEP(mgf=padding.MGF1(SHA1()), algorithm=SHA1(), label=None)  # noqa: S303


# ECIES of BouncyCastle (``IESEngine`` with its defaults): a key of one use, KDF2 with SHA-1 over it
# and the agreed secret, XOR, HMAC-SHA1. Output: the point, uncompressed, the text, the MAC.


def _ecies_encrypt(key: EllipticCurvePublicKey, text: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    own = ec.generate_private_key(key.curve)
    point = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    mac_key, stream = _ecies_keys(point, own.exchange(ec.ECDH(), key), len(text))
    hidden = _xor(text, stream)
    return point + hidden + _ecies_mac(mac_key, hidden)


def _ecies_decrypt(key: EllipticCurvePrivateKey, data: bytes) -> bytes | None:
    from cryptography.hazmat.primitives.asymmetric import ec

    size = 1 + 2 * ((key.curve.key_size + 7) // 8)
    point, hidden, mac = data[:size], data[size:-_MAC_BYTES], data[-_MAC_BYTES:]
    if len(data) < size + _MAC_BYTES:
        return None
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
    mac_key, stream = _ecies_keys(point, key.exchange(ec.ECDH(), theirs), len(hidden))
    if not hmac.compare_digest(mac, _ecies_mac(mac_key, hidden)):
        return None
    return _xor(hidden, stream)


def _ecies_keys(point: bytes, secret: bytes, size: int) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.hashes import SHA1
    from cryptography.hazmat.primitives.kdf.x963kdf import X963KDF

    derived = X963KDF(SHA1(), _MAC_KEY_BYTES + size, None).derive(point + secret)  # noqa: S303
    return derived[:_MAC_KEY_BYTES], derived[_MAC_KEY_BYTES:]


def _ecies_mac(key: bytes, hidden: bytes) -> bytes:
    return hmac.digest(key, hidden + bytes(8), "sha1")


def _xor(text: bytes, stream: bytes) -> bytes:
    return bytes(one ^ other for one, other in zip(text, stream, strict=True))
