"""What may be shown of storages that are opened with credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas", re.IGNORECASE)
_COLOUR: Final = re.compile(r"\x1b\[\d*m")
_OF_SYSTEM: Final = re.compile(r"[\w ,'-]+\(os error \d+\)")


def clean(error: BaseException, options: Mapping[str, str]) -> str:
    """The first line of an error's text, without any credential of ``options`` in it; and the
    system's own reason, which Delta's library has at the end of several lines."""
    lines = _COLOUR.sub("", str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    reason = _OF_SYSTEM.search("\n".join(lines[1:]))
    if reason is not None:
        text = f"{text}: {reason[0].strip()}"
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text[:500]
