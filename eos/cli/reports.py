"""What a verb found: one object that is shown to people and printed as JSON."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field
from rich.console import Console
from rich.markup import escape as rich_escape
from rich.table import Table

from eos.cli.exit_codes import Exit
from eos.errors import printable


class Facts(BaseModel):
    """A part of a report. Times are UTC; ages and durations in seconds."""

    model_config = ConfigDict(frozen=True)


class Report(Facts):
    """The whole of what one verb has to say."""

    @property
    @abstractmethod
    def exit(self) -> Exit:
        """What the verb exits with."""

    @abstractmethod
    def render(self, console: Console) -> None:
        """Show it to a person."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """The exit code, for readers of the JSON."""
        return int(self.exit)

    def to_json(self) -> str:
        """The report as one JSON object; its fields are part of the public face."""
        return ascii_json(json.loads(self.model_dump_json()), indent=2)


def escape(text: Any) -> str:
    """Text from outside, so that rich shows it instead of obeying it."""
    return rich_escape(printable(str(text)))


def ascii_json(value: Any, *, indent: int | None = None) -> str:
    """JSON without a character that a terminal would obey, and without loss."""
    # DEL is the one that JSON leaves as it is, and it can only stand in a text.
    return json.dumps(value, indent=indent).replace("\x7f", "\\u007f")


def facts_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and what is said of them, below a heading; reads in a narrow terminal, too."""
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=True)
    table.add_column(width=1)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row("", escape(name), escape(text))
    return table


def now() -> datetime:
    """The time that ages are counted from."""
    return datetime.now(UTC)


def age_s(then: datetime | None) -> float | None:
    """Seconds since ``then``."""
    return None if then is None else round((now() - then).total_seconds(), 1)


def duration(seconds: float | None) -> str:
    """``35 ms``, ``12 s``, ``4 min``, ``3 h``, ``2 d``: as coarse as a person wants it."""
    if seconds is None:
        return "-"
    sign, size = ("-", -seconds) if seconds < 0 else ("", seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if size >= 2 * length:
            return f"{sign}{size / length:.0f} {unit}"
    if size < 1:
        return f"{sign}{size * 1000:.0f} ms"
    return f"{sign}{size:.1f} s" if size < 10 else f"{sign}{size:.0f} s"
