"""Folders of this machine whose names Delta's libraries take for something else."""

from __future__ import annotations

import re
from typing import Final

_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]\x00-\x1f\x7f]")


def misread_by_delta(path: str) -> str | None:
    """What in ``path`` Delta does not read as it stands; None: nothing.

    ``deltalake`` 1.6 lists the folder ``a%20b`` and opens files in ``a b``; a backslash is a slash
    to it, brackets make it panic, and behind a control character it finds nothing (measured).
    """
    found = _MISREAD.search(path)
    return found[0] if found else None
