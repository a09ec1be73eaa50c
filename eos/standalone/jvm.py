"""A server of Pulsar's as a JVM on this machine, from jars that Maven resolved."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eos.errors import BrokerNotReady, ConfigurationError
from eos.standalone import _class_archive as class_archive
from eos.standalone import _settings as settings
from eos.standalone import _supervisor as supervisor
from eos.standalone import maven

_MIN_JAVA: Final = 17
_SUPERVISOR_END_S: Final = 10.0
_INSTALL_HINT: Final = (
    "Install a JDK of version 17 or newer and Maven, or start a Docker engine "
    "(with: pip install 'eos-pulsar[test]')."
)
# As small as a bookie and a broker in one process still run well with. The simple collector and
# the quick compiler halve the processor time of a start (10.3 s -> 5.5 s); a benchmark that lets
# the broker warm up wants "-XX:TieredStopAtLevel=4" back.
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
    # With two cores Java's common pool would start a thread for each task.
    "-Djava.util.concurrent.ForkJoinPool.common.parallelism=2",
    "-Dbookkeeper.metadata.bookie.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataBookieDriver",
    "-Dbookkeeper.metadata.client.drivers="
    "org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver",
)


def find_java() -> str | None:
    """The ``java`` of ``JAVA_HOME`` or ``PATH``, when it is of version 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else None
    java = java or shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 calls itself 1.8, which is old enough for us under either reading.
    found = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return java if found and int(found[1]) >= _MIN_JAVA else None


def need_java() -> str:
    """The same.

    Raises:
        ConfigurationError: there is none.
    """
    java = find_java()
    if java is None:
        raise ConfigurationError(
            "Nothing here can run Pulsar: no Docker engine is used and no Java 17 or newer is on "
            "JAVA_HOME or PATH.",
            hint=_INSTALL_HINT,
        )
    return java


class Jvm:
    """A process and its data folder; a supervisor process owns both.

    Args:
        java: path of the ``java`` to run.
        version: of Pulsar.
        data_dir: kept at the end; None: a temporary folder that goes with the process.
        options: of the JVM, after our own: the last of two that contradict wins.
        role: what it is, for errors and for the name of its log.
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
        self._jars = maven.pulsar_jars(version)
        self._is_temporary = data_dir is None
        self._lock = threading.Lock()
        self._log_start_bytes = 0
        self.pid: int | None = None
        if data_dir is not None:
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._supervisor = subprocess.Popen(
            # -I -S: the standard library is enough, and starts faster alone.
            [
                *(sys.executable, "-I", "-S", supervisor.__file__),
                *(str(os.getpid()), "" if data_dir is None else str(data_dir.absolute())),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Out of the terminal's group: Ctrl-C is for the owner, who stops the process.
            start_new_session=True,
        )
        try:
            self.data_dir = Path(self._reply()["folder"])
        except BaseException:
            self._end_supervisor()
            raise

    @property
    def conf(self) -> Path:
        """Where ``run`` writes the settings."""
        return self.data_dir / f"{self._role}.conf"

    def run(self, main: str, args: Sequence[str], values: Mapping[str, str]) -> None:
        """Start the class ``main``; it is not ready yet.

        Args:
            args: of the program; ``conf`` is the path of its settings.
            values: the settings.
        """
        folder = self.data_dir
        log4j2, output = folder / "log4j2.xml", folder / "jvm.out"
        for file in (self.conf, log4j2, self._log, output):
            file.touch(mode=0o600)  # May hold a token,
            file.chmod(0o600)  # and may be there already.
        self.conf.write_text(settings.properties(values))
        log4j2.write_text(settings.log4j2(self._log))
        scratch = folder / "tmp"  # Native libraries are unpacked there; a kill leaves them.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(mode=0o700)
        self._log_start_bytes = self._log.stat().st_size
        argv = [self._java, *self._options, *_PROPERTIES, f"-Dlog4j2.configurationFile={log4j2}"]
        if archive := class_archive.find(self._java, self._jars, self.version):
            argv.append(f"-XX:SharedArchiveFile={archive}")
        argv += [f"-Djava.io.tmpdir={scratch}"]
        for package in _OPENS:
            argv += ["--add-opens", f"{package}=ALL-UNNAMED"]
        argv += ["-cp", str(self._jars[0].parent / "*"), main, *args]
        request = {"do": "run", "argv": argv, "cwd": str(folder), "output": str(output)}
        self.pid = self._request(request)["pid"]

    def exit_code(self) -> int | None:
        """The JVM's exit code (minus the signal, when one ended it); None while it runs.

        That of the supervisor when somebody killed it: it takes the JVM along.
        """
        try:
            return self._request({"do": "poll"})["code"]  # type: ignore[no-any-return]
        except BrokerNotReady:
            return self._supervisor.wait(_SUPERVISOR_END_S)

    def kill(self) -> None:
        """SIGKILL; returns when the JVM is gone."""
        self._request({"do": "kill"})
        self.pid = None

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after ``grace_s``; returns when the JVM is gone."""
        self._request({"do": "stop", "grace_s": grace_s})
        self.pid = None

    def close(self) -> None:
        """End the supervisor, and with it the JVM and a temporary folder, if they still are."""
        self._end_supervisor()
        self.pid = None
        if self._is_temporary:  # In case somebody killed the supervisor.
            deadline = time.monotonic() + _SUPERVISOR_END_S
            while self.data_dir.exists() and time.monotonic() < deadline:
                # A JVM that is just being killed may still write.
                shutil.rmtree(self.data_dir, ignore_errors=True)

    def _end_supervisor(self) -> None:
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        with self._lock:
            with contextlib.suppress(BrokenPipeError):  # A request that it did not live to read.
                self._supervisor.stdin.close()
            self._supervisor.wait()
            self._supervisor.stdout.close()

    def log(self) -> str:
        """What it logged since its last start, and what the JVM said beside the log."""
        text = ""
        for path, start_bytes in (
            (self.data_dir / "jvm.out", 0),
            (self._log, self._log_start_bytes),
        ):
            if path.exists():
                text += path.read_bytes()[start_bytes:].decode(errors="replace")
        if self._supervisor.poll() is not None:
            text += f"The process that looks after the {self._role} was killed, "
            text += f"and the {self._role} with it.\n"
        return text

    @property
    def _log(self) -> Path:
        return self.data_dir / f"{self._role}.log"

    def _request(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            assert self._supervisor.stdin is not None
            try:
                self._supervisor.stdin.write(json.dumps(request).encode() + b"\n")
                self._supervisor.stdin.flush()
            except (OSError, ValueError) as error:
                raise BrokerNotReady(f"The {self._role}'s supervisor process is gone.") from error
            return self._reply()

    def _reply(self) -> dict[str, Any]:
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if not line:
            raise BrokerNotReady(f"The {self._role}'s supervisor process is gone.")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise ConfigurationError(f"The {self._role}'s JVM could not be run: {reply['error']}.")
        return reply
