"""The environment that a Spark driver needs to run a ``local-cluster`` here and leave nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def spark_env(scratch: Path, *, path: tuple[Path, ...] = ()) -> dict[str, str]:
    """Variables to add to the driver's environment.

    Args:
        scratch: an existing folder for everything temporary.
        path: where the driver and its executors find Python modules, before what they know.
    """
    known = os.environ.get("PYTHONPATH")
    return {
        # Executors have to find the driver and the right Python.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([*map(str, path), *([known] if known else [])]),
        "SPARK_HOME": str(_spark_home(scratch)),
        "TMPDIR": str(scratch),
    }


def _spark_home(scratch: Path) -> Path:
    """A view of the installed Spark that may be written to.

    The workers of a ``local-cluster`` write to SPARK_HOME/work, which would be in site-packages,
    and nobody would ever clear it.
    """
    import pyspark

    home = scratch / "spark-home"
    home.mkdir(exist_ok=True)
    for entry in Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).iterdir():
        if entry.name != "work" and not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry)
    return home
