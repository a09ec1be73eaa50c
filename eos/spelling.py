"""Names that somebody has spelt in another way."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable


def plain(name: str) -> str:
    """A name without what does not count: upper and lower case, ``_``, ``.`` and ``-``."""
    return re.sub(r"[._-]", "", name).lower()


def no_option(name: str, known: Iterable[str]) -> str:
    """That there is no option ``name``: with the one that is meant, where that is clear, else with
    all that there are."""
    options = list(known)
    spelt = {plain(option): option for option in options}
    close = difflib.get_close_matches(plain(name), spelt, n=1, cutoff=0.75)
    if close:
        return f"there is no option {name!r}: did you mean {spelt[close[0]]!r}?"
    return f"there is no option {name!r}; options are: {', '.join(options)}"
