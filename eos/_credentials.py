"""What may be shown of storages that are opened with credentials."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas", re.IGNORECASE)


def clean(error: BaseException, options: Mapping[str, str]) -> str:
    """The first line of an error's text, without any credential of ``options`` in it."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text[:500]
