"""The identity of an epoch: the query id, and the epoch's key within it.

Spark counts a streaming query's epochs 0, 1, 2, ...: they compare as numbers. A batch job has its
own keys, under the query id ``batch``: such keys only compare as equal or not.
"""

from __future__ import annotations

import re
from typing import Final

BATCH: Final = "batch"
"""The query id of every batch write."""

MAX_KEY_CHARS: Final = 1024
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
# Unicode's categories Cc and Cs, which no later version of it changes.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_streaming(query_id: str) -> bool:
    """Whether ``query_id`` names a streaming query."""
    return query_id != BATCH


def has_control_characters(text: str) -> bool:
    """Whether ``text`` holds control characters or surrogates, which can't be stored."""
    return _CONTROL.search(text) is not None


def check_key(text: str, *, what: str = "epoch") -> str:
    """Return ``text`` if it is a valid key: 1 to 1024 characters without control characters.

    Raises:
        ValueError: it is not; the message names ``what``.
    """
    if not text:
        raise ValueError(f"{what} is empty")
    if len(text) > MAX_KEY_CHARS:
        raise ValueError(f"{what} has {len(text)} characters, at most {MAX_KEY_CHARS} are allowed")
    if has_control_characters(text):
        raise ValueError(f"{what} {text!r} has control characters")
    return text


def epoch_number(query_id: str, epoch: str) -> int:
    """Return the number of a streaming query's epoch.

    Raises:
        ValueError: ``query_id`` is ``batch``, or ``epoch`` is not a canonical decimal number
            (``7``; not ``07``, ``+7`` or ``7.0``: two spellings would be two epochs).
    """
    if not is_streaming(query_id):
        raise ValueError("epochs of batch writes are not numbers")
    if not _NUMBER.fullmatch(epoch):
        raise ValueError(f"epoch {epoch[:80]!r} of a streaming query is not a plain number")
    return int(epoch)
