"""Makes errors of Spark readable: those of executors, and those that leave ``foreachBatch``."""

from __future__ import annotations

import contextlib
import copy
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from eos.errors import ConfigurationError, EosError

logger = logging.getLogger(__name__)

_MAX_CHARS: Final = 1000
_INTERRUPTED: Final = (
    "InterruptedException",
    "InterruptedIOException",
    "ClosedByInterruptException",
)
_CANCELLED: Final = re.compile(r"\bJob \d+ cancelled")  # 3.5 names no error class
_NO_MODULE: Final = re.compile(r"ModuleNotFoundError: No module named ('[\w.]+')")
_OTHER_PYTHON: Final = "[PYTHON_VERSION_MISMATCH]"


class JavaFailure(Py4JJavaError):  # type: ignore[misc]
    """A Java error whose text is one line; ``java_exception`` is the full error."""

    def __init__(self, error: Py4JJavaError, line: str) -> None:
        super().__init__(error.errmsg, error.java_exception)
        self._line = line

    def __str__(self) -> str:
        return self._line


class SparkStopped(Py4JJavaError):  # type: ignore[misc]
    """The query or Spark was stopped within an epoch: the commit log has this class as reason."""


@contextlib.contextmanager
def explained_failures() -> Iterator[None]:
    """Raise ConfigurationError instead of an error of Spark that the executors' Python causes, and
    SparkStopped where Spark was told to stop.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if _OTHER_PYTHON in text:
            driver = "{}.{}".format(*sys.version_info)
            raise ConfigurationError(
                f"The driver has Python {driver}, the executors have another one.",
                hint=f"Set PYSPARK_PYTHON or spark.pyspark.python to a Python {driver}.",
            ) from error
        if missing := _NO_MODULE.search(text):
            raise ConfigurationError(
                f"The executors' Python has no module {missing[1]}.",
                hint="Install it there (PYSPARK_PYTHON), or pass it by --py-files. Executors "
                "need pyspark, pyarrow, numpy, protobuf, google-crc32c and eos.",
            ) from error
        if isinstance(error, Py4JJavaError) and _is_stop(_java_line(error)):
            raise SparkStopped(error.errmsg, error.java_exception) from error
        raise


def shortened(error: Exception, epoch: str) -> tuple[Exception, Exception]:
    """Return the error to raise instead of ``error``, and its cause, which has one line.

    The full error, with its chain, is logged on the driver. The returned error has the same class,
    without traceback, cause and context.
    """
    # Spark shows an error as the text of traceback.format_exc() in its own message: in
    # query.exception(), in the error of awaitTermination and, twice, in the driver's output. A
    # chain is printed from its first cause on, so a cause of one line puts the sink's message
    # first. Spark also searches this text for an interrupted call, with a regular expression that
    # overflows the stack on long texts: query.stop() in an epoch printed a thousand lines of it.
    if isinstance(error, Py4JJavaError):
        return _shortened_java(error, epoch)
    logger.error("%s was not written", epoch, exc_info=error)
    if isinstance(error, EosError):
        return _bare(error), copy.copy(error)
    return _bare(error), RuntimeError(f"{epoch}: {type(error).__name__}: {_line(str(error))}")


def _shortened_java(error: Py4JJavaError, epoch: str) -> tuple[Exception, Exception]:
    line = _java_line(error)
    if _is_stop(line):
        logger.info("%s: Spark was stopped; none of its rows is readable", epoch)
    else:
        logger.error("%s was not written", epoch, exc_info=error)
    headline = RuntimeError(f"{epoch}: {line}")
    if _is_interruption(line):
        # With the words that Spark searches for when a query is stopped, in the last line only:
        # its expression reads all text after them.
        line = f"py4j.protocol.Py4JJavaError: {error.errmsg.strip()}\n: {line}"  # 3.5: on two lines
    return JavaFailure(error, line), headline


def _is_stop(line: str) -> bool:
    return _is_interruption(line) or _CANCELLED.search(line) is not None


def _is_interruption(line: str) -> bool:
    return line.split(":")[0].endswith(_INTERRUPTED)


def _bare(error: Exception) -> Exception:
    error.__context__ = None
    return error.with_traceback(None)


def _line(text: str) -> str:
    """Return the line that names the error: the last one of a traceback, else the first one."""
    lines = text.strip().splitlines() or [""]
    return lines[-1 if any(line.startswith("Traceback ") for line in lines) else 0][:_MAX_CHARS]


def _java_line(error: Py4JJavaError) -> str:
    """Return the class and message of the Java error, and its first cause."""
    thrown: Any = error.java_exception
    try:
        lines = str(thrown.toString()).strip().splitlines()
    except Py4JError:  # the gateway is gone
        return _line(error.errmsg)
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return " ".join(line[:_MAX_CHARS] for line in (lines[:1] + causes[-1:]))
