"""What a server's log says of its end."""

from __future__ import annotations

import re
from typing import Final

_RELEVANT: Final = re.compile(r"ERROR|Exception|Caused by|Error:|FATAL")


def relevant_tail(log: str, count: int = 15) -> str:
    """The last lines that say what went wrong, or the last lines when none does."""
    lines = log.splitlines()
    relevant = [line for line in lines if _RELEVANT.search(line)] or lines
    return "\n".join(line[:300] for line in relevant[-count:])
