"""Build typer commands from plain functions, and end each with its documented exit code."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, escape, exit_of
from eos.errors import EosError

R = TypeVar("R")

_TYPER_USAGE: Final = 2


class VerbExit(SystemExit):
    """The exit of a verb, as opposed to typer's."""


def run_program(app: typer.Typer) -> None:
    """Run ``app``, and end the process; ``sys.argv[0]`` is the program's name."""
    # The report has the errors; a library's log lines would only repeat them.
    logging.disable(logging.ERROR)
    try:
        app(prog_name=sys.argv[0])
    except VerbExit:
        raise
    except SystemExit as ending:
        if ending.code != _TYPER_USAGE:
            raise
        # Typer's code for wrong options, which means "unknown" here.
        sys.exit(Exit.USAGE)
    except EosError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[red]{sys.argv[0]}:[/] {escape(error)}", highlight=False
        )
        sys.exit(exit_of(error))


def with_options(function: Callable[..., R], **makers: Callable[..., Any]) -> Callable[..., R]:
    """Replace parameters of ``function`` by those of the functions that make them.

    ``makers``: such a function for each parameter to replace, for example ``target``. The command
    then has the options of both.
    """
    own = inspect.signature(function, eval_str=True).parameters
    made = {
        name: inspect.signature(make, eval_str=True).parameters for name, make in makers.items()
    }

    @functools.wraps(function)
    def run(**values: Any) -> R:
        for name, make in makers.items():
            values[name] = make(**{option: values.pop(option) for option in made[name]})
        return function(**values)

    parameters = [
        *(one for name, one in own.items() if name not in makers),
        *(one for options in made.values() for one in options.values()),
    ]
    del run.__wrapped__  # typer would follow it and find parameters of unknown types
    named = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in named}
    return run


def reporting(command: Callable[..., Report]) -> Callable[..., None]:
    """Make ``command``, which has the option ``json_``, print its report and exit accordingly."""

    @functools.wraps(command)
    def run(**values: Any) -> None:
        report = command(**values)
        if values["json_"]:
            sys.stdout.writelines(f"{line}\n" for line in report.to_json().splitlines())
        else:
            report.render(Console())
        sys.stdout.flush()
        raise VerbExit(int(report.exit))

    run.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    del run.__wrapped__
    return run
