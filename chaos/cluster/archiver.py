"""``eos catalog archive --follow`` of a job's input topic, started again whenever it has died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

from eos.steps import ArchiveStep

_PART_MB: Final = 1
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
_RESTART_S: Final = 0.5
_UNREACHABLE: Final = 2  # the exit code; among others if the one before is not gone yet
# The real program, which ends when its standard input does: this process may be killed.
_PROGRAM: Final = """
import os, runpy, signal, threading
def end():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
runpy.run_module("eos", run_name="__main__", alter_sys=True)
"""


class Archiver:
    """A context manager; at its end, no process is left."""

    def __init__(
        self,
        topic: str,
        table: str,
        folder: Path,  # for the log
        *,
        service_url: str,
        admin_url: str,
        tell: Callable[[str], None],
    ) -> None:
        self.table = table
        self.failure = ""  # with which it ended itself
        self.kills = 0
        self._words = [topic, table, "--service-url", service_url, "--admin-url", admin_url]
        self._words += ["--part-mb", str(_PART_MB)]
        self._log = folder / "archiver.log"
        self._folder = folder
        self._tell = tell
        self._env: Mapping[str, str] = {}
        self._process = self._started()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="archiver", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=60)
        self._process.kill()
        self._process.wait()

    @property
    def commits(self) -> int:
        """The number of the table's versions, with that of its creation."""
        return len(list(Path(self.table, "_delta_log").glob("*.json")))

    def proof(self) -> str:
        """The text about its work; "" if it was not killed."""
        return f"{self.commits} commits, {self.kills} kills" if self.commits > 1 else ""

    def kill(self) -> int:
        """SIGKILL it; it is started again. Return its process id."""
        process = self._process
        process.kill()
        process.wait()
        return process.pid

    def kill_at(self, step: ArchiveStep, *, timeout_s: float) -> int:
        """Let the next process die after ``step``; return its process id, 0 if it does not come."""
        fired = Path(tempfile.mkdtemp(prefix="fired-", dir=self._folder))
        setting = f"{step.label}=kill"
        self._env = {"EOS_FAILPOINTS": setting, "EOS_FAILPOINTS_FIRED": str(fired)}
        self.kill()
        deadline = time.monotonic() + timeout_s
        marker = fired / step.label
        while time.monotonic() < deadline and not self._over.is_set():
            if text := marker.read_text() if marker.exists() else "":
                return int(text)
            time.sleep(_POLL_S)
        self._env = {}
        return 0

    def finish(self) -> list[str]:
        """End it by Ctrl-C, archive the rest, and check the archive; return all that is wrong."""
        self._over.set()
        self._thread.join(timeout=60)
        was_killed = self._process.poll() is not None  # and not started again yet
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return ["the archiver does not end after SIGINT"]
        found = [self.failure] if self.failure else []
        if code and not was_killed:
            found.append(f"after SIGINT: {self._last_line()}, exit code {code}")
        for more in ([], ["--check"]):
            command = [sys.executable, "-m", "eos", "catalog", "archive", *self._words, *more]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
            if ended.returncode:
                text = " ".join((ended.stdout + ended.stderr).split())
                found.append(f"archive {' '.join(more)}: exit code {ended.returncode}: {text}")
        return found

    def _started(self) -> subprocess.Popen[bytes]:
        env, self._env = self._env, {}
        command = [sys.executable, "-c", _PROGRAM, "catalog", "archive", *self._words]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--follow", "--trim"],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the harness's terminal is not for it
            )

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            code = self._process.poll()
            if code is None:
                continue
            how = self._last_line() if code >= 0 else "killed"
            self._tell(f"archiver {self._process.pid}: {how}")
            self.kills += code < 0
            if code >= 0 and code != _UNREACHABLE:
                self.failure = f"the archiver ended by itself, exit code {code}: {how}"
                return
            if not self._over.wait(_RESTART_S):
                self._process = self._started()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:800]
