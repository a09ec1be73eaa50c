"""Error texts of storages that are opened with credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas", re.IGNORECASE)
_COLOUR: Final = re.compile(r"\x1b\[\d*m")
_OF_SYSTEM: Final = re.compile(r"[\w ,'-]+\(os error \d+\)")


def clean(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the first line of an error's text with every credential of ``options`` masked.

    The system's own reason is appended; Delta's library puts it after several lines.
    """
    lines = _COLOUR.sub("", str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    reason = _OF_SYSTEM.search("\n".join(lines[1:]))
    if reason is not None:
        text = f"{text}: {reason[0].strip()}"
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text[:500]
