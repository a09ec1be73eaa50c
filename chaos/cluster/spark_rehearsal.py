"""Creates the JVM's archive of Spark's classes, by running a small stream.

python -m eos.chaos.cluster.spark_rehearsal ARCHIVE
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eos.chaos.cluster.spark_env import ARCHIVE, folder_of_archive, local_cluster, spark_env
from eos.testing.maven import Progress, locked

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_WITHIN_S: Final = 180.0


def create() -> None:
    """Create the archive if it does not exist; takes about half a minute and 160 MB. Without it,
    drivers only start more slowly."""
    folder = folder_of_archive()
    if folder is None:
        return
    with locked(folder.with_name(f"{folder.name}.lock")):
        if (folder / ARCHIVE).exists():
            return
        _forget_others(folder)
        folder.mkdir(exist_ok=True)
        with (
            Progress("Archiving Spark's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=".rehearsal-", dir=folder) as scratch,
        ):
            staged = Path(scratch, ARCHIVE)
            _rehearse_apart(folder, staged)
            if staged.exists():
                staged.rename(folder / ARCHIVE)


def _forget_others(folder: Path) -> None:
    # Of virtual environments that no longer exist: 160 MB each.
    for other in folder.parent.glob("spark-*"):
        if other.is_dir() and not (other / "spark-home" / "jars").exists():
            shutil.rmtree(other, ignore_errors=True)


def _rehearse_apart(folder: Path, archive: Path) -> None:
    # In a separate process, because the JVM writes the archive at its end. In ``folder`` instead of
    # a scratch folder: the archive contains the paths of the jars as the rehearsal saw them, and
    # they must stay.
    # On a slow machine, or after any failure, there is no archive.
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "eos.chaos.cluster.spark_rehearsal", str(archive)],
            env={
                **os.environ,
                **spark_env(folder, path=(Path(__file__).parents[2],)),
                "TMPDIR": str(archive.parent),
            },
            capture_output=True,
            timeout=_WITHIN_S,
            check=False,
        )
    shutil.rmtree(folder / "spark-home" / "work", ignore_errors=True)


def _rehearse(archive: Path) -> None:
    # The work of a driver, so that the classes it needs are loaded: a stream from files, with a
    # shuffle, through Python.
    folder = archive.parent
    spark = (
        local_cluster("rehearsal", str(folder), rows_per_step=100)
        .config("spark.driver.extraJavaOptions", shlex.quote(f"-XX:ArchiveClassesAtExit={archive}"))
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
