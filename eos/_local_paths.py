"""Local folder names that Delta's libraries misread."""

from __future__ import annotations

import re
from typing import Final

_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]\x00-\x1f\x7f]")


def misread_by_delta(path: str) -> str | None:
    """Return the part of ``path`` that Delta misreads, or None.

    ``deltalake`` 1.6 lists the folder ``a%20b`` and opens files in ``a b``; it reads a backslash
    as a slash, panics on brackets, and finds nothing after a control character (measured).
    """
    found = _MISREAD.search(path)
    return found[0] if found else None
