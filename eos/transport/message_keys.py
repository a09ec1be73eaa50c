"""The keys of end-to-end encryption: from a folder, a web server or a function."""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import quote, urlsplit

from eos.errors import BrokerNotReady, ConfigurationError, EosError, Retriable
from eos.forking import lock_of_process
from eos.transport._connect import verifying_context
from eos.transport.auth import AUTH_OPTIONS
from eos.wire.encryption import CryptoFailureAction, Decryptor, Encryptor, PublicKey
from eos.wire.key_wrapping import require_cryptography

logger = logging.getLogger(__name__)

KeyKind = Literal["public", "private"]
KeyReader = Callable[[str, KeyKind, Mapping[str, str]], "bytes | PublicKey | None"]

# As for the Java client's producers, which read their keys every four hours: but shorter, as a key
# that was withdrawn is to be out of use soon.
KEY_LIFE_S: Final = 600.0
_ABSENCE_S: Final = 10.0  # how long a missing private key is not looked for again
_FETCH_TIMEOUT_S: Final = 10.0
_MAX_KEYS: Final = 1024
_MAX_FILE_BYTES: Final = 1 << 20
# Names come from whoever writes to the topic, and become parts of paths.
_NAME: Final = re.compile(r"[A-Za-z0-9_=@+-][A-Za-z0-9_.=@+-]{0,199}")
_HINT: Final = "Check that it runs and that key_location is right."
_NO_KEY: Final = (404, 410)


@dataclass(frozen=True)
class Encryption:
    """End-to-end encryption of messages, in the format of Pulsar's own clients.

    ::

        secret = Encryption(key_location="/etc/keys", encryption_keys=["orders"])
        with PulsarClient("pulsar://localhost:6650", encryption=secret) as client:
            client.producer("orders").send(b"for those who have orders.private.pem")

    Args:
        key_location: a folder, or an ``https://`` URL, with ``NAME.public.pem`` and
            ``NAME.private.pem``; or a path or URL with ``{name}`` and ``{kind}`` in it. Read again
            every ten minutes. A key server must let everybody read, or use ``key_reader``.
        key_reader: the alternative: a function of the key's name, of "public" or "private", and of
            the public key's metadata. It returns the key in PEM, for a public one perhaps with
            metadata, as an ``eos.wire.encryption.PublicKey``; or None if it has none.
        encryption_keys: the names of the keys of those who can read what is written here. Reading
            needs none.
        crypto_failure_action: what to do with entries that can't be decrypted: fail (an error),
            discard (leave them out; a consumer acknowledges them) or consume (return the stored
            bytes as one message).

    A key is one of RSA or on an elliptic curve. A repr shows no key.

    Raises:
        ConfigurationError: an argument is wrong, or the package ``cryptography`` is missing.
    """

    key_location: str | None = None
    key_reader: KeyReader | None = field(default=None, repr=False)
    encryption_keys: Sequence[str] = ()
    crypto_failure_action: CryptoFailureAction = "fail"

    def __post_init__(self) -> None:
        names = self.encryption_keys
        if isinstance(names, str):
            names = [name.strip() for name in names.split(",")]
        names = tuple(dict.fromkeys(names))
        if not all(isinstance(name, str) and name for name in names):
            # Nothing would be encrypted.
            raise ConfigurationError("encryption_keys has an empty name.")
        object.__setattr__(self, "encryption_keys", names)
        if self.crypto_failure_action not in get_args(CryptoFailureAction):
            raise ConfigurationError(
                f"crypto_failure_action must be {', '.join(get_args(CryptoFailureAction))}, "
                f"not {self.crypto_failure_action!r}."
            )
        if (self.key_location is None) == (self.key_reader is None):
            raise ConfigurationError("Give one of key_location and key_reader.")
        if self.key_reader is not None and not callable(self.key_reader):
            raise ConfigurationError("key_reader must be a function.")
        if self.key_location is not None:
            _template(self.key_location)
            for name in self.encryption_keys:
                if not _NAME.fullmatch(name):
                    raise ConfigurationError(
                        f"encryption_keys: {name!r} can't be a part of a path.",
                        hint="Letters, digits and _.=@+- are allowed, and no dot at the beginning; "
                        "with a key_reader any text.",
                    )
        require_cryptography()

    def as_text(self) -> dict[str, str]:
        """Return it as options of ``format("pulsar")``.

        Raises:
            ConfigurationError: it has a ``key_reader``, which is no text.
        """
        if self.key_location is None:
            raise ConfigurationError("Set key_location: a key_reader can't be an option of tables.")
        names = {"encryption_keys": ",".join(self.encryption_keys)} if self.encryption_keys else {}
        action = self.crypto_failure_action
        return {"key_location": self.key_location, "crypto_failure_action": action, **names}

    @property
    def keys(self) -> MessageKeys:
        """The keys, which all users of an equal value in this process share."""
        return _shared(self) if self.key_reader is None else MessageKeys(self)


