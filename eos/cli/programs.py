"""The program ``eos`` and its four commands, each of which is also a separate program."""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from dataclasses import dataclass
from typing import Final

from eos.errors import pip_install

# The shell sets this variable when it asks for completions.
COMPLETES: Final = "_EOS_COMPLETE"


@dataclass(frozen=True)
class CommandLine:
    """A command of ``eos``."""

    module: str  # defines ``app``, its typer application, and ``main``, which runs it
    summary: str  # for the help of ``eos``
    lost: int = 2  # exit code if its output could not be written
    extras: tuple[str, ...] = ()  # of the distribution, which it needs


PROGRAMS: Final = {
    "broker": CommandLine(
        "eos.testing.cli", "Run a Pulsar broker on this machine, for first steps and tests.", 1
    ),
    "recovery": CommandLine("eos.recovery.cli", "Inspect and repair sinks after a failure."),
    "catalog": CommandLine("eos.catalog.cli", "List, describe, read, create and drop topics."),
    "chaos": CommandLine(
        "eos.chaos.cli",
        "Kill everything around a job, and check that it still writes exactly once.",
        extras=("spark", "chaos"),
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
            f"{called}: {error.name} is not installed. Run: {pip_install(*program.extras)}",
            file=sys.stderr,
        )
        sys.exit(2)


def start(program: str, main: str, *, lost: int) -> None:
    """Import ``main``, given as ``module:function``, and call it.

    ``lost``: the exit code if the output could not be written.
    """
    _prepare_streams()
    module, _, name = main.partition(":")
    # Ctrl-C during the imports ends the process by its signal, as a shell expects, without a
    # traceback.
    own_handler = signal.getsignal(signal.SIGINT)
    if own_handler is signal.default_int_handler:  # in the background it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Only now: what a command imports (typer and rich, the broker, Spark) takes its time.
    function = getattr(importlib.import_module(module), name)
    signal.signal(signal.SIGINT, own_handler)
    try:
        function()
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        print(f"{program}: {error}", file=sys.stderr)
        # Never 0: the report was not seen.
        sys.exit(lost)
    except SystemExit as ending:
        # The pipe's reader has gone: click exits with 1, which has another meaning here.
        if isinstance(ending.__context__, BrokenPipeError):
            _discard_output()
            sys.exit(lost)
        raise


def _prepare_streams() -> None:
    # Python sets closed streams to None, which programs do not expect.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        # A terminal that is not UTF-8 lacks most characters.
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    # Buffered output would fail again when Python exits.
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
