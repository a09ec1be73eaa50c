"""Detects secrets in texts that may be shown: messages of a peer, and option values."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote_plus

from eos.errors import ConfigurationError

_PART: Final = 8  # characters: a part of a secret of this length does not occur by chance
_LONG_PART: Final = 16  # which is in no host's name by chance
_DEPTH: Final = 2  # levels of nested encodings that are decoded
MAX_TEXT: Final = 4096  # of a peer's message: only so many characters are searched, and shown

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}[\s:]?){4,}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_WORD: Final = re.compile(r"[^A-Za-z0-9]")
_TOKEN: Final = re.compile(r"\s*(?:token:|bearer\s+|basic\s+)?ey[\w-]{6,}\.[\w-]*", re.IGNORECASE)
_KEY: Final = "-----BEGIN"
_SUFFIXES: Final = (".pem", ".crt", ".key", ".json", ".jwt", ".token", ".txt")
_NOT_SHOWN: Final = "(not shown: a path must begin with / or ./)"


def is_secret_like(text: str) -> bool:
    """Whether ``text``, a value for something else, looks like a JSON web token or PEM data."""
    return _TOKEN.match(text) is not None or _KEY in text


def check_no_secrets(options: Mapping[str, object], secrets: Collection[str]) -> None:
    """Check that no option outside of ``secrets`` has a secret as its value.

    Raises:
        ConfigurationError: a value looks like a secret; it is not quoted.
    """
    for name, value in options.items():  # they are shown in errors, plans and logs
        if name not in secrets and isinstance(value, str) and is_secret_like(value):
            expected = "a path" if name.endswith("_file") else "something else"
            raise ConfigurationError(
                f"{name} must be {expected}, but its value looks like a token or a key.",
                hint="Give a token by the option token, or by a file and token_file.",
            )


def path_text(path: str) -> str:
    """Return ``path`` for an error message; a placeholder if it does not look like a path."""
    # A value that is no path may be the secret itself.
    is_path = path.startswith(("/", "./", "../", "~")) or Path(path).suffix in _SUFFIXES
    return path if is_path and path.isprintable() and not is_secret_like(path) else _NOT_SHOWN


def repeats(text: str, *secrets: str, part: int = _PART) -> bool:
    """Whether ``text`` contains a part of any of ``secrets``, of ``part`` characters: plain,
    reversed, spaced out, escaped, or in base64 or hex, also nested."""
    # A peer knows the secret already, but logs have more readers.
    parts = {one for secret in secrets for one in _parts(secret, part)}
    seen = {text}
    fresh = set(seen)
    for _ in range(_DEPTH + 1):
        if any(each in one for one in _plain(fresh) for each in parts):
            return True
        fresh = {made for one in fresh for made in _decoded(one)} - seen
        seen |= fresh
    return False


def in_address(address: str, secrets: Iterable[str]) -> bool:
    """Whether a peer's ``address`` contains a long part of any of ``secrets``; or may, so long it
    is."""
    # Such an address is not used: so a password like "pulsar" must be allowed in it.
    long = [one for one in secrets if len(_WORD.sub("", one)) >= _LONG_PART]
    return bool(long) and (len(address) > MAX_TEXT or repeats(address, *long, part=_LONG_PART))


def _parts(secret: str, length: int) -> Iterator[str]:
    plain = _WORD.sub("", secret).casefold() or secret
    for start in range(max(1, len(plain) - length + 1)):
        yield plain[start : start + length]


def _plain(texts: set[str]) -> Iterator[str]:
    """Yield ``texts`` normalized like ``_parts``, forwards and backwards."""
    for text in texts:
        plain = _WORD.sub("", text).casefold()
        yield from (plain, plain[::-1], text.casefold())


def _decoded(text: str) -> Iterator[str]:
    yield unquote_plus(text)
    yield html.unescape(text)
    yield _ESCAPE.sub(lambda match: chr(int(match[1] or match[2], 16)), text)
    for found in _HEX.findall(text):
        yield bytes.fromhex(re.sub(r"[\s:]", "", found)).decode("latin-1")
    for one in (text, text[::-1]):
        for found in _BASE64.findall(re.sub(r"\s", "", one)):
            letters = found.replace("-", "+").replace("_", "/")
            for start in range(4):  # the encoded text may begin anywhere in the match
                some = letters[start:]
                with_padding = some[: len(some) - (len(some) % 4 == 1)]
                try:
                    data = base64.b64decode(with_padding + "=" * (-len(with_padding) % 4))
                except binascii.Error:
                    continue
                yield data.decode("latin-1")
