"""End-to-end encryption of an entry, as Pulsar's own clients do it.

The compressed payload is encrypted by AES-GCM with a data key. The entry contains the data key,
encrypted with each public key of its readers (``key_wrapping``). Source: ``MessageCryptoBc`` of the
Java client.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal, Protocol

from eos.errors import ConfigurationError, DecryptionFailed
from eos.wire.batch import Compression, EncodedBatch, Entry
from eos.wire.checksum import crc32c
from eos.wire.commands import EncryptionKeys, KeyValue, MessageMetadata
from eos.wire.frames import unreadable_entry
from eos.wire.key_wrapping import unwrapped, wrapping

logger = logging.getLogger(__name__)

_DATA_KEY_BYTES: Final = 32
_AES_KEY_BYTES: Final = (16, 24, 32)
# Of an encrypted data key: twice as much as of an RSA key of 16,384 bits. A longer one comes from a
# hostile writer, and would cost time and memory.
_MAX_WRAPPED_BYTES: Final = 4096
_IV_BYTES: Final = 12
_TAG_BYTES: Final = 16
# With random IVs a key is good for 2^32 entries (NIST SP 800-38D).
_MAX_ENTRIES: Final = 2**24
MAX_KEYS: Final = 64  # per entry: each may cost a look-up of the key
_MAX_TRIED: Final = 16  # per entry: each may cost a private key's operation
# Each producer has one, and Java's take another one every four hours.
_MAX_DATA_KEYS: Final = 1024


CryptoFailureAction = Literal["fail", "discard", "consume"]
"""What to do with an entry that can't be decrypted, as in the Java client: raise an error, leave it
out, or return it as it is stored."""


@dataclass(frozen=True)
class PublicKey:
    """A public key in PEM, or a certificate with it.

    ``metadata``: is stored with each entry, so that readers find the private key.
    """

    pem: bytes
    metadata: tuple[tuple[str, str], ...] = ()


class PrivateKeys(Protocol):
    """Where private keys come from."""

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        """Return the private key ``name`` in PEM, or None: there is none.

        ``metadata``: that of the public key. EosError: it can't be found out.
        """


class Encryptor:
    """Encrypts entries with a data key of its own. Safe for several threads.

    Args:
        keys: the public keys, by name: the owner of any of them can read the entries.

    Raises:
        ConfigurationError: a key can't be used, there are more than ``MAX_KEYS``, or the package
            ``cryptography`` is missing.
    """

    def __init__(self, keys: Mapping[str, PublicKey]) -> None:
        if len(keys) > MAX_KEYS:
            raise ConfigurationError(
                f"There are {len(keys)} encryption_keys; readers look up {MAX_KEYS} at most.",
                hint="Let several readers share a key.",
            )
        self._keys = {name: (key, wrapping(name, key.pem)) for name, key in keys.items()}
        self._renew()

    def _renew(self) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        data_key = os.urandom(_DATA_KEY_BYTES)
        wrapped = tuple(
            EncryptionKeys(
                key=name,
                value=wrap(data_key),
                metadata=tuple(KeyValue(key=key, value=value) for key, value in public.metadata),
            )
            for name, (public, wrap) in self._keys.items()
        )
        # As one value, for threads; the count of entries need not be exact.
        self._current = AESGCM(data_key), wrapped
        self._left = _MAX_ENTRIES

    @property
    def overhead_bytes(self) -> int:
        """How much longer it makes an entry."""
        return encryption_bytes(self._current[1]) + _TAG_BYTES

    def encrypt(self, batch: EncodedBatch) -> EncodedBatch:
        """Return ``batch``, encrypted. Its figures are those of its stored bytes."""
        if self._left <= 0:
            self._renew()
        self._left -= 1
        cipher, keys = self._current
        iv = os.urandom(_IV_BYTES)
        payload = cipher.encrypt(iv, batch.payload, None)
        # Who checks figures later, the recovery for example, has no private key.
        return replace(
            batch,
            payload=memoryview(payload),
            value_and_key_bytes=len(payload),
            checksum=crc32c(payload),
            encryption_keys=keys,
            encryption_param=iv,
        )


class Decryptor:
    """Decrypts entries of any producer. Safe for several threads.

    Args:
        keys: the private keys.
        on_failure: what to do with an entry that can't be decrypted. With ``consume`` it becomes
            one message, whose value is the stored payload, and its ``context`` has what is needed
            to decrypt it, as JSON, like the Java client's EncryptionContext: ``keys`` (name ->
            ``value``, in base64, and ``metadata``), ``param`` (the IV, in base64), ``compression``,
            ``uncompressed_size`` (bytes), ``batch_size`` (messages; null: not a batch); and for a
            part of a message its ``uuid``, ``chunk_id`` and the number of ``chunks``.
    """

    def __init__(self, keys: PrivateKeys, on_failure: CryptoFailureAction = "fail") -> None:
        self.on_failure = on_failure
        self._private_keys = keys
        self._data_keys: dict[bytes, bytes] = {}  # that were decrypted, by their encrypted form

    def open(self, entry: Entry) -> tuple[Entry, str | None] | None:
        """Return an encrypted entry as it was before its encryption, with its context; None: it is
        to be left out.

        Raises:
            DecryptionFailed: no private key of the entry is here, or it does not fit; names it.
            EosError: whether there is a key can't be found out.
        """
        metadata = entry.metadata
        try:
            plain = self._decrypt(metadata, entry.payload)
        except DecryptionFailed as error:
            match self.on_failure:
                case "fail":
                    raise unreadable_entry(entry.id, error) from None
                case "discard":
                    logger.warning("The entry %s can't be decrypted. It is left out.", entry.id)
                    return None
            return replace(entry, metadata=_as_one_message(metadata)), _context(metadata)
        opened = replace(metadata, encryption_keys=(), encryption_param=None)
        return replace(entry, metadata=opened, payload=plain), None

    def _decrypt(self, metadata: MessageMetadata, payload: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        keys = metadata.encryption_keys[:MAX_KEYS]
        iv, is_found = metadata.encryption_param or b"", False
        for data_key in islice(self._data_keys_of(keys), _MAX_TRIED):
            if data_key is None:
                continue
            is_found = True
            try:
                return AESGCM(data_key).decrypt(iv, payload, None)
            except (InvalidTag, ValueError):  # a wrong length of the key or of the IV
                continue  # another of the keys may be right
        names = ", ".join(repr(key.key[:100]) for key in keys[:_MAX_TRIED])
        raise DecryptionFailed(
            f"it is encrypted for {names}, and "
            + ("is damaged, or is encrypted in another way." if is_found else "no key fits.")
        )

    def _data_keys_of(self, keys: Iterable[EncryptionKeys]) -> Iterator[bytes | None]:
        # Of those for which there is a private key; None if it does not fit.
        for key in keys:
            if len(key.value) > _MAX_WRAPPED_BYTES:
                continue
            if (known := self._data_keys.get(key.value)) is not None:
                yield known
                continue
            metadata = {pair.key: pair.value for pair in key.metadata}
            pem = self._private_keys.private_key(key.key, metadata)
            if pem is not None:
                yield self._unwrapped(key, pem)

    def _unwrapped(self, key: EncryptionKeys, pem: bytes) -> bytes | None:
        data_key = unwrapped(key.key, pem, key.value)
        if data_key is None or len(data_key) not in _AES_KEY_BYTES:
            return None
        if len(self._data_keys) >= _MAX_DATA_KEYS:
            self._data_keys.clear()
        self._data_keys[key.value] = data_key
        return data_key


def _context(metadata: MessageMetadata) -> str:
    keys = {
        key.key: {
            "value": base64.b64encode(key.value).decode(),
            "metadata": {pair.key: pair.value for pair in key.metadata},
        }
        for key in metadata.encryption_keys
    }
    number = metadata.compression or 0
    known = number in Compression._value2member_map_
    return json.dumps(
        {
            "keys": keys,
            "param": base64.b64encode(metadata.encryption_param or b"").decode(),
            "compression": Compression(number).name if known else number,
            "uncompressed_size": metadata.uncompressed_size,
            "batch_size": metadata.num_messages_in_batch,
            "uuid": metadata.uuid,
            "chunk_id": metadata.chunk_id,
            "chunks": metadata.num_chunks_from_msg,
        }
    )


def _as_one_message(metadata: MessageMetadata) -> MessageMetadata:
    return replace(
        metadata,
        encryption_keys=(),
        encryption_param=None,
        compression=None,
        uncompressed_size=None,
        num_messages_in_batch=None,
        num_chunks_from_msg=None,
    )


def encryption_bytes(keys: tuple[EncryptionKeys, ...]) -> int:
    """Return the approximate size of ``keys`` and the IV in an entry's metadata."""
    return sum(len(key.encode()) + 4 for key in keys) + (_IV_BYTES + 8 if keys else 0)


def decrypted(entry: Entry, decryptor: Decryptor | None) -> tuple[Entry, str | None] | None:
    """Return ``decryptor.open(entry)``, and an entry that is not encrypted as it is.

    Without a decryptor an encrypted one stays as it is, too. Errors as there.
    """
    if decryptor is None or not entry.metadata.encryption_keys:
        return entry, None
    return decryptor.open(entry)
