"""The demo while it runs: a moving picture in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.baskets.baskets_run import BasketsRun

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_WIDTH: Final = 56
_LINE_EVERY_S: Final = 10.0


class LiveView:
    """Draws a run several times a second, or prints a summary every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._printed_at = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Keep the picture on screen during the block; other output appears above it."""
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=4) as self._live:
            yield

    def show(self, run: BasketsRun) -> None:
        """Show the present state of the run."""
        if self._live is not None:
            self._live.update(_picture(run))
        elif time.monotonic() - self._printed_at > _LINE_EVERY_S:
            self._printed_at = time.monotonic()
            self._console.print(f"          {_summary(run)}", soft_wrap=True)


def _summary(run: BasketsRun) -> str:
    backlog = run.backlog[-1][1] if run.backlog else 0
    committed = run.committed
    return (
        f"{run.sent:,} of {len(run.year.baskets):,} baskets sent, backlog {backlog} entries, "
        f"{len(committed)} epochs, {sum(committed.values()):,} rows out, "
        f"watermark {run.watermark or 'none'}"
    )


def _picture(run: BasketsRun) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", justify="right")
    grid.add_column(width=_WIDTH, no_wrap=True)
    grid.add_column(no_wrap=True)
    committed, readings = run.committed, [entries for _, entries in run.backlog]
    filled = round(run.share_sent * _WIDTH)
    bar = Text("█" * filled, "blue").append("░" * (_WIDTH - filled), "dim")
    grid.add_row("input", bar, f"{run.sent:,} baskets")
    backlog = Text(sparkline(readings, _WIDTH), "yellow")
    grid.add_row("backlog", backlog, f"{readings[-1] if readings else 0} entries")
    rows = sparkline(list(committed.values()), _WIDTH)
    grid.add_row("epochs", Text(rows, "green"), f"{len(committed)} committed")
    marks = f"watermark {run.watermark or 'none'}, the producer aborted {run.aborted}"
    grid.add_row("", marks, f"{sum(committed.values()):,} rows out")
    kills = [Text(f"✗ {kill.text}", "red") for kill in run.kills]
    return Panel(Group(grid, *kills), title="baskets, exactly once", title_align="left")


def sparkline(numbers: Sequence[int], width: int) -> str:
    """Return the newest ``width`` numbers as blocks of their height."""
    newest = numbers[-width:]
    top = max(newest, default=0) or 1  # all may be zero
    return "".join(_BLOCKS[-(-n * (len(_BLOCKS) - 1) // top)] for n in newest)
