"""A server process and its data folder, which a small supervisor process owns."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import _supervisor as supervisor

_SUPERVISOR_END_S: Final = 10.0


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
