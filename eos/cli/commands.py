"""Commands of typer, made of functions that know nothing of it, and how a command line ends.

A command's function takes an object, ``target`` for example, that another function makes of
options: the command has the options of both. Every ending has the exit code of the manual.
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from rich.console import Console

from eos.cli.exit_codes import Exit, exit_of
from eos.cli.reports import Report, escape
from eos.errors import EosError

R = TypeVar("R")

_TYPER_USAGE: Final = 2


class VerbExit(SystemExit):
    """A verb's own ending, told apart from typer's."""


def run_program(app: typer.Typer) -> None:
    """Run ``app``, and end the process; ``sys.argv[0]`` is the program's name."""
    # What goes wrong on the way is in the report; a library's log lines would only repeat it.
    logging.disable(logging.ERROR)
    try:
        app(prog_name=sys.argv[0])
    except VerbExit:
        raise
    except SystemExit as ending:
        if ending.code != _TYPER_USAGE:
            raise
        # Typer's own code for wrong options, which here says "unknown".
        sys.exit(Exit.USAGE)
    except EosError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[red]{sys.argv[0]}:[/] {escape(error)}", highlight=False
        )
        sys.exit(exit_of(error))


def with_options(function: Callable[..., R], **makers: Callable[..., Any]) -> Callable[..., R]:
    """``function`` with the parameters of a maker, behind its own, in the place of what it makes.

    All of them are given by name.
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
    del run.__wrapped__  # typer would look through it, and see options that it can't know
    named = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters]
    run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in named}
    return run


def reporting(command: Callable[..., Report]) -> Callable[..., None]:
    """``command``, that has the option ``json_``, and prints its report and exits as that says."""

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
