"""The releases of PySpark that the sinks, sources and catalog work with."""

from __future__ import annotations

import warnings
from typing import Final

import pyspark
from pyspark import TaskContext

from eos.errors import ConfigurationError

OLDEST: Final = (3, 5)
NEWEST: Final = (4, 3)
"""The newest release that eos is tested with."""


def check_release(version: str = pyspark.__version__) -> None:
    """Check that this release of PySpark is supported; warn of one that is newer than tested.

    Raises:
        ConfigurationError: it is too old.
    """
    release = tuple(int(part) for part in version.split(".")[:2])
    # Refused now, before anything is written.
    if release < OLDEST:
        raise ConfigurationError(
            f"PySpark {version} is not supported.",
            hint="Use PySpark 3.5 or newer, on the driver and on all executors.",
        )
    # Once, on the driver: each executor would repeat it in each new Python process.
    if release > NEWEST and TaskContext.get() is None:
        warnings.warn(
            f"eos is not tested with PySpark {version}, only up to {NEWEST[0]}.{NEWEST[1]}.",
            stacklevel=2,
        )
