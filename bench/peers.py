"""Peers in the JVM: Pulsar's Java client, and StreamNative's Spark connector, pulsar-spark."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.environment import HEAP
from bench.row_sources import RowShape
from eos.errors import ConfigurationError
from eos.testing import jvm, maven

_PROGRAM: Final = Path(__file__).parent / "java" / "TransactionClient.java"


class JavaClient:
    """The Java client: one JVM that stays, so that its compiler is warm.

    A context manager, which starts and stops it. Each call writes rows in one transaction.
    """

    def __init__(self, service_url: str) -> None:
        java = jvm.find_java()
        if java is None:
            raise RuntimeError("No Java of version 17 or newer was found")
        jars = str(maven.pulsar_jars(maven.pulsar_version())[0].parent / "*")
        self._command = [java, *HEAP, "-cp", jars, str(_PROGRAM), service_url]

    def rows_per_s(self, shape: RowShape, topic: str, count: int) -> float:
        """Write ``count`` values to ``topic`` in one transaction."""
        if shape.partitions == 1:
            topic += "-partition-0"  # without a router in the client
        return self._rate(topic, count, str(shape.value_bytes))

    def records_per_s(self, schema: str, topic: str, count: int) -> float:
        """Write ``count`` records of ``bench.schemas`` to a topic of one partition."""
        return self._rate(f"{topic}-partition-0", count, schema)

    def _rate(self, topic: str, count: int, kind: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {count} {kind}\n")
        self._process.stdin.flush()
        return count / float(self._await("took"))

    def _await(self, word: str) -> str:
        """Return the rest of the line that begins with ``word``; other lines are log output."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise RuntimeError(f"The Java client failed: {line.strip()}")
        self._errors.seek(0)
        raise RuntimeError(
            f"The Java client ended with {self._process.wait()}: {self._errors.read()[-1000:]}"
        )

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self._await("ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20)  # it ends with its input
        self._process.kill()
        self._process.wait()
        self._errors.close()


# --- pulsar-spark: at-least-once, in the JVM ---------------------------------------------------

SOURCES_VARIABLE: Final = "EOS_PULSAR_SPARK_SOURCES"
"""Environment variable: where to clone from, for example a folder, if GitHub is unreachable."""
_SOURCES: Final = "https://github.com/streamnative/pulsar-spark"
_COMMIT: Final = "59066fc68d73ddfd3bbfe5aec638543d5ea9b0da"
_CLIENT: Final = "4.0.5"
"""The version of Pulsar's Java client in its pom."""
_PATCH: Final = Path(__file__).with_name("pulsar-spark-4.2.patch")
_CLONED_WITHIN_S: Final = 120.0


def built_jars(tell: Callable[[str], None]) -> list[Path]:
    """Return the jars of pulsar-spark and its dependencies, for ``spark.jars``.

    Empty if it cannot be built; ``tell`` gets the reason. Its sources do not compile against Spark
    4.2. They are built once, into the user's cache, with a patch that follows Spark's renames and
    leaves the connector's work as it is.
    """
    key = hashlib.sha256(_PATCH.read_bytes() + _COMMIT.encode()).hexdigest()[:12]
    jar = maven.cache_dir() / f"pulsar-spark-{key}.jar"
    try:
        client = maven.resolve(
            [f"org.apache.pulsar:pulsar-client-all:{_CLIENT}"], f"pulsar-client-all-{_CLIENT}"
        )
        with maven.locked(jar.with_suffix(".lock")):
            if not jar.exists():
                tell("building pulsar-spark (once)")
                with tempfile.TemporaryDirectory(prefix="eos-pulsar-spark-") as folder:
                    _build(Path(folder), client, jar)
    except (ConfigurationError, OSError, subprocess.SubprocessError) as error:
        tell(f"pulsar-spark is left out: {_last_line(error)}")
        return []
    return [jar, *maven.without_sparks(client)]


def _build(folder: Path, client: Sequence[Path], jar: Path) -> None:
    java = jvm.find_java()
    if java is None:
        raise ConfigurationError("No Java of version 17 or newer was found.")
    sources, classes = folder / "sources", folder / "classes"
    url = os.environ.get(SOURCES_VARIABLE, _SOURCES)
    _run(
        ["git", "clone", "--quiet", "--no-checkout", url, str(sources)], timeout_s=_CLONED_WITHIN_S
    )
    _run(["git", "-C", str(sources), "checkout", "--quiet", _COMMIT])
    _run(["git", "-C", str(sources), "apply", str(_PATCH)])
    classes.mkdir()
    spark = [str(one) for one in maven.spark_jars()]
    class_path = os.pathsep.join([*spark, *map(str, client)])
    scala = sorted(map(str, (sources / "src/main/scala").rglob("*.scala")))
    compiler = [java, "-Xss8m", "-cp", os.pathsep.join(spark), "scala.tools.nsc.Main", "-nowarn"]
    _run([*compiler, "-d", str(classes), "-cp", class_path, *scala])
    shutil.copytree(sources / "src/main/resources", classes, dirs_exist_ok=True)
    staged = jar.with_suffix(".part")
    with zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(classes.rglob("*")):
            archive.write(file, file.relative_to(classes))
    staged.replace(jar)


def _run(command: list[str], timeout_s: float | None = None) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]


_FORMAT: Final = "org.apache.spark.sql.pulsar.PulsarProvider"
"""Its short name, ``pulsar``, is also that of eos."""
_BLOCK: Final = "pulsar.producer.blockIfQueueFull"
"""By default it is off, and a task fails if the broker is slower than the task
(MemoryBufferIsFullError, seen with 195,312 rows of 1,024 bytes)."""


def write_by_pulsar_spark(df: DataFrame, service_url: str, topic: str) -> None:
    """Write the column ``value`` as bytes, with the connector's other defaults."""
    writer = _values(df).write.format(_FORMAT).option("service.url", service_url)
    writer.option("topic", topic).option(_BLOCK, "true").mode("append").save()


def stream_by_pulsar_spark(df: DataFrame, service_url: str, topic: str) -> DataStreamWriter:
    """Return a writer of a stream's column ``value``, by the connector's own sink."""
    writer = _values(df).writeStream.format(_FORMAT).option("service.url", service_url)
    return writer.option("topic", topic).option(_BLOCK, "true")


def _values(df: DataFrame) -> DataFrame:
    return df.selectExpr("CAST(value AS BINARY) AS value")
