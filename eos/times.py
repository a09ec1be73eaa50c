"""Times that a user gives as text."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def parse_time_ms(text: str) -> int:
    """Milliseconds since 1970, of such a number or of ``2026-11-22T10:00:00Z``.

    Raises:
        ValueError: it is neither, or has no zone; says what is allowed.
    """
    try:
        time_ms = int(text) if text.isdecimal() else _from_iso(text)
    except ValueError:
        time_ms = -1
    if not 0 <= time_ms <= _MAX_TIME_MS:
        raise ValueError(
            f"{text[:100]!r} is no time: give milliseconds since 1970, or a time with its zone, "
            '"2026-11-22T10:00:00Z" for example.'
        )
    return time_ms


def _from_iso(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return int(time.timestamp() * 1000)
