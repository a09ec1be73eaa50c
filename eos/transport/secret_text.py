"""Texts that may hold a secret, and must not be shown then: what a peer says, and options.

A peer has the secret anyway; a log has more readers. So what a peer says is looked at as it is and
as what it may stand for, and is not shown where any part of the secret is in that.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote_plus

from eos.errors import ConfigurationError

_PART: Final = 8
"""Letters: a part of a secret that is as long is not there by chance."""
_DEPTH: Final = 2
"""How many times over it may be encoded."""
MAX_TEXT: Final = 4096
"""Of what a peer says; more of it is not looked at, and not shown."""

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2}[\s:]?){4,}")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_WORD: Final = re.compile(r"[^A-Za-z0-9]")


_TOKEN: Final = re.compile(r"\s*(?:token:|bearer\s+|basic\s+)?ey[\w-]{6,}\.[\w-]*", re.IGNORECASE)
_KEY: Final = "-----BEGIN"


def is_secret_like(text: str) -> bool:
    """Whether ``text``, given for something else, looks like a JSON web token or a PEM file."""
    return _TOKEN.match(text) is not None or _KEY in text


def check_no_secrets(options: Mapping[str, object], secrets: Collection[str]) -> None:
    """Check that none of ``options`` has a secret, but those that are ``secrets``: their values are
    shown in errors, in plans and in logs.

    Raises:
        ConfigurationError: one looks as if; its value is not repeated.
    """
    for name, value in options.items():
        if name not in secrets and isinstance(value, str) and is_secret_like(value):
            what = "the path of a file" if name.endswith("_file") else "no secret"
            raise ConfigurationError(
                f"{name} is {what}; what it is given looks like a token or a key itself.",
                hint="A token belongs into token, or into a file that token_file names.",
            )


def path_text(path: str) -> str:
    """``path`` for an error; nothing of it when it does not look like one: a secret may have been
    given for its file's path."""
    is_path = path.startswith(("/", "./", "../", "~")) or Path(path).suffix in _SUFFIXES
    return path if is_path and path.isprintable() and not is_secret_like(path) else _NOT_SHOWN


_SUFFIXES: Final = (".pem", ".crt", ".key", ".json", ".jwt", ".token", ".txt")
_NOT_SHOWN: Final = "(not shown: it does not begin with / or ./, as a path does)"


def repeats(text: str, *secrets: str) -> bool:
    """Whether any of ``secrets`` is in ``text``, in whole or in part: as it is, backwards, spaced
    out, escaped, or in base64 or hex, also one in the other."""
    parts = {part for secret in secrets for part in _parts(secret)}
    seen = {text}
    fresh = set(seen)
    for _ in range(_DEPTH + 1):
        if any(part in one for one in _plain(fresh) for part in parts):
            return True
        fresh = {made for one in fresh for made in _decoded(one)} - seen
        seen |= fresh
    return False


def _parts(secret: str) -> Iterator[str]:
    plain = _WORD.sub("", secret).casefold() or secret
    for start in range(max(1, len(plain) - _PART + 1)):
        yield plain[start : start + _PART]


def _plain(texts: set[str]) -> Iterator[str]:
    """As ``_parts`` are, both ways."""
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
            for start in range(4):  # it may begin in the middle of a word
                some = letters[start:]
                with_padding = some[: len(some) - (len(some) % 4 == 1)]
                try:
                    data = base64.b64decode(with_padding + "=" * (-len(with_padding) % 4))
                except binascii.Error:
                    continue
                yield data.decode("latin-1")
