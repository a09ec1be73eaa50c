"""What an input record looks like, so that it is found and checked in whatever carries it.

``eos1|<id>|<padding>|<crc32c of what is before, hex>``: a pipeline may put it into JSON or add to
it, as long as these characters stay together.
"""

from __future__ import annotations

import re
from typing import Final

from eos.wire.checksum import crc32c

_PATTERN: Final = re.compile(rb"(eos1\|([^|]*)\|[^|]*)\|([0-9a-f]{8})")


def padding(size: int) -> str:
    """So many characters that mean nothing."""
    return "x" * size


def text_of(record_id: str, filler: str = "") -> str:
    """The text of a record; neither part may contain ``|``."""
    text = f"eos1|{record_id}|{filler}"
    return f"{text}|{crc32c(text.encode()):08x}"


def id_in(value: bytes) -> str | None:
    """The id of the record that ``value`` carries; None when there is none, or it is damaged."""
    found = _PATTERN.search(value)
    if found is None or f"{crc32c(found[1]):08x}".encode() != found[3]:
        return None
    return found[2].decode(errors="replace")
