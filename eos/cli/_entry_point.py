"""Start and end console scripts, also with a closed, full or broken output."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Final

_STREAMS: Final = ("stdout", "stderr")


def start(program: str, main: str, *, lost: int) -> None:
    """Import ``main``, given as ``module:function``, and call it.

    Ctrl-C during the imports ends the process by its signal, as a shell expects, without a
    traceback.

    Args:
        lost: the exit code if the output could not be written; never that of success.
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
        # The pipe's reader has gone: click exits with 1, which has another meaning here.
        if isinstance(ending.__context__, BrokenPipeError):
            _discard_output()
            sys.exit(lost)
        raise


def _replace_closed_streams() -> None:
    """Replace closed streams: Python sets them to None, which programs do not expect."""
    for name in _STREAMS:
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _discard_output() -> None:
    """Discard buffered output, which would fail again when Python exits."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
