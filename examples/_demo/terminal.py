"""A demo's output: its report, and progress bars in a terminal or plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_WIDTH_CHARS: Final = 88


@dataclass(frozen=True)
class ReportLine:
    """A line of the table, with a cell for each column; ``bad`` marks the cells that show harm."""

    label: str
    cells: tuple[str, ...]
    bad: tuple[bool, ...]


@dataclass(frozen=True)
class Conclusion:
    """The verdict of a demo.

    Attributes:
        anomalies: errors of eos, in words.
        unproved: kills without effect, so the demo showed nothing. Both empty: exactly once.
    """

    anomalies: tuple[str, ...]
    unproved: tuple[str, ...]
    success: str

    @property
    def exit_code(self) -> int:
        """0: exactly once; 1: not exactly once; 3: nothing was shown."""
        return 1 if self.anomalies else 3 if self.unproved else 0

    @property
    def sentence(self) -> str:
        """The verdict."""
        if self.anomalies:
            return f"eos failed: {'; '.join(self.anomalies)}."
        if self.unproved:
            return f"Nothing was shown: {'; '.join(self.unproved)}."
        return self.success


@dataclass(frozen=True)
class DemoReport:
    """A demo's whole report.

    Attributes:
        table_title, columns, lines: the table; ``columns`` without the one of the labels.
        evidence: the commit log on the killed epochs, one sentence each, without a full stop.
        code: texts to show as they are, each with its title.
    """

    title: str
    conclusion: Conclusion
    summary: str
    table_title: str
    columns: tuple[str, ...]
    lines: tuple[ReportLine, ...]
    caption: str
    picture_title: str
    picture_caption: str
    evidence: tuple[str, ...] = ()
    code: tuple[tuple[str, str], ...] = ()


class Terminal:
    """Prints to a terminal or a file."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=_WIDTH_CHARS)
        self._width = min(_WIDTH_CHARS, self.console.width)
        self._started = time.monotonic()

    def log(self, text: str) -> None:
        """Print an event, after the seconds since the start."""
        self.console.print(
            f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {escape(text)}", soft_wrap=True
        )

    def print(self, text: str) -> None:
        """Print a line of text."""
        self.console.print(escape(text), soft_wrap=True)

    def fail(self, text: str) -> None:
        """Print an error in red."""
        self.console.print(f"\n[bold red]{escape(text)}[/]", soft_wrap=True)

    def show_verdict(self, conclusion: Conclusion) -> None:
        """Print the verdict, in green or red."""
        color = "red" if conclusion.exit_code else "green"
        self.console.print(f"\n[bold {color}]{escape(conclusion.sentence)}[/]", soft_wrap=True)

    @contextmanager
    def section(self, title: str, epochs: int) -> Iterator[Callable[[int], None]]:
        """Print a heading; yield a function that shows how many epochs are done."""
        self.console.print()
        self.console.rule(f"[bold]{escape(title)}", align="left", style="dim")
        if not self.console.is_terminal:
            yield lambda done: self.log(f"{done} of {epochs} epochs")
            return
        columns = (
            TextColumn("[dim]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            task = bar.add_task("epochs", total=epochs)
            yield lambda done: bar.update(task, completed=done)

    def show_table(self, report: DemoReport) -> None:
        """Print the table, the evidence from the commit log, and code."""
        table = Table(caption=report.caption, caption_justify="left", width=self._width)
        table.add_column(report.table_title)
        for column in report.columns:
            table.add_column(column.replace(" + ", " +\n"), justify="right", min_width=18)
        for line in report.lines:
            cells = [
                f"[bold red]{escape(cell)}[/]" if bad else escape(cell)
                for cell, bad in zip(line.cells, line.bad, strict=True)
            ]
            table.add_row(line.label, *cells)
        self.console.print()
        self.console.print(table)
        if report.evidence:
            self.console.print("\nThe commit log of eos says:")
        for text in report.evidence:
            self.console.print(f"- {escape(text)}.", width=self._width)
        for title, text in report.code:
            self.console.print(f"\n[bold]{escape(title)}[/]\n{escape(text)}", soft_wrap=True)
        self.console.print()
