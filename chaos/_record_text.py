"""The text of an input record, which can be found and checked inside any other text.

``eos1|<id>|<padding>|<crc32c of the preceding text, hex>``. A pipeline may put it into JSON or add
other text, but must keep these characters together.
"""

from __future__ import annotations

import re
from typing import Final

from eos.wire.checksum import crc32c

_PATTERN: Final = re.compile(rb"(eos1\|([^|]*)\|[^|]*)\|([0-9a-f]{8})")


def padding(size: int) -> str:
    """Padding of this many characters."""
    return "x" * size


def text_of(record_id: str, filler: str = "") -> str:
    """The text of a record; neither part may contain ``|``."""
    text = f"eos1|{record_id}|{filler}"
    return f"{text}|{crc32c(text.encode()):08x}"


def id_in(value: bytes) -> str | None:
    """The id of the record in ``value``; None if there is none, or it is damaged."""
    found = _PATTERN.search(value)
    if found is None or f"{crc32c(found[1]):08x}".encode() != found[3]:
        return None
    return found[2].decode(errors="replace")
