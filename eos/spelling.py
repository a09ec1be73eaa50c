"""Option names that are spelt differently."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


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
