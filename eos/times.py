"""Parse times that users give as text."""

from __future__ import annotations

from datetime import datetime
from typing import Final

_MAX_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def parse_time_ms(text: str) -> int:
    """Return milliseconds since 1970 for such a number or for ``2026-11-22T10:00:00Z``.

    Raises:
        ValueError: ``text`` is something else or has no time zone; the message shows both forms.
    """
    try:
        time_ms = int(text) if text.isdecimal() else _from_iso(text)
    except ValueError:
        time_ms = -1
    if not 0 <= time_ms <= _MAX_TIME_MS:
        raise ValueError(
            f"{text[:100]!r} is not a time: give milliseconds since 1970, or a time with its zone, "
            'for example "2026-11-22T10:00:00Z".'
        )
    return time_ms


def _from_iso(text: str) -> int:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(text)
    return int(time.timestamp() * 1000)
