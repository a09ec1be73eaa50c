"""Names of options and times, as users write them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

_MAX_TIME_MS: Final = 253_402_300_799_999  # the end of the year 9999


def plain(name: str) -> str:
    """Return a name in lower case and without ``_``, ``.`` and ``-``."""
    return re.sub(r"[._-]", "", name).lower()


def unknown_option(name: str, known: Iterable[str]) -> str:
    """Return the error text for the unknown option ``name``.

    It suggests the closest known option, or lists all of them.
    """
    options = list(known)
    spelt = {plain(option): option for option in options}
    close = difflib.get_close_matches(plain(name), spelt, n=1, cutoff=0.75)
    if close:
        return f"there is no option {name!r}: did you mean {spelt[close[0]]!r}?"
    return f"there is no option {name!r}; options are: {', '.join(options)}"


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
