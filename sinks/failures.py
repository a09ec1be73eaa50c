"""How an error of the sink reads once Spark has wrapped it up.

What leaves a ``foreachBatch`` function reaches the user as the text of a ``traceback.format_exc()``
within Spark's own sentence: in ``query.exception()``, in what ``awaitTermination`` raises and,
twice, in the driver's output. A chain is printed from its first cause on, so a cause of one line
puts our sentence first; and the shorter the rest, the better it is found. Spark looks for the sign
of an interrupted call in this text, with a regular expression that overflows the stack on long
ones: ``query.stop()`` in the middle of an epoch printed a thousand lines of it.
"""

from __future__ import annotations

import copy
import logging
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from eos.errors import EosError

logger = logging.getLogger(__name__)

_MAX_CHARS: Final = 1000
_INTERRUPTED: Final = (
    "InterruptedException",
    "InterruptedIOException",
    "ClosedByInterruptException",
)
_CANCELLED: Final = "[SPARK_JOB_CANCELLED]"


class JavaFailure(Py4JJavaError):  # type: ignore[misc]
    """An error that Java raised, in one line; ``java_exception`` is the whole of it."""

    def __init__(self, error: Py4JJavaError, line: str) -> None:
        super().__init__(error.errmsg, error.java_exception)
        self._line = line

    def __str__(self) -> str:
        return self._line


def shortened(error: Exception, epoch: str) -> tuple[Exception, Exception]:
    """What to raise in the place of ``error``, and the one line to raise it from.

    The whole error, with its chain, goes to the driver's log. What is raised is of the same
    class, without traceback, cause and context.
    """
    if isinstance(error, Py4JJavaError):
        return _shortened_java(error, epoch)
    logger.error("%s was not written", epoch, exc_info=error)
    if isinstance(error, EosError):
        return _bare(error), copy.copy(error)
    return _bare(error), RuntimeError(f"{epoch}: {type(error).__name__}: {_line(str(error))}")


def _shortened_java(error: Py4JJavaError, epoch: str) -> tuple[Exception, Exception]:
    line = _java_line(error)
    is_interruption = line.split(":")[0].endswith(_INTERRUPTED)
    if is_interruption or _CANCELLED in line:
        logger.info("%s: Spark was told to stop; nothing of it is readable", epoch)
    else:
        logger.error("%s was not written", epoch, exc_info=error)
    headline = RuntimeError(f"{epoch}: {line}")
    if is_interruption:
        # With the words that Spark looks for when a query is stopped, and only in the last line:
        # its expression goes through all that comes behind them.
        line = f"py4j.protocol.Py4JJavaError: {error.errmsg.strip()} {line}"
    return JavaFailure(error, line), headline


def _bare(error: Exception) -> Exception:
    error.__context__ = None
    return error.with_traceback(None)


def _line(text: str) -> str:
    """The line that says what it was: the last one of a traceback, else the first one."""
    lines = text.strip().splitlines() or [""]
    return lines[-1 if any(line.startswith("Traceback ") for line in lines) else 0][:_MAX_CHARS]


def _java_line(error: Py4JJavaError) -> str:
    """What Java raised, as class and message, and its first cause."""
    thrown: Any = error.java_exception
    try:
        lines = str(thrown.toString()).strip().splitlines()
    except Py4JError:  # the gateway is gone
        return _line(error.errmsg)
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return " ".join(line[:_MAX_CHARS] for line in (lines[:1] + causes[-1:]))
