"""A report that is refreshed periodically until Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from eos.cli.commands import VerbExit
from eos.cli.reports import Exit, Report, now
from eos.errors import EosError, printable

R = TypeVar("R", bound=Report)


class Watch(Generic[R]):
    """Calls ``read`` every ``every_s`` seconds and shows the report as ``table``."""

    def __init__(
        self, read: Callable[[], R], table: Callable[[R], RenderableType], every_s: float
    ) -> None:
        self._read = read
        self._table = table
        self._every_s = every_s

    def run(self, *, as_json: bool) -> NoReturn:
        """Show reports until Ctrl-C, or until the output pipe is closed.

        Raises:
            EosError: the first report failed.
            VerbExit: at the end, always; with exit code 0.
        """
        with contextlib.suppress(KeyboardInterrupt):
            try:
                first = self._read()
                self._print_lines(first) if as_json else self._show(first)
            except BrokenPipeError:
                # Python would report the unwritten buffer at exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise VerbExit(int(Exit.CLEAN))

    def _print_lines(self, report: R) -> NoReturn:
        print(report.model_dump_json(), flush=True)
        while True:
            time.sleep(self._every_s)
            try:
                line = self._read().model_dump_json()
            except EosError as error:
                line = json.dumps({"error": str(error)})
            print(line, flush=True)

    def _show(self, report: R) -> NoReturn:
        console = Console()
        shown = self._framed(self._table(report))
        if not console.is_terminal:
            while True:
                console.print(shown)
                console.file.flush()
                shown = self._next()
        with Live(shown, console=console, auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                live.update(self._next(), refresh=True)

    def _next(self) -> RenderableType:
        time.sleep(self._every_s)
        try:
            return self._framed(self._table(self._read()))
        except EosError as error:
            return self._framed(Text(printable(str(error)), style="red"))

    def _framed(self, shown: RenderableType) -> RenderableType:
        note = (
            f"{now():%Y-%m-%d %H:%M:%S} UTC, refreshed every {self._every_s:g} s; stop with Ctrl-C"
        )
        return Group(shown, Text(note, style="dim"))
