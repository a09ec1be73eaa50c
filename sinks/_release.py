"""The releases of PySpark that the sinks, sources and catalog work with."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from typing import Final

import pyspark
from pyspark import SparkContext, TaskContext

from eos.errors import ConfigurationError

OLDEST: Final = (3, 5)
NEWEST: Final = (4, 3)
"""The newest release that eos is tested with."""


def check_release(version: str = pyspark.__version__) -> None:
    """Check that this release of PySpark is supported; warn of one that is newer than tested.

    Raises:
        ConfigurationError: it is too old, or lacks a module of Python.
    """
    release = _minor(version)
    # Refused now, before anything is written.
    if release < OLDEST:
        raise ConfigurationError(
            f"PySpark {version} is not supported.",
            hint="Use PySpark 3.5 or newer, on the driver and on all executors.",
        )
    # PySpark 3.5 imports distutils where it converts types; Python 3.12 has it no more.
    if release < (4, 0) and sys.version_info >= (3, 12) and find_spec("distutils") is None:
        raise ConfigurationError(
            f"PySpark {version} needs setuptools on Python 3.12 and newer.",
            hint="Install setuptools, or use Python 3.11.",
        )
    # Once, on the driver: each executor would repeat it in each new Python process.
    if release > NEWEST and TaskContext.get() is None:
        warnings.warn(
            f"eos is not tested with PySpark {version}, only up to {NEWEST[0]}.{NEWEST[1]}.",
            stacklevel=2,
        )


def check_jvm(context: SparkContext) -> None:
    """Raise ConfigurationError if Spark's JVM has another release than PySpark."""
    # PySpark starts the JVM of SPARK_HOME, and executors get PySpark from there. It checks nothing.
    if _minor(context.version) != _minor(pyspark.__version__):
        raise ConfigurationError(
            f"PySpark {pyspark.__version__} runs with Spark {context.version}.",
            hint=f"Unset SPARK_HOME, or install pyspark=={context.version}.",
        )


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
