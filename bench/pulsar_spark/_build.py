"""From the sources to a jar: git, the patch, and the Scala compiler that Spark brings."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from eos.errors import ConfigurationError
from eos.standalone import jvm, maven

SOURCES_VARIABLE: Final = "EOS_PULSAR_SPARK_SOURCES"
"""Another place to clone from, a folder for example, where GitHub can't be reached."""
_SOURCES: Final = "https://github.com/streamnative/pulsar-spark"
_COMMIT: Final = "59066fc68d73ddfd3bbfe5aec638543d5ea9b0da"
_CLIENT: Final = "4.0.5"
"""The version of Pulsar's Java client that its pom asks for."""
_PATCH: Final = Path(__file__).with_name("spark-4.2.patch")
_CLONED_WITHIN_S: Final = 120.0


def built_jars(tell: Callable[[str], None]) -> list[Path]:
    """The connector and what it needs besides Spark, for ``spark.jars``; [] where it can't be
    built, and why is told."""
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
        tell(f"pulsar-spark is left out: {_reason(error)}")
        return []
    return [jar, *maven.without_sparks(client)]


def _build(folder: Path, client: Sequence[Path], jar: Path) -> None:
    java = jvm.find_java()
    if java is None:
        raise ConfigurationError("there is no Java of version 17 or newer.")
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


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return str(said).strip().splitlines()[-1]
