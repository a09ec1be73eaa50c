"""A small process between the owner and a server, so that nothing is left behind.

It owns the server's process and a temporary data folder, if one is requested. It ends, and with it
both, when its owner closes the pipe or dies, even by SIGKILL.

Requests are JSON lines on stdin; each is answered by one line on stdout, with its ``number``:
``{"do": "run", "argv": [...], "cwd": ..., "output": ..., "user": number or null}`` ->
``{"pid": n}``; ``{"do": "kill"}`` (SIGKILL), ``{"do": "stop", "signal": n, "grace_s": x}`` (then
SIGKILL) and ``{"do": "poll"}`` -> ``{"code": exit code or null}``. The first line out, number 0,
is ``{"folder": ...}``.
"""

# Only the standard library, which starts faster.
from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

_POLL_S = 0.25
_LOCK_WAIT_S = 5.0  # After its owner was killed, a server takes a moment to end.
_DELETE_WAIT_S = 5.0
_PR_SET_PDEATHSIG = 1


def _die_with_supervisor() -> None:
    """In the server's process, before exec: make it die with the supervisor."""
    # The kernel's signal follows the thread that forked, so the owner could not use it alone. The
    # supervisor has one thread.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Supervisor:
    """Holds at most one server and answers requests about it."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute ``request``; a system error is returned as ``{"error": text}``."""
        try:
            if request["do"] == "run":
                return {"pid": self._run(request)}
            if request["do"] == "kill":
                self.kill()
            elif request["do"] == "stop":
                self._stop(request["signal"], request["grace_s"])
        except OSError as error:
            return {"error": str(error)}
        return {"code": self._server.poll() if self._server else None}

    def _run(self, request: dict[str, Any]) -> int:
        self.kill()
        with open(request["output"], "ab") as out:
            self._server = subprocess.Popen(
                request["argv"],
                cwd=request["cwd"],
                user=request["user"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                preexec_fn=_die_with_supervisor,
            )
        return self._server.pid

    def _stop(self, number: int, grace_s: float) -> None:
        if self._server and self._server.poll() is None:
            self._server.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(grace_s)
        self.kill()

    def kill(self) -> None:
        """Kill the server with SIGKILL and wait until it is gone."""
        if self._server and self._server.poll() is None:
            self._server.kill()
            self._server.wait()


def _serve(supervisor: Supervisor, owner_pid: int) -> None:
    """Answer until the pipe closes or the owner is gone."""
    # The pipe is not enough: a process that the owner forked may keep its other end open.
    pending = b""
    while os.getppid() == owner_pid:
        if not select.select([0], [], [], _POLL_S)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            return
        pending += data
        while b"\n" in pending:
            line, pending = pending.split(b"\n", 1)
            request = json.loads(line)
            _send(supervisor.answer(request), request["number"])


def _send(reply: dict[str, Any], number: int = 0) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps({**reply, "number": number}).encode() + b"\n")


def _lock(folder: str) -> int | None:
    """Lock ``folder`` against other servers; return None if one keeps it locked."""
    # The server does not inherit the lock: it would keep it after the supervisor was killed.
    lock = os.open(os.path.join(folder, "eos-server.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                return None
            time.sleep(_POLL_S)


def main(owner_pid: int, data_dir: str) -> None:
    """Serve the process ``owner_pid``; an empty ``data_dir`` asks for a temporary one."""
    # Ctrl-C in a terminal reaches the whole process group; only the owner handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.umask(0o077)  # Only the user may read the server's log and data.
    supervisor, folder = Supervisor(), data_dir
    try:
        folder = folder or tempfile.mkdtemp(prefix="eos-server-")
        lock = _lock(folder)  # held as long as this process lives
        if lock is None:
            _send({"error": f"another server uses {folder}"})
            return
        _send({"folder": folder})
        _serve(supervisor, owner_pid)
    except OSError as error:
        _send({"error": str(error)})
    finally:
        supervisor.kill()
        if not data_dir:
            deadline = time.monotonic() + _DELETE_WAIT_S
            while os.path.exists(folder) and time.monotonic() < deadline:
                shutil.rmtree(folder, ignore_errors=True)  # its children may still write


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
