"""Servers as processes of this machine, which a supervisor ends; those of Pulsar, from jars that
Maven resolved."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import _settings as settings
from eos.testing import _supervisor as supervisor
from eos.testing import maven
from eos.testing.maven import Progress

_MIN_JAVA: Final = 17
_SUPERVISOR_END_S: Final = 10.0
_STANDALONE: Final = "org.apache.pulsar.PulsarStandaloneStarter"
# Since this version the bookie finds a free port, and the option is unknown (measured).
_BOOKIE_PICKS_PORT: Final = 5
# Pulsar makes a URI of the folder's name, and BookKeeper splits it at commas (both measured).
_UNUSABLE: Final = re.compile(r'[\s\x00-\x1f,"<>\\^`{|}]|%(?![0-9A-Fa-f]{2})')

# The smallest heap with which a bookie and a broker run well in one process. The serial collector
# and the C1 compiler halve the processor time of a start (10.3 s -> 5.5 s); a benchmark that lets
# the broker warm up should set "-XX:TieredStopAtLevel=4".
OPTIONS: Final = (
    "-Xms256m",
    "-Xmx1g",
    "-XX:MaxDirectMemorySize=1g",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
)
# As in Pulsar's own launch script (bin/pulsar).
_OPENS: Final = (
    "java.base/java.io",
    "java.base/java.util.zip",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/java.lang",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_PROPERTIES: Final = (
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.leakDetectionLevel=disabled",
    "-Djava.net.preferIPv4Stack=true",
    "-Dlog4j2.is.webapp=false",
    # On two cores Java's common pool would start a thread for each task.
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=2",
    "-Dbookkeeper.metadata.bookie.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)


def find_java() -> str | None:
    """Return the ``java`` of ``JAVA_HOME``, or else of ``PATH``, of version 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    for path in (f"{home}/bin", None) if home else (None,):
        java = shutil.which("java", path=path)
        if java and _is_new(java):
            return java
    return None


def _is_new(java: str) -> bool:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    # Java 8 reports 1.8: too old, whether read as 1 or as 8.
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return found is not None and int(found[1]) >= _MIN_JAVA


def need_java() -> str:
    """Return the result of ``find_java``.

    Raises:
        ConfigurationError: there is no such ``java``.
    """
    java = find_java()
    if java is None:
        raise ConfigurationError(
            "This machine can't run Pulsar: no Docker engine is used, and JAVA_HOME and PATH have "
            "no Java 17 or newer.",
            hint="Install a JDK of version 17 or newer and Maven, or start a Docker engine "
            "(with: pip install testcontainers).",
        )
    return java


