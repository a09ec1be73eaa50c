"""What a Spark driver needs to run a ``local-cluster`` here, die often, and leave nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eos.chaos.cluster import _spark_archive as spark_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


def jvm_options() -> str:
    """For a JVM of Spark's that lives for minutes on two cores: it is better off without the second
    compiler, and with the archive of Spark's classes."""
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {spark_archive.options()}".strip()


def local_cluster(app_name: str, scratch: str, *, rows_per_step: int) -> SparkSession.Builder:
    """A session with two executors of one core each; to be called in the driver itself.

    Args:
        scratch: folder for everything temporary.
        rows_per_step: how many rows go to Python at a time; small steps let a fault meet an epoch
            that is half sent.
    """
    from pyspark.sql import SparkSession

    options = f"-Djava.io.tmpdir={scratch} {jvm_options()}"
    return (
        SparkSession.Builder()
        .master("local-cluster[2,1,1024]")
        .appName(app_name)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", options)
        .config("spark.executor.extraJavaOptions", options)
        .config("spark.local.dir", scratch)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows_per_step))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