# They are also options of ``format("pulsar")``.
ENCRYPTION_OPTIONS: Final = ("key_location", "encryption_keys", "crypto_failure_action")


def flat_names(names: Iterable[str]) -> list[str]:
    """Replace ``auth`` and ``encryption`` in the names of options by those that each is made of."""
    made_of = {"auth": AUTH_OPTIONS, "encryption": ENCRYPTION_OPTIONS}
    return [own for name in names for own in made_of.get(name, (name,))]


def take_encryption(options: dict[str, Any]) -> Encryption | None:
    """Remove the options of an ``Encryption`` from ``options`` and return it, or None.

    Raises:
        ConfigurationError: see ``Encryption``.
    """
    taken = {name: options.pop(name) for name in ENCRYPTION_OPTIONS if name in options}
    return Encryption(**taken) if taken else None


class MessageKeys:
    """Reads the keys of an ``Encryption``, and keeps them for ``KEY_LIFE_S``.

    ``decryptor`` uses the private ones. ``encrypts``: there are names of public ones.
    """

    def __init__(self, encryption: Encryption) -> None:
        self._names = encryption.encryption_keys
        self.encrypts = bool(self._names)
        self._read = encryption.key_reader
        if encryption.key_location is not None:
            self._read = _Location(encryption.key_location)
        self.decryptor = Decryptor(self, encryption.crypto_failure_action)
        self._lock = lock_of_process()
        self._private: dict[bytes, tuple[float, bytes | None]] = {}  # by what they are asked for by
        self._public: tuple[float, dict[str, PublicKey]] | None = None
        self._encryptor: tuple[dict[str, PublicKey], Encryptor] | None = None

    def public_keys(self) -> dict[str, PublicKey]:
        """Return the public keys of ``encryption_keys``, by name.

        Raises:
            ConfigurationError: a key is missing.
            EosError: the server of the keys does not answer.
        """
        with self._lock:
            now = time.monotonic()
            if self._public is None:
                self._public = now + KEY_LIFE_S, self._read_public()
            elif self._public[0] < now:
                self._public = now + KEY_LIFE_S, self._read_again(self._public[1])
            return self._public[1]

    def _read_again(self, old: dict[str, PublicKey]) -> dict[str, PublicKey]:
        try:
            new = self._read_public()
        except Retriable as error:
            logger.warning("The public keys can't be read again, and stay in use: %s", error)
            return old
        return old if new == old else new

    def _read_public(self) -> dict[str, PublicKey]:
        keys = {}
        for name in self._names:
            key = self._call(name, "public", {})
            if key is None:
                raise ConfigurationError(
                    f"There is no public key {name!r}.",
                    hint="Check encryption_keys and key_location; a folder has NAME.public.pem.",
                )
            keys[name] = key if isinstance(key, PublicKey) else PublicKey(key)
        return keys

    def encryptor(self) -> Encryptor | None:
        """Return what encrypts for ``encryption_keys``; None: there are none.

        Raises:
            EosError: as ``public_keys``.
        """
        if not self.encrypts:
            return None
        keys = self.public_keys()
        # Two threads may make one each: both are good.
        known = self._encryptor
        if known is None or known[0] is not keys:
            known = self._encryptor = keys, Encryptor(keys)
        return known[1]

    def private_key(self, name: str, metadata: Mapping[str, str]) -> bytes | None:
        """See ``eos.wire.encryption.PrivateKeys``."""
        if isinstance(self._read, _Location):  # which ignores it
            metadata = {}
        # A hostile writer chooses the length of both: their hash is kept.
        of = hashlib.sha256(repr((name, sorted(metadata.items()))).encode()).digest()
        now = time.monotonic()
        with self._lock:
            known = self._private.get(of)
        if known is not None and known[0] >= now:
            return known[1]
        # Not under the lock: a function may take long, or ask for another key.
        key = self._call(name, "private", metadata)
        if isinstance(key, PublicKey):
            key = key.pem
        with self._lock:
            # A missing key may be put there soon; an old one may have been withdrawn.
            if len(self._private) >= _MAX_KEYS:  # of a hostile writer, as nobody has as many
                self._private.clear()
            self._private[of] = now + (KEY_LIFE_S if key else _ABSENCE_S), key
        return key

    def _call(
        self, name: str, kind: KeyKind, metadata: Mapping[str, str]
    ) -> bytes | PublicKey | None:
        assert self._read is not None
        try:
            key = self._read(name, kind, metadata)
        except EosError:
            raise
        except Exception as error:  # its text may show a key
            raise ConfigurationError(
                f"key_reader failed for the {kind} key {name!r}: {type(error).__name__}."
            ) from None
        if key is None or isinstance(key, bytes | PublicKey):
            return key
        raise ConfigurationError(
            f"key_reader returned a {type(key).__name__} for the {kind} key {name!r}: it must be "
            "PEM as bytes, a PublicKey, or None."
        )


