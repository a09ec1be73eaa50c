"""Parse Java properties files like ``java.util.Properties.load``.

Source: the documentation of that method in the Java API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_BLANK: Final = " \t\f"
_PAIR: Final = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return names and values; the last one wins if a name is repeated.

    Raises:
        ValueError: an escape ``\\uXXXX`` does not have four digits; Java refuses it too.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        assert pair is not None  # every text matches
        found[_unescape(pair["name"])] = _unescape(pair["value"])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines without comments and blank lines; an odd number of backslashes continues one."""
    begun = ""
    is_continued = False
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANK)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if is_continued else line
        if not is_continued:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        digits, letter = match[1], match[2]
        if digits is not None:
            return chr(int(digits, 16))
        if letter == "u":
            raise ValueError("malformed \\uXXXX")
        return _LETTERS.get(letter, letter or "")

    return _ESCAPE.sub(meaning, text)
