"""Jars from Maven, resolved once into the user's cache folder."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from xml.sax.saxutils import escape

from eos.errors import ConfigurationError, pip_install

if TYPE_CHECKING:
    from rich.status import Status


DEFAULT_PULSAR_VERSION: Final = "4.2.4"
PULSAR_VERSION_VARIABLE: Final = "EOS_PULSAR_VERSION"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(-[A-Za-z0-9.]+)?")

_COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_COPY_ONE_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
# The newest one on Maven; the broker of 4.2.4 accepts it (tested).
_OFFLOADER_VERSION: Final = "4.0.8"
_MANIFEST: Final = "manifest.json"
_SUMS: Final = "SHA256SUMS"
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>eos</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencyManagement><dependencies>{boms}</dependencies></dependencyManagement>
  <dependencies>{dependencies}</dependencies>
</project>
"""


def cache_dir() -> Path:
    """Return ``EOS_CACHE_DIR``, or else ``XDG_CACHE_HOME/eos``, or else ``~/.cache/eos``.

    Raises:
        ConfigurationError: ``EOS_CACHE_DIR`` begins with an unknown user's ``~name``, or there is
            no home directory.
    """
    if chosen := os.environ.get("EOS_CACHE_DIR"):
        try:
            return Path(chosen).expanduser().absolute()
        except RuntimeError:
            raise ConfigurationError(f"EOS_CACHE_DIR {chosen!r}: there is no such user.") from None
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "eos"
    return home() / ".cache" / "eos"


def home() -> Path:
    """Return the user's home directory.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigurationError("This user has no home directory.", hint="Set HOME.") from None


def pulsar_version(asked: str | None = None) -> str:
    """Return ``asked``, or else the environment's ``EOS_PULSAR_VERSION``, or else the default.

    Raises:
        ConfigurationError: it is not a version.
    """
    version = asked or os.environ.get(PULSAR_VERSION_VARIABLE) or DEFAULT_PULSAR_VERSION
    if not _VERSION.fullmatch(version):
        raise ConfigurationError(
            f"{version!r} is not a version of Pulsar.", hint="Give one such as 4.2.4 or 5.0.0-M1."
        )
    return version


def pulsar_jars(version: str) -> list[Path]:
    """Return the jars of a Pulsar broker (4.2.4: 327 jars, 242 MB)."""
    is_new = int(version.partition(".")[0]) >= 5
    # The pom pins one version of OpenTelemetry, Jackson and others; without it the broker mixes
    # several versions and fails at its start.
    pins = "pulsar-dependencies" if is_new else "pulsar"
    return resolve(
        [f"org.apache.pulsar:pulsar-broker:{version}"],
        f"pulsar-{version}",
        boms=[f"org.apache.pulsar:{pins}:{version}"],
        # 5.0.0-M1 depends on two BouncyCastle libraries, whose classes have the same names and
        # different signers: a broker with TLS does not start with both.
        without=["bc-fips"] if is_new else [],
    )


def delta_jars() -> list[Path]:
    """Return Delta Lake's jars for the installed ``pyspark`` and ``delta-spark``.

    They are for ``spark.jars``, without those that Spark has already in some version.

    Raises:
        ConfigurationError: one of the two is not installed, or Maven is missing or failed.
    """
    try:
        delta = version("delta-spark")
        spark = version("pyspark")
    except PackageNotFoundError as error:
        raise ConfigurationError(
            f"The Python package {error.name} is not installed.",
            hint=f"Run: {pip_install('spark', 'delta')}.",
        ) from error
    spark_line = ".".join(spark.split(".")[:2])
    # The same rule as configure_spark_with_delta_pip, which only knows spark.jars.packages.
    # Not resolved by Spark itself: its resolver, Ivy, searches Maven's local repository first, and
    # fails at any pom that Maven left there without its jar.
    jars = resolve(
        [f"io.delta:delta-spark_{spark_line}_2.13:{delta}"], f"delta-{delta}-spark-{spark_line}"
    )
    return without_sparks(jars)


def spark_jars() -> list[Path]:
    """Return the jars of the installed ``pyspark``."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "jars").glob("*.jar"))


