"""The program ``eos`` and its four commands, each of which is also a separate program.

A command's imports (typer and rich, the broker, Spark) happen only when that command runs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Final

from eos.cli._entry_point import start

COMPLETES: Final = "_EOS_COMPLETE"
"""Environment variable that the shell sets when it asks for completions."""


@dataclass(frozen=True)
class CommandLine:
    """A command of ``eos``.

    Args:
        module: defines ``app``, its typer application, and ``main``, which runs it.
        summary: one line for the help of ``eos``.
        lost: exit code if its output could not be written.
        extras: the extras of the distribution that it needs.
    """

    module: str
    summary: str
    lost: int = 2
    extras: str = ""


PROGRAMS: Final = {
    "broker": CommandLine(
        "eos.testing.cli", "Run a Pulsar broker on this machine, for first steps and tests.", 1
    ),
    "recovery": CommandLine("eos.recovery.cli", "Inspect and repair sinks after a failure."),
    "catalog": CommandLine("eos.catalog.cli", "List, describe, read, create and drop topics."),
    "chaos": CommandLine(
        "eos.chaos.cli",
        "Kill everything around a job, and check that it still writes exactly once.",
        extras="spark,chaos",
    ),
}


def main() -> None:
    """Run ``eos``: one of the commands, or the help."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in PROGRAMS and COMPLETES not in os.environ:
        del sys.argv[1]
        _run(name, f"eos {name}")
    else:
        start("eos", "eos.cli._root:main", lost=2)


def broker() -> None:
    """Run ``eos-broker``, the same as ``eos broker``."""
    _run("broker", "eos-broker")


def recovery() -> None:
    """Run ``eos-recovery``, the same as ``eos recovery``."""
    _run("recovery", "eos-recovery")


def catalog() -> None:
    """Run ``eos-catalog``, the same as ``eos catalog``."""
    _run("catalog", "eos-catalog")


def chaos() -> None:
    """Run ``eos-chaos``, the same as ``eos chaos``."""
    _run("chaos", "eos-chaos")


def _run(name: str, called: str) -> None:
    program = PROGRAMS[name]
    sys.argv[0] = called
    try:
        start(called, f"{program.module}:main", lost=program.lost)
    except ModuleNotFoundError as error:
        if not program.extras:
            raise
        print(
            f"{called}: {error.name} is not installed. "
            f"Run: pip install 'eos-pulsar[{program.extras}]'",
            file=sys.stderr,
        )
        sys.exit(2)
