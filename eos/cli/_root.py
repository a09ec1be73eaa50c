"""Help, version and shell completion of ``eos``."""

from __future__ import annotations

import importlib
import os
from typing import Annotated

import typer

from eos import __version__
from eos.cli.programs import COMPLETES, PROGRAMS

app = typer.Typer(
    name="eos",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eos {__version__}")
        raise typer.Exit


@app.callback()
def describe(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Exactly-once, all-or-nothing writes from PySpark to Apache Pulsar.

    Each command has its own help: `eos recovery --help`, `eos recovery resolve --help`.
    """


def _not_first() -> None:
    """Called as ``eos -- recovery``, for example; ``programs.main`` runs commands."""
    typer.echo("eos: the command must be the first word: eos COMMAND ...", err=True)
    raise typer.Exit(2)


for _name, _program in PROGRAMS.items():
    if COMPLETES in os.environ:  # completion needs the commands' own words, and may take longer
        _app = importlib.import_module(_program.module).app
        app.add_typer(_app, name=_name, help=_program.summary)
    else:
        app.command(_name, help=_program.summary)(_not_first)


def main() -> None:
    """Show the help, print the version, or report wrong options."""
    app(prog_name="eos")
