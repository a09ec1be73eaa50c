"""The JVM's archive of Spark's classes: a driver with its executors then starts in half the time.

Made once for each Spark and each Java, by a rehearsal: a small stream that comes to its end. The
JVM itself checks that the archive fits, and does without it when it does not. Measured: until its
first job is done a ``local-cluster`` takes 10.7 s of processor time with it, and 18.2 s without.

python -m chaos.spark_archive ARCHIVE
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eos.standalone.maven import cache_dir, locked
from eos.standalone.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_WITHIN_S: Final = 180.0
_ARCHIVE: Final = "classes.jsa"


def options() -> str:
    """What a JVM is told of the archive; nothing as long as there is none."""
    folder = _folder()
    if folder is None or not (folder / _ARCHIVE).exists():
        return ""
    # Quiet: that it does not fit is no news to whoever reads a driver's log.
    return f"-XX:SharedArchiveFile={folder / _ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"


def create() -> None:
    """Make the archive unless it is there; takes about half a minute and 160 MB. Should it not work
    out, everything only takes longer."""
    folder = _folder()
    if folder is None:
        return
    with locked(folder.with_name(f"{folder.name}.lock")):
        if (folder / _ARCHIVE).exists():
            return
        _forget_others(folder)
        folder.mkdir(exist_ok=True)
        with (
            Progress("Archiving Spark's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=folder) as scratch,
        ):
            staged = Path(scratch, _ARCHIVE)
            _rehearse_apart(folder, staged)
            if staged.exists():
                staged.rename(folder / _ARCHIVE)


def _folder() -> Path | None:
    """Of this Spark, at this place, and this Java."""
    import pyspark

    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else None)
    jars = Path(pyspark.__path__[0], "jars")
    if java is None or not jars.is_dir():
        return None
    binary = Path(java).resolve()
    known = (binary, binary.stat().st_mtime_ns, jars, jars.stat().st_mtime_ns)
    tag = hashlib.sha256(repr(known).encode()).hexdigest()[:12]
    return cache_dir() / f"spark-{pyspark.__version__}-{tag}"


def _forget_others(folder: Path) -> None:
    """Archives of virtual environments that are gone."""
    for other in folder.parent.glob("spark-*"):
        if other.is_dir() and not (other / "spark-home" / "jars").exists():
            shutil.rmtree(other, ignore_errors=True)


def _rehearse_apart(folder: Path, archive: Path) -> None:
    """In a process of its own; its output ends with its JVM, which writes the archive last.

    The archive names the jars by the way in which the rehearsal saw them: that has to stay, so it
    is made in ``folder`` and not in a scratch folder.
    """
    from chaos.spark_env import spark_env

    # Too slow a machine goes without, as after any failure.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "chaos.spark_archive", str(archive)],
            env={
                **os.environ,
                **spark_env(folder, path=(Path(__file__).parents[1],)),
                "TMPDIR": str(archive.parent),
            },
            capture_output=True,
            timeout=_WITHIN_S,
            check=False,
        )
    shutil.rmtree(folder / "spark-home" / "work", ignore_errors=True)


def _rehearse(archive: Path) -> None:
    """What a driver does: a stream from files, with a shuffle, through Python."""
    from chaos.spark_env import local_cluster

    folder = archive.parent
    spark = (
        local_cluster("rehearsal", str(folder), rows_per_step=100)
        .config("spark.driver.extraJavaOptions", f"-XX:ArchiveClassesAtExit={archive}")
        .getOrCreate()
    )
    spark.range(100).selectExpr("string(id) AS value").write.json(str(folder / "input"))
    stream = spark.readStream.schema("value string").json(str(folder / "input"))
    query = (
        stream.repartition(2)
        .writeStream.foreachBatch(_write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


def _write(df: DataFrame, _: int) -> None:
    df.mapInArrow(_pass_on, df.schema).collect()


def _pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


if __name__ == "__main__":
    _rehearse(Path(sys.argv[1]))