class Supervised:
    """At most one process at a time; it ends when this process ends, even by SIGKILL.

    Args:
        name: of the server, for errors.
        data_dir: kept at the end; None: a temporary folder, deleted with the process.

    Attributes:
        data_dir: the folder.
        pid: of the process, if it runs.
    """

    def __init__(self, name: str, data_dir: Path | None) -> None:
        self._name = name
        self._is_temporary = data_dir is None
        self._lock = threading.Lock()
        self._number = 0
        self.pid: int | None = None
        if data_dir is not None:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._supervisor = subprocess.Popen(
            # -I -S: only the standard library, which starts faster.
            [
                *(sys.executable, "-I", "-S", supervisor.__file__),
                *(str(os.getpid()), "" if data_dir is None else str(data_dir.absolute())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Outside of the terminal's group: only the owner handles Ctrl-C and stops the process.
            start_new_session=True,
        )
        try:
            self.data_dir = Path(self._reply()["folder"])
        except BaseException:
            self._end_supervisor()
            raise

    def run_program(self, argv: Sequence[str], output: Path, user: int | None = None) -> None:
        """Start a program in the folder, as the user with the number ``user`` if given.

        Raises:
            ConfigurationError: the system can't run it.
            BrokerNotReady: the supervisor was killed; so in the other methods.
        """
        request = {"argv": argv, "cwd": str(self.data_dir), "output": str(output), "user": user}
        self.pid = self._request(do="run", **request)["pid"]

    def exit_code(self) -> int | None:
        """The exit code (minus the signal, if one ended it), or the killed supervisor's; None while
        the process runs."""
        try:
            return self._request(do="poll")["code"]  # type: ignore[no-any-return]
        except BrokerNotReady:
            return self._supervisor.wait(_SUPERVISOR_END_S)

    def kill(self) -> None:
        """Kill the process with SIGKILL; return when it is gone."""
        self._request(do="kill")
        self.pid = None

    def stop(self, grace_s: float, by: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process with the signal ``by``, and SIGKILL after ``grace_s``; return when it is
        gone."""
        self._request(do="stop", grace_s=grace_s, signal=by)
        self.pid = None

    def close(self) -> None:
        """End the supervisor, and with it the process and a temporary folder, if they still
        exist."""
        self._end_supervisor()
        self.pid = None
        if self._is_temporary:  # In case the supervisor was killed.
            deadline = time.monotonic() + _SUPERVISOR_END_S
            while self.data_dir.exists() and time.monotonic() < deadline:
                # A process that is being killed may still write.
                shutil.rmtree(self.data_dir, ignore_errors=True)

    @property
    def is_orphaned(self) -> bool:
        """Whether the supervisor was killed, and the process with it."""
        return self._supervisor.poll() is not None

    def _end_supervisor(self) -> None:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with self._lock:
            with contextlib.suppress(BrokenPipeError):  # It died before it read a request.
                self._supervisor.stdin.close()
            self._supervisor.wait()
            self._supervisor.stdout.close()

    def _request(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            assert self._supervisor.stdin is not None
            self._number += 1
            numbered = {**request, "number": self._number}
            try:
                self._supervisor.stdin.write(json.dumps(numbered).encode() + b"\n")
                self._supervisor.stdin.flush()
            except (OSError, ValueError) as error:
                raise BrokerNotReady(f"The {self._name}'s supervisor process is gone.") from error
            return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if not line:
            raise BrokerNotReady(f"The {self._name}'s supervisor process is gone.")
        reply: dict[str, Any] = json.loads(line)
        if reply["number"] < self._number:  # an interrupted request left it
            return self._reply()
        if "error" in reply:
            raise ConfigurationError(f"The {self._name} could not be run: {reply['error']}.")
        return reply


class Jvm(Supervised):
    """A JVM with a server.

    Args:
        java: path of the ``java`` to run.
        version: the version of Pulsar.
        data_dir: kept at the end; None: a temporary folder, deleted with the process.
        options: added to the default JVM options; of two that conflict, the last one wins.
        role: names it in errors and in its log's file name.

    Raises:
        ConfigurationError: Pulsar can't use a folder of this name.
    """

    def __init__(
        self,
        java: str,
        version: str,
        data_dir: Path | None,
        options: Sequence[str] = (),
        role: str = "broker",
    ) -> None:
        self._java = java
        self.version = version
        self._options = (*OPTIONS, *options)
        self._role = role
        folder = Path(tempfile.gettempdir()) if data_dir is None else data_dir.absolute()
        if found := _UNUSABLE.search(str(folder)):
            raise ConfigurationError(
                f"Pulsar can't keep data in {str(folder)!r}: its name contains {found[0]!r}.",
                hint="Choose another folder; that of temporary data is TMPDIR.",
            )
        self._jars = maven.pulsar_jars(version)
        self._log_start_bytes = 0
        super().__init__(role, data_dir)

    @property
    def conf(self) -> Path:
        """The path to which ``run`` writes the settings."""
        return self.data_dir / f"{self._role}.conf"

    def run(self, main: str, args: Sequence[str], values: Mapping[str, str]) -> None:
        """Start the class ``main`` with the settings ``values`` at ``conf``, without waiting."""
        folder = self.data_dir
        log4j2, output = folder / "log4j2.xml", folder / "jvm.out"
        for file in (self.conf, log4j2, self._log, output):
            file.touch(mode=0o600)  # It may contain a token,
            file.chmod(0o600)  # and may exist already.
        self.conf.write_text(settings.properties(values))
        log4j2.write_text(settings.log4j2(self._log))
        scratch = folder / "tmp"  # Native libraries are unpacked there and stay after a kill.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        self._log_start_bytes = self._log.stat().st_size
        argv = [self._java, *_PROPERTIES, *self._options, f"-Dlog4j2.configurationFile={log4j2}"]
        # It halves the processor time of a start (measured).
        if archive := find_archive(self._java, self._jars, self.version):
            argv.append(f"-XX:SharedArchiveFile={archive}")
        argv += [f"-Djava.io.tmpdir={scratch}"]
        for package in _OPENS:
            argv += ["--add-opens", f"{package}=ALL-UNNAMED"]
        argv += ["-cp", str(self._jars[0].parent / "*"), main, *args]
        self.run_program(argv, output)

    def log(self) -> str:
        """The JVM's output, and the log since the last start."""
        text = ""
        for path, start_bytes in (
            (self.data_dir / "jvm.out", 0),
            (self._log, self._log_start_bytes),
        ):
            if path.exists():
                text += path.read_bytes()[start_bytes:].decode(errors="replace")
        if self.is_orphaned:
            text += (
                f"The supervisor of the {self._role} was killed, and the {self._role} with it.\n"
            )
        return text

    @property
    def _log(self) -> Path:
        return self.data_dir / f"{self._role}.log"


class StandaloneJvm(Jvm):
    """Broker, bookie and metadata store in one JVM: Pulsar's standalone mode."""

    def start(self, values: Mapping[str, str], ports: list[int]) -> None:
        """Start it with the settings ``values``, without waiting until it is ready."""
        args = ["--config", str(self.conf), "--no-functions-worker", "--no-stream-storage"]
        args += ["--metadata-dir", str(self.data_dir / "metadata")]
        args += ["--bookkeeper-dir", str(self.data_dir / "bookkeeper")]
        if int(self.version.partition(".")[0]) < _BOOKIE_PICKS_PORT:
            args += ["--bookkeeper-port", str(settings.free_port(set(ports)))]
        self.run(_STANDALONE, args, values)


def find_archive(java: str, jars: list[Path], version: str) -> Path | None:
    """Return the archive of the broker's classes for this ``java`` and these ``jars``, if any."""
    archive = archive_path(java, version)
    try:
        # The JVM refuses an archive that is older than its jars.
        is_fresh = archive.stat().st_mtime > max(jar.stat().st_mtime for jar in jars)
    except OSError:
        return None
    return archive if is_fresh else None


def archive_path(java: str, version: str) -> Path:
    """Return the path of the archive for ``java`` and this version, whether it exists or not."""
    binary = Path(java).resolve()
    tag = hashlib.sha256(f"{binary}:{binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return maven.cache_dir() / f"pulsar-{version}-classes-{tag}.jsa"


def create_archive(java: str, version: str, run_broker: Callable[[Path, str], None]) -> Path | None:
    """Create the archive unless it exists, in about 15 s; None if this JVM did not write one.

    ``run_broker`` starts a broker with a data folder and a JVM option, and stops it in order.
    """
    jars = maven.pulsar_jars(version)
    archive = archive_path(java, version)
    with maven.locked(archive.with_suffix(".lock")):
        if found := find_archive(java, jars, version):
            return found
        archive.unlink(missing_ok=True)
        with (
            Progress("Archiving the broker's classes for faster starts (once)"),
            tempfile.TemporaryDirectory(prefix=f".{archive.stem}-", dir=archive.parent) as folder,
        ):
            staged = Path(folder, archive.name)
            # A broker without a data folder would be killed, and write no archive.
            run_broker(Path(folder, "data"), f"-XX:ArchiveClassesAtExit={staged}")
            if staged.exists():
                staged.rename(archive)
    return find_archive(java, jars, version)
