"""The environment of a Spark driver with a ``local-cluster`` that is often killed."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eos.testing.maven import cache_dir

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Measured: until its first job is done, a local-cluster takes 10.7 s of CPU time with the archive,
# and 18.2 s without.
ARCHIVE: Final = "classes.jsa"


def spark_env(scratch: Path, *, path: tuple[Path, ...] = ()) -> dict[str, str]:
    """Return variables to add to the driver's environment.

    Args:
        scratch: an existing folder for everything temporary.
        path: folders of Python modules for the driver and its executors, before their own.
    """
    known = os.environ.get("PYTHONPATH")
    return {
        # Executors must find the driver and the right Python.
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([*map(str, path), *([known] if known else [])]),
        "SPARK_HOME": str(_spark_home(scratch)),
        "TMPDIR": str(scratch),
    }


def _spark_home(scratch: Path) -> Path:
    import pyspark

    # A writable view: the workers of a local-cluster write to SPARK_HOME/work, which would
    # otherwise be in site-packages and never be deleted.
    home = scratch / "spark-home"
    home.mkdir(exist_ok=True)
    for entry in Path(os.environ.get("SPARK_HOME") or pyspark.__path__[0]).iterdir():
        if entry.name != "work" and not (home / entry.name).exists():
            (home / entry.name).symlink_to(entry)
    return home


def jvm_options() -> str:
    """Options for a Spark JVM that runs for minutes on two cores."""
    # No second compiler, which pays only in longer runs, and the archive of Spark's classes.
    return f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {archive_options()}".strip()


def local_cluster(app_name: str, scratch: str, *, rows_per_step: int) -> SparkSession.Builder:
    """Build a session with two executors of one core each; called in the driver.

    Args:
        scratch: folder for everything temporary.
        rows_per_step: rows per batch sent to Python; with small batches, faults hit half-sent
            epochs.
    """
    from pyspark.sql import SparkSession

    # Spark splits them like a shell.
    options = f"{shlex.quote(f'-Djava.io.tmpdir={scratch}')} {jvm_options()}"
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


def archive_options() -> str:
    """The JVM options for the archive; "" if it does not exist."""
    folder = folder_of_archive()
    if folder is None or not (folder / ARCHIVE).exists():
        return ""
    # The JVM checks that the archive fits, and ignores it if not: then without a log line.
    archive = shlex.quote(f"-XX:SharedArchiveFile={folder / ARCHIVE}")
    return f"{archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def folder_of_archive() -> Path | None:
    """The folder for this Spark installation and this Java."""
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    jars = Path(pyspark.__path__[0], "jars")
    if java is None or not jars.is_dir():
        return None
    binary = Path(java).resolve()
    # One archive for each Spark and Java: another jar or binary has another time.
    known = (binary, binary.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns)
    tag = hashlib.sha256(repr(known).encode()).hexdigest()[:12]
    return cache_dir() / f"spark-{pyspark.__version__}-{tag}"