def without_sparks(jars: Sequence[Path]) -> list[Path]:
    """Return those of ``jars`` that Spark does not have in any version."""
    provided = {_artifact(jar) for jar in spark_jars()}
    return [jar for jar in jars if _artifact(jar) not in provided]


def _artifact(jar: Path) -> str:
    """Return ``jackson-core`` for ``jackson-core-2.13.5.jar``."""
    return re.split(r"-\d", jar.stem, maxsplit=1)[0]


def offloader(name: str) -> Path:
    """Return the archive (nar) of an offloader, alone in its folder or with others.

    Args:
        name: ``tiered-storage-jcloud`` or ``tiered-storage-file-system``.

    Raises:
        ConfigurationError: Maven is missing or failed.
    """
    cache_name = f"pulsar-offloader-{_OFFLOADER_VERSION}"
    folder = cache_dir() / cache_name
    archive = folder / f"{name}.nar"
    with locked(folder.with_name(f"{cache_name}.lock")):
        if not archive.exists():
            folder.mkdir(exist_ok=True)
            command = [_mvn(name), "-B", "--strict-checksums", _COPY_ONE_GOAL]
            command += [f"-Dartifact=org.apache.pulsar:{name}:{_OFFLOADER_VERSION}"]
            command += ["-Dtransitive=false", f"-DoutputDirectory={folder}"]
            lines = _run(command, f"Resolving {name} with Maven (once)")
            # Maven's "jar" is in fact the archive with all dependencies.
            jar = folder / f"{name}-{_OFFLOADER_VERSION}.jar"
            if not jar.exists():
                raise _failed(name, lines or [])
            jar.rename(archive)
    return archive


