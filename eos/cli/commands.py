"""Build typer commands from plain functions, and end each with its documented exit code."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

import typer

from eos.cli.reports import Exit, Report, error_json, escape, exit_of, new_console
from eos.errors import ConfigurationError, EosError, printable

R = TypeVar("R")

_TYPER_USAGE: Final = 2


class _Warnings(logging.Handler):
    """Shows the library's warnings on standard error, and keeps the newest ones for a report."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(lambda record: record.levelno == logging.WARNING)  # reports have the errors
        self.texts: deque[str] = deque(maxlen=1000)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(printable(record.getMessage()))
        with suppress(OSError, ValueError):  # a full disk, or a closed stream
            # Not by a console: a progress bar takes only what is written here to its own place.
            sys.stderr.write(f"Warning: {self.texts[-1]}\n")


_WARNINGS: Final = _Warnings()


def warnings_shown() -> list[str]:
    """Return the warnings of this command so far."""
    return list(_WARNINGS.texts)


class VerbExit(SystemExit):
    """The exit of a verb, as opposed to typer's."""


def run_program(app: typer.Typer) -> None:
    """Run ``app``, and end the process; ``sys.argv[0]`` is the program's name."""
    logging.lastResort = logging.NullHandler()  # nothing else is shown
    _WARNINGS.texts.clear()
    logging.getLogger("eos").addHandler(_WARNINGS)
    try:
        app(prog_name=sys.argv[0])
    except VerbExit:
        raise
    except SystemExit as ending:
        if ending.code != _TYPER_USAGE:
            raise
        # Typer's code for wrong options, which means "unknown" here.
        said = getattr(ending.__context__, "format_message", lambda: "Wrong options.")
        _print_json(ConfigurationError(said(), hint="--help lists the options."))
        sys.exit(Exit.USAGE)
    except EosError as error:
        _print_json(error)
        new_console(stderr=True, soft_wrap=True).print(
            f"[red]{sys.argv[0]}:[/] {escape(error)}", highlight=False
        )
        sys.exit(exit_of(error))
    finally:
        logging.getLogger("eos").removeHandler(_WARNINGS)


def _print_json(error: EosError) -> None:
    if "--json" in sys.argv:
        print(error_json(error), flush=True)


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
            report.render(new_console())
        sys.stdout.flush()
        raise VerbExit(int(report.exit))

    run.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    del run.__wrapped__
    return run
