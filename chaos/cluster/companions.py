"""Programs that run beside the job, started again whenever they have died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from eos.chaos.cluster.proxy import FaultProxy
from eos.chaos.job import BEGUN, BROKE_OFF, COMMITTED, FENCED
from eos.steps import ArchiveStep

_PART_MB: Final = 1
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 0.1
_RESTART_S: Final = 0.5
_UNREACHABLE: Final = 2  # the exit code; among others if the one before is not gone yet
_TTL_S: Final = 20.0  # of the counter's transactions
# The real program, which ends when its standard input does: this process may be killed.
_PROGRAM: Final = """
import os, runpy, signal, sys, threading
def end():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=end, daemon=True).start()
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""


class Companion:
    """A context manager that runs a module; at its end, no process is left.

    Args:
        expected_codes: exit codes after which it is started again, as after a signal.
        folder: for its log.
    """

    def __init__(
        self,
        name: str,
        words: Sequence[str],  # the module and its arguments
        folder: Path,
        *,
        expected_codes: frozenset[int],
        tell: Callable[[str], None],
    ) -> None:
        self.failure = ""  # with which it ended itself
        self.kills = 0
        self._name = name
        self._words = words
        self._expected = expected_codes
        self._log = folder / f"{name}.log"
        self._folder = folder
        self._tell = tell
        self._env: Mapping[str, str] = {}
        self._all: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._process = self._started()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end_watch()
        # One that was overtaken may still be there.
        for process in self._all:
            process.kill()
            process.wait()

    def kill(self) -> int:
        """SIGKILL it; it is started again. Return its process id, 0 if it had ended."""
        process = self._process
        process.kill()
        return process.pid if process.wait() == -signal.SIGKILL else 0

    def _end_watch(self) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _started(self) -> subprocess.Popen[bytes]:
        env, self._env = self._env, {}
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *self._words],
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C at the harness's terminal is not for it
            )
        self._all.append(process)
        return process

    def _watch(self) -> None:
        while not self._over.wait(_POLL_S):
            code = self._process.poll()
            if code is None:
                continue
            how = self._last_line() if code >= 0 else "killed"
            self._tell(f"{self._name} {self._process.pid}: {how}")
            self.kills += code < 0
            if code >= 0 and code not in self._expected:
                self.failure = f"the {self._name} ended by itself, exit code {code}: {how}"
                return
            if not self._over.wait(_RESTART_S):
                self._process = self._started()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:800]


class Archiver(Companion):
    """``eos catalog archive --follow`` of a job's input topic."""

    def __init__(
        self,
        topic: str,
        table: str,
        folder: Path,
        *,
        service_url: str,
        admin_url: str,
        tell: Callable[[str], None],
    ) -> None:
        self.table = table
        self._command = ["catalog", "archive", topic, table, "--part-mb", str(_PART_MB)]
        self._command += ["--service-url", service_url, "--admin-url", admin_url]
        words = ["eos", *self._command, "--follow", "--trim"]
        codes = frozenset({_UNREACHABLE})
        super().__init__("archiver", words, folder, expected_codes=codes, tell=tell)

    @property
    def commits(self) -> int:
        """The number of the table's versions, with that of its creation."""
        return len(list(Path(self.table, "_delta_log").glob("*.json")))

    def proof(self) -> str:
        """The text about its work; "" if it has archived nothing."""
        return f"{self.commits} commits, {self.kills} kills" if self.commits > 1 else ""

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
        self._end_watch()
        was_killed = self._process.poll() is not None  # and not started again yet
        self._process.send_signal(signal.SIGINT)
        try:
            code = self._process.wait(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return ["the archiver does not end after SIGINT"]
        found = [self.failure] if self.failure else []
        # By the signal itself: it had just been started, and had no handler yet.
        if code not in (0, -signal.SIGINT) and not was_killed:
            found.append(f"after SIGINT: {self._last_line()}, exit code {code}")
        for more in ([], ["--check"]):
            command = [sys.executable, "-m", "eos", *self._command, *more]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
            if ended.returncode:
                text = " ".join((ended.stdout + ended.stderr).split())
                found.append(f"archive {' '.join(more)}: exit code {ended.returncode}: {text}")
        return found


class KeyedCounter(Companion):
    """``eos.chaos._keyed_counter`` of one partition: a service with its state in a topic.

    Args:
        base: the service's two topics have names that begin so.
        proxy: through which it reaches the broker.
    """

    def __init__(
        self, topic: str, base: str, folder: Path, proxy: FaultProxy, tell: Callable[[str], None]
    ) -> None:
        self.topic, self.counts, self.state = topic, f"{base}-counts", f"{base}-state"
        self._proxy = proxy
        words = [proxy.service_url, topic, self.state, self.counts, str(_TTL_S)]
        super().__init__(
            "counter",
            ["eos.chaos._keyed_counter", *words],
            folder,
            expected_codes=frozenset({0, BROKE_OFF, FENCED}),
            tell=tell,
        )

    def proof(self) -> str:
        """The text about its work; "" if it has committed nothing."""
        commits = self._printed(COMMITTED)
        return f"{commits} commits, {self.kills} kills" if commits else ""

    def kill_in_transaction(self, delay_s: float, *, timeout_s: float) -> str:
        """SIGKILL it in its next transaction; return a text about it, "" without one."""
        pid = self._await_transaction(delay_s, timeout_s) and self.kill()
        return f"pid {pid}" if pid else ""

    def cut_in_transaction(self, delay_s: float, *, timeout_s: float) -> str:
        """Cut its connections in its next transaction; return a text about it, "" without one."""
        cut = self._await_transaction(delay_s, timeout_s) and self._proxy.cut_all()
        return f"{cut} connections" if cut else ""

    def overtake(self, delay_s: float, unload: Callable[[], object], *, timeout_s: float) -> str:
        """Stop it in its next transaction until another one is at work, then let it go on.

        ``unload`` takes its consumer from it. Return a text about it; "" if there is no
        transaction, or if the other one does not come.
        """
        if not self._await_transaction(delay_s, timeout_s):
            return ""
        older = self._process
        # As after a long pause of its machine: it goes on where it was, perhaps with a commit.
        older.send_signal(signal.SIGSTOP)
        try:
            unload()
            self._process = self._started()
            is_overtaken = self._await_transaction(0.0, timeout_s)
        finally:
            older.send_signal(signal.SIGCONT)
            try:
                older.wait(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                self.failure = f"the overtaken counter {older.pid} goes on"
        return f"pid {older.pid} by {self._process.pid}" if is_overtaken else ""

    def end(self) -> None:
        """SIGKILL it for good."""
        self.__exit__()

    def _await_transaction(self, delay_s: float, timeout_s: float) -> bool:
        """Wait until it has begun one since now; then for ``delay_s`` more."""
        deadline = time.monotonic() + timeout_s
        before = self._printed(BEGUN)
        while self._printed(BEGUN) == before:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S / 20)
        time.sleep(delay_s)
        return True

    def _printed(self, word: str) -> int:
        return self._log.read_text(errors="replace").count(word)
