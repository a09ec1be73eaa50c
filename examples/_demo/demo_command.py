"""The frame of a demo's command line: signals, exit codes, and where the report goes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, Never

import jinja2
import typer

from eos.errors import EosError
from examples._demo.terminal import Conclusion, DemoReport, Terminal

_EXIT_FAILED: Final = 4
_EXIT_STOPPED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
