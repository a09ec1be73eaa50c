"""A command line from its start to its end: every ending has the exit code of the manual."""

from __future__ import annotations

import logging
import sys
from typing import Final

import typer
from rich.console import Console

from eos.cli._exits import Exit, exit_of
from eos.cli._report import escape
from eos.errors import EosError

_TYPER_USAGE: Final = 2


class VerbExit(SystemExit):
    """A verb's own ending, told apart from typer's."""


def run_program(app: typer.Typer) -> None:
    """Run ``app``, and end the process; ``app`` has its program's name."""
    # What goes wrong on the way is in the report; a library's log lines would only repeat it.
    logging.disable(logging.ERROR)
    try:
        app()
    except VerbExit:
        raise
    except SystemExit as ending:
        if ending.code != _TYPER_USAGE:
            raise
        # Typer's own code for wrong options, which here says "unknown".
        sys.exit(Exit.USAGE)
    except EosError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[red]{app.info.name}:[/] {escape(error)}", highlight=False
        )
        sys.exit(exit_of(error))
