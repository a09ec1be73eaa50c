"""The frame of a demo's command line: signals, exit codes, its report, and its progress bars."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Never

import jinja2
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from eos.errors import EosError

_WIDTH_CHARS: Final = 88
_EXIT_FAILED: Final = 4
_EXIT_STOPPED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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


class DemoFailed(Exception):
    """Raised when a program of the demo fails; the text names its log file."""


# Not an Exception, so that no handler treats Ctrl-C or SIGTERM as a failure.
class _StopRequested(BaseException):
    pass


def run_demo(demo: Callable[[Terminal], Conclusion]) -> Never:
    """Run ``demo`` and exit: 0, 1 or 3 as its conclusion says, 4 if it fails, 130 on a signal."""
    for number in _SIGNALS:
        signal.signal(number, _on_signal)
    started = time.monotonic()
    terminal = Terminal()
    try:
        conclusion = demo(terminal)
    except _StopRequested:
        terminal.log("stopped; all processes and temporary files are removed")
        raise typer.Exit(_EXIT_STOPPED) from None
    except (DemoFailed, TimeoutError, EosError) as error:
        terminal.fail(f"The demo failed: {error}")
        raise typer.Exit(_EXIT_FAILED) from None
    terminal.print(f"The demo took {time.monotonic() - started:.0f} s.")
    raise typer.Exit(conclusion.exit_code)


def prepare_output(folder: Path, names: Sequence[str]) -> None:
    """Create the output folder, and remove the files that an earlier run left there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).unlink(missing_ok=True)


def publish(
    terminal: Terminal,
    report: DemoReport,
    draw: Callable[[Path, Path], None],
    output: Path,
    name: str,
) -> Conclusion:
    """Print the report; write ``name.png`` and ``name.html`` to the output folder.

    Args:
        draw: writes the picture to two files, PNG and SVG.
    """
    terminal.show_table(report)
    png, svg, page = (output / f"{name}.{kind}" for kind in ("png", "svg", "html"))
    draw(png, svg)
    write_page(report, svg, page)
    svg.unlink()
    terminal.print(f"picture: {png}\npage:    {page}")
    terminal.show_verdict(report.conclusion)
    return report.conclusion


def log_tail(log: Path, lines: int = 8) -> str:
    """Return the last lines of a log, for an error message."""
    text = log.read_text(errors="replace").splitlines()
    tail = [line for line in text if line.strip()][-lines:]
    return f"The end of {log}:\n" + "\n".join(f"  | {line[:200]}" for line in tail)


def _on_signal(number: int, frame: FrameType | None) -> Never:
    del number, frame
    # A second Ctrl-C must not interrupt the clean-up.
    for ignored in _SIGNALS:
        signal.signal(ignored, signal.SIG_IGN)
    raise _StopRequested


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
)


def write_page(report: DemoReport, picture: Path, path: Path) -> None:
    """Write the page to ``path``; ``picture`` is an SVG file, which becomes part of it."""
    template = _ENVIRONMENT.get_template("page.html.jinja")
    text = template.render(report=report, picture=_element(picture.read_text(encoding="utf-8")))
    path.write_text(text, encoding="utf-8")


def _element(svg: str) -> str:
    # Without the XML prologue, whose DTD is a link: the page must need no network.
    return svg[svg.index("<svg") :].replace("<svg", '<svg role="img" aria-labelledby="picture"', 1)
