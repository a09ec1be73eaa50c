"""Commands of typer out of functions that know nothing of it.

A function takes an object, ``target`` for example, and another one makes that of options: the
command has the options of both.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from rich.console import Console

from eos.cli._program import VerbExit
from eos.cli._report import Report

R = TypeVar("R")


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
