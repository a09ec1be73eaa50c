"""How console scripts start and end, whatever their output is: closed, full, a pipe that ended."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final

_STREAMS: Final = ("stdout", "stderr")


def start(program: str, main: str, *, lost: int) -> None:
    """Import ``main``, which is ``module:function``, and call it.

    Ctrl-C while modules are imported ends the process by its signal, as a shell expects it, and
    not with a traceback.

    Args:
        lost: the exit code when the program could not write what it had to say: no code that says
            that all is well.
    """
    _replace_closed_streams()
    module, _, name = main.partition(":")
    own_handler = signal.getsignal(signal.SIGINT)
    if own_handler is signal.default_int_handler:  # in the background it is ignored, and stays so
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    function = getattr(importlib.import_module(module), name)
    signal.signal(signal.SIGINT, own_handler)
    try:
        function()
        sys.stdout.flush()
    except OSError as error:
        _discard_output()
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(lost)
    except SystemExit as ending:
        # A pipe whose reader has gone: click says 1, which means something else here.
        if isinstance(ending.__context__, BrokenPipeError):
            _discard_output()
            sys.exit(lost)
        raise


def _replace_closed_streams() -> None:
    """Python has None for a stream that the caller has closed, and programs do not expect that."""
    for name in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """What is still buffered would fail once more when Python ends."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
