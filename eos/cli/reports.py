"""Reports of the verbs, as text or JSON, and their exit codes."""

from __future__ import annotations

import errno
import json
from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field
from rich.console import Console
from rich.markup import escape as rich_escape
from rich.table import Table

from eos.errors import (
    CommitLogUnreadable,
    ConfigurationError,
    EosError,
    Indeterminate,
    ProtocolError,
    Retriable,
    Unauthorized,
    printable,
)


class Exit(IntEnum):
    """The exit codes of all commands but ``eos broker``."""

    CLEAN = 0
    NEEDS_ACTION = 1
    UNKNOWN = 2
    USAGE = 64  # EX_USAGE of sysexits.h


def exit_of(error: EosError) -> Exit:
    """Return the exit code of a verb that ended with ``error``."""
    if isinstance(error, ConfigurationError):
        return Exit.USAGE
    # A server is unreachable, denies access or gives an invalid answer: the state may be good.
    if isinstance(
        error, Retriable | Indeterminate | Unauthorized | ProtocolError | CommitLogUnreadable
    ):
        return Exit.UNKNOWN
    return Exit.NEEDS_ACTION


def unwritable(what: str, error: Exception) -> EosError:
    """Return the error for a file that can't be written; a full or failing disk is no usage."""
    of_disk = errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO
    cls = Retriable if getattr(error, "errno", None) in of_disk else ConfigurationError
    return cls(f"{what}: {getattr(error, 'strerror', error)}.")


def worst(*exits: Exit) -> Exit:
    """Return the most urgent one: usage, then action, then unknown, then clean."""
    for code in (Exit.USAGE, Exit.NEEDS_ACTION, Exit.UNKNOWN):
        if code in exits:
            return code
    return Exit.CLEAN


class Facts(BaseModel):
    """A part of a report. Times are UTC; ages and durations in seconds."""

    model_config = ConfigDict(frozen=True)


class Report(Facts):
    """The complete result of one verb."""

    @property
    @abstractmethod
    def exit(self) -> Exit:
        """The verb's exit code."""

    @abstractmethod
    def render(self, console: Console) -> None:
        """Print it as text."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """The exit code, as a field of the JSON."""
        return int(self.exit)

    def to_json(self) -> str:
        """Return the report as one JSON object; its fields are public API."""
        return ascii_json(json.loads(self.model_dump_json()), indent=2)


def error_json(error: EosError) -> str:
    """Return the line of JSON that stands in place of a report."""
    text = str(error).removesuffix(error.hint).rstrip()
    return ascii_json({"error": text, "hint": error.hint, "exit_code": int(exit_of(error))})


def escape(text: Any) -> str:
    """Escape foreign text, so that rich and the terminal show it instead of interpreting it."""
    return rich_escape(printable(str(text)))


def new_console(**settings: Any) -> Console:
    """Return a console that prints ``orders:key:v1`` as it is: rich would make it an emoji."""
    return Console(emoji=False, **settings)


def ascii_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON without characters that control a terminal, and without loss."""
    # DEL is the only one that JSON does not escape; it occurs in strings only.
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def table_of(*names: str) -> Table:
    """Return a table of these columns, which cuts off no name or command that is copied from it."""
    table = Table()
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def facts_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and texts, for below a heading."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=True)
    table.add_column(width=1)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")  # fits a narrow terminal
    for name, text in rows:
        table.add_row("", escape(name), escape(text))
    return table


def now() -> datetime:
    """Return the current time (UTC), from which ages are computed."""
    return datetime.now(UTC)


def age_s(then: datetime | None) -> float | None:
    """Return the seconds since ``then``."""
    return None if then is None else round((now() - then).total_seconds(), 1)


def ago(seconds: float | None) -> str:
    """Return for example ``3 h ago``, or ``3 h from now`` if a later clock wrote the time."""
    if seconds is not None and seconds < 0:
        return f"{duration(-seconds)} from now"
    return f"{duration(seconds)} ago"


def counted(count: int, what: str) -> str:
    """Return for example ``1 entry``, ``2,000 entries``; ``what``: in the singular."""
    plural = f"{what.removesuffix('y')}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what if count == 1 else plural}"


def duration(seconds: float | None) -> str:
    """Format a duration coarsely: ``35 ms``, ``12 s``, ``4 min``, ``3 h``, ``2 d``."""
    if seconds is None:
        return "-"
    sign, size = ("-", -seconds) if seconds < 0 else ("", seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= 2 * length:
            return f"{sign}{size / length:.0f} {unit}"
    if size < 1:
        return f"{sign}{size * 1000:.0f} ms"
    return f"{sign}{size:.1f} s" if size < 10 else f"{sign}{size:.0f} s"
