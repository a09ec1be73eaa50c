"""What the demo prints: bars and events in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.report import CAPTION, NAMES, Line
from examples.flights.run import Way

_WIDTH_CHARS: Final = 88


class Teller:
    """One terminal or file, and the seconds since the start before each event.

    Attributes:
        console: for what else is to be shown there.
    """

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        if not self.console.is_terminal:
            self.console = Console(highlight=False, width=_WIDTH_CHARS)
        self._width = min(_WIDTH_CHARS, self.console.width)
        self._started = time.monotonic()

    def tell(self, text: str) -> None:
        """Something happened."""
        self.console.print(
            f"[dim]{time.monotonic() - self._started:6.1f} s[/]  {escape(text)}", soft_wrap=True
        )

    def say(self, text: str) -> None:
        """A line of text."""
        self.console.print(escape(text), soft_wrap=True)

    def praise(self, text: str) -> None:
        """The verdict, when it is good."""
        self.console.print(f"\n[bold green]{escape(text)}[/]", soft_wrap=True)

    def fail(self, text: str) -> None:
        """The verdict, when it is not."""
        self.console.print(f"\n[bold red]{escape(text)}[/]", soft_wrap=True)

    @contextmanager
    def chapter(self, title: str, epochs: int) -> Iterator[Callable[[int], None]]:
        """The run of one way; gives what to call with the number of epochs done."""
        self.console.print()
        self.console.rule(f"[bold]{escape(title)}", align="left", style="dim")
        if not self.console.is_terminal:
            yield lambda done: self.tell(f"{done} of {epochs} epochs")
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

    def table(self, lines: Sequence[Line], ways: Sequence[Way]) -> None:
        """The figures, one column for each way."""
        table = Table(caption=CAPTION, caption_justify="left", width=self._width)
        table.add_column("the same job, under the same kills")
        for way in ways:
            table.add_column(NAMES[way].replace(" + ", " +\n"), justify="right", min_width=18)
        for line in lines:
            cells = [
                f"[bold red]{escape(cell)}[/]" if bad else escape(cell)
                for cell, bad in zip(line.cells, line.bad, strict=True)
            ]
            table.add_row(line.label, *cells)
        self.console.print()
        self.console.print(table)

    def log_says(self, proof: Sequence[str]) -> None:
        """What the commit log says about the killed epochs."""
        if proof:
            self.console.print("\nWhat eos's commit log says:")
        for text in proof:
            self.console.print(f"- {escape(text)}.", width=self._width)
        self.console.print()