def resolve(
    coordinates: Sequence[str],
    cache_name: str,
    boms: Sequence[str] = (),
    without: Sequence[str] = (),
) -> list[Path]:
    """Return all jars that ``coordinates`` need at run time, from the cache or with Maven.

    Safe for several processes at once: one resolves, the others wait for it.

    Args:
        coordinates: ``group:artifact:version`` each.
        cache_name: the folder below ``cache_dir()``; include the version.
        boms: poms whose dependencyManagement is imported, ``group:artifact:version`` each.
        without: artifacts to exclude everywhere.

    Raises:
        ConfigurationError: Maven is missing or failed, or a coordinate is malformed.
    """
    wanted = {"coordinates": sorted(coordinates), "boms": sorted(boms)}
    if without:
        wanted["without"] = sorted(without)
    folder = cache_dir() / cache_name
    # Complete by its manifest and checksums, it needs neither Maven nor the network.
    if jars := _complete(folder, wanted):
        return jars
    with locked(folder.with_name(f"{cache_name}.lock")):
        if jars := _complete(folder, wanted):  # another process resolved them meanwhile
            return jars
        # Under the lock, leftovers of interrupted runs are unused.
        for stale in folder.parent.glob(f".{cache_name}-jars-*"):
            shutil.rmtree(stale, ignore_errors=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{cache_name}-jars-", dir=folder.parent))
        try:
            _copy_dependencies(staging, wanted, cache_name)
            if folder.exists():
                shutil.rmtree(folder)
            (staging / "jars").rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
        return _complete(folder, wanted)


def _complete(folder: Path, wanted: dict[str, list[str]]) -> list[Path]:
    """Return the jars of ``folder``; none if it is missing, incomplete or of other coordinates."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text())
        sizes: dict[str, int] = manifest.pop("sizes")
        lines = (folder / _SUMS).read_text().splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
        if manifest != wanted or not sizes or sums.keys() != sizes.keys():
            return []
        # Sizes first: they are cheap to check.
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        whole = whole and all(_sha256(folder / name) == digest for name, digest in sums.items())
    except (OSError, ValueError, KeyError, AttributeError):
        return []
    return [folder / name for name in sorted(sizes)] if whole else []


def _sha256(path: Path) -> str:
    """Return the checksum of a file; cached in the process until the file is touched."""
    stat = path.stat()
    return _sha256_of(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@functools.cache
def _sha256_of(path: Path, version: tuple[int, ...]) -> str:
    del version  # Only a key of the cache.
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` against other processes and threads."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _copy_dependencies(staging: Path, wanted: dict[str, list[str]], name: str) -> None:
    """Run Maven to fill ``staging/jars`` with the jars and their manifest."""
    maven = _mvn(name)
    jars = staging / "jars"
    pom = staging / "pom.xml"
    bom_extra = "<type>pom</type><scope>import</scope>"
    pom.write_text(
        _POM.format(
            boms="".join(_dependency(bom, bom_extra) for bom in wanted["boms"]),
            dependencies="".join(_dependency(one) for one in wanted["coordinates"]),
        )
    )
    # By default Maven only warns of a wrong checksum.
    command = [maven, "-B", "--strict-checksums", "-f", str(pom), _COPY_GOAL]
    command += ["-DincludeScope=runtime", "-Dmdep.useBaseVersion=true", f"-DoutputDirectory={jars}"]
    if "without" in wanted:
        command.append(f"-DexcludeArtifactIds={','.join(wanted['without'])}")
    lines = _run(command, f"Resolving the jars of {name} with Maven (once)")
    names = sorted(path.name for path in jars.glob("*.jar")) if lines is None else []
    if not names:
        raise _failed(name, lines or [])
    sizes = {jar: (jars / jar).stat().st_size for jar in names}
    (jars / _MANIFEST).write_text(json.dumps({**wanted, "sizes": sizes}, indent=1))
    (jars / _SUMS).write_text("".join(f"{_sha256(jars / jar)}  {jar}\n" for jar in names))


def _mvn(name: str) -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigurationError(
            f"The jars of {name} are not in {cache_dir()} yet, and Maven (mvn) is not on PATH.",
            hint="Install Maven and a JDK of version 17 or newer.",
        )
    return maven


def _failed(name: str, lines: Sequence[str]) -> ConfigurationError:
    errors = [line for line in lines if line.startswith("[ERROR]")][:6]
    return ConfigurationError(
        f"Maven could not resolve the jars of {name}: " + " ".join(errors or lines),
        hint="Check the network and Maven's settings.xml, then try again.",
    )


def _dependency(coordinate: str, extra: str = "") -> str:
    parts = coordinate.split(":")
    if len(parts) != 3 or not all(parts):
        raise ConfigurationError(f"{coordinate!r}: expected group:artifact:version.")
    group, artifact, number = map(escape, parts)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{number}</version>{extra}</dependency>"
    )


def _run(command: list[str], title: str) -> list[str] | None:
    """Run Maven and show its progress. Return None on success, else its last lines."""
    tail: list[str] = []
    downloaded = 0
    with (
        Progress(title) as progress,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as maven,
    ):
        assert maven.stdout is not None
        try:
            for line in maven.stdout:
                tail = [*tail[-40:], line.strip()]
                if line.startswith("[INFO] Copying "):
                    progress.show("copying the jars")
                elif "Downloaded from" in line:
                    downloaded += 1
                    progress.show(f"{downloaded} files downloaded")
        except BaseException:
            maven.kill()
            raise
    return None if maven.returncode == 0 else tail


_PLAIN_INTERVAL_S = 5.0


class Progress:
    """Shows a title and a changing detail on stderr."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._status: Status | None = None
        self._started_s = self._printed_s = time.monotonic()

    def show(self, detail: str) -> None:
        """Show the progress; without a terminal, at most one line in five seconds."""
        if self._status is not None:
            self._status.update(f"{self._title}: {detail}")
        elif time.monotonic() - self._printed_s >= _PLAIN_INTERVAL_S:
            self._printed_s = time.monotonic()
            self._print(detail)

    def _print(self, detail: str) -> None:
        # Standard output is for results.
        print(f"{self._title}: {detail}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from eos.cli.reports import new_console

            self._status = new_console(stderr=True).status(self._title)
            self._status.start()
        else:
            self._print("started")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
        took = time.monotonic() - self._started_s
        self._print("failed" if kind else f"took {took:.0f} s")