_shared: Final = lru_cache(maxsize=64)(MessageKeys)


class _Location:
    """Reads keys from files, or from a web server."""

    def __init__(self, location: str) -> None:
        self._template = _template(location)

    def __call__(self, name: str, kind: KeyKind, _: Mapping[str, str]) -> bytes | None:
        if not _NAME.fullmatch(name):
            return None
        if self._template.startswith("https://"):
            url = self._template.replace("{name}", quote(name, safe="")).replace("{kind}", kind)
            return _fetched(url, kind, name)
        path = Path(self._template.replace("{name}", name).replace("{kind}", kind))
        try:
            with path.open("rb") as file:
                return file.read(_MAX_FILE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"The {kind} key {name!r} can't be read: {path}: {error.strerror}."
            ) from None


def _template(location: str) -> str:
    """Return ``location`` with places for the name and the kind of a key.

    Raises:
        ConfigurationError: it is neither a path nor a URL.
    """
    # The value is not shown: it may contain a password, or even a key.
    if not isinstance(location, str) or not location.strip():
        raise ConfigurationError("key_location must be a folder or an https:// URL.")
    location = location.removeprefix("file://")
    if "-----BEGIN" in location or location.startswith("data:"):
        raise ConfigurationError(
            "key_location must be where keys are, not a key.",
            hint="For keys in memory pass a function as key_reader.",
        )
    if "://" in location:
        from eos.transport.http import Origin  # late: it costs a new worker 14 ms

        try:
            is_right = Origin.parse(location).tls and not urlsplit(location).fragment
        except ValueError:
            is_right = False
        if not is_right:
            raise ConfigurationError(
                "key_location must be a folder or an https:// URL without user and password: keys "
                "must not be sent unencrypted."
            )
    if "{name}" in location:
        return location
    return location.rstrip("/") + "/{name}.{kind}.pem"


def _fetched(url: str, kind: KeyKind, name: str) -> bytes | None:
    from eos.transport.http import HttpService, Origin, Request, perform  # as in _template

    server = HttpService("The key server", "key_location", _HINT)
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline = time.monotonic() + _FETCH_TIMEOUT_S
    try:
        answer = perform(
            Request("GET", path), server, Origin.parse(url), verifying_context(None), deadline
        )
    except OSError as error:
        raise ConfigurationError(f"TLS files can't be loaded: {error}.") from None
    if answer.status == 200:
        return answer.body
    if answer.status in _NO_KEY:
        return None
    problem = f"The key server answered with {answer.status} for the {kind} key {name!r}."
    if answer.status in (429, 500, 502, 503, 504):
        raise BrokerNotReady(problem, hint=_HINT)
    raise ConfigurationError(problem, hint=_HINT)
