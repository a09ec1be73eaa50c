"""What a verb found: one object that is shown to people and printed as JSON."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field
from rich.console import Console
from rich.table import Table

from eos.errors import printable
from recovery.exits import Exit


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
        return self.model_dump_json(indent=2)


class PlanStep(Facts):
    """One thing that ``--apply`` would do."""

    what: str
    why: str


class Plan(Report):
    """What a verb would change. Nothing was changed yet."""

    steps: list[PlanStep]
    warnings: list[str] = []
    refused: list[str] = []
    """What was asked for and will not be done, with the reason."""

    @property
    def exit(self) -> Exit:
        """Something to do, or refused: action; nothing: clean."""
        return Exit.NEEDS_ACTION if self.steps or self.refused else Exit.CLEAN

    def render(self, console: Console) -> None:
        """The steps by number, then what to know before."""
        if not self.steps and not self.refused:
            console.print("[green]Nothing to do.[/]")
        for number, step in enumerate(self.steps, 1):
            console.print(f"[bold]{number}.[/] {escape(step.what)}")
            console.print(f"   [dim]{escape(step.why)}[/]")
        for text in self.refused:
            console.print(f"[red]Refused:[/] {escape(text)}")
        for text in self.warnings:
            console.print(f"[yellow]Know before:[/] {escape(text)}")


class Outcome(Report):
    """What ``--apply`` did."""

    done: list[str]
    failed: list[str]
    unknown: list[str]

    @property
    def exit(self) -> Exit:
        """Failed steps need action; what can't be proved now is unknown."""
        if self.failed:
            return Exit.NEEDS_ACTION
        return Exit.UNKNOWN if self.unknown else Exit.CLEAN

    def render(self, console: Console) -> None:
        """What was done, and what was not."""
        for text in self.done:
            console.print(f"[green]Done:[/] {escape(text)}")
        for text in self.failed:
            console.print(f"[red]Failed:[/] {escape(text)}")
        for text in self.unknown:
            console.print(f"[yellow]Unknown:[/] {escape(text)}")
        if not (self.done or self.failed or self.unknown):
            console.print("[green]Nothing had to be done.[/]")


def escape(text: Any) -> str:
    """Text from outside, so that rich shows it instead of obeying it."""
    from rich.markup import escape as rich_escape

    return rich_escape(printable(str(text)))


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
