"""A report that is shown again and again, until somebody has seen enough."""

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
from eos.cli.exit_codes import Exit
from eos.cli.reports import Report, now
from eos.errors import EosError, printable

R = TypeVar("R", bound=Report)


class Watching(Generic[R]):
    """Looks every ``every_s`` seconds, and shows what it sees as ``table``."""

    def __init__(
        self, look: Callable[[], R], table: Callable[[R], RenderableType], every_s: float
    ) -> None:
        self._look = look
        self._table = table
        self._every_s = every_s

    def run(self, *, as_json: bool) -> NoReturn:
        """Look, and look again, until Ctrl-C, or until nobody reads any more.

        Raises:
            EosError: the first look failed.
            VerbExit: in the end; with exit code 0.
        """
        with contextlib.suppress(KeyboardInterrupt):
            try:
                first = self._look()
                self._print_lines(first) if as_json else self._show(first)
            except BrokenPipeError:
                # What is left in the buffer would be complained of when the process ends.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise VerbExit(int(Exit.CLEAN))

    def _print_lines(self, report: R) -> NoReturn:
        print(report.model_dump_json(), flush=True)
        while True:
            time.sleep(self._every_s)
            try:
                line = self._look().model_dump_json()
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
            return self._framed(self._table(self._look()))
        except EosError as error:
            return self._framed(Text(printable(str(error)), style="red"))

    def _framed(self, shown: RenderableType) -> RenderableType:
        note = f"{now():%Y-%m-%d %H:%M:%S} UTC, every {self._every_s:g} s; Ctrl-C ends it"
        return Group(shown, Text(note, style="dim"))
