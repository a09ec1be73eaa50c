"""Reasons of aborts: the ``reason`` column, text of the form ``<kind>: <detail>``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_DETAIL_CHARS: Final = 500


class ReasonKind(StrEnum):
    """The kinds of reasons. The value begins the text of the ``reason`` column."""

    EXPIRED = "EXPIRED"
    """The transaction outlived its time to live and the broker aborted it."""
    POISONED = "POISONED"
    """A send is in doubt, or a task or the stage ran more than once."""
    INPUT = "INPUT"
    """The rows can't be written as they are."""
    RECOVERY = "RECOVERY"
    """A later run found the transaction open and ended it."""
    EMPTY = "EMPTY"
    """There were no records to write."""
    BROKER = "BROKER"
    """The broker refused or failed."""
    FAILED = "FAILED"
    """Anything else, such as an error in the user's query."""
    DECIDED = "DECIDED"
    """A person decided because nothing could be proved; the detail says who, and why."""


@dataclass(frozen=True)
class Reason:
    """A kind and one line of detail.

    ``detail`` is often the text of another library's error, and must not make an abort fail: white
    space and control characters become single spaces, and text beyond 500 characters is cut.
    """

    kind: ReasonKind
    detail: str

    def __post_init__(self) -> None:
        printable = "".join(char if char.isprintable() else " " for char in self.detail)
        clean = " ".join(printable.split())
        if len(clean) > MAX_DETAIL_CHARS:
            clean = clean[: MAX_DETAIL_CHARS - 3] + "..."
        object.__setattr__(self, "detail", clean)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"

    @classmethod
    def parse(cls, text: str) -> Reason:
        """The inverse of ``str``.

        Raises:
            ValueError: ``text`` does not begin with a known kind and a colon.
        """
        kind, colon, detail = text.partition(":")
        if not colon:
            raise ValueError(f"not a reason: {text[:80]!r}")
        return cls(ReasonKind(kind), detail.removeprefix(" "))
