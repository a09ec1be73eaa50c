"""The supervisor's replies: an interrupted request does not shift them."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from eos.testing import maven
from eos.testing.jvm import Jvm


class Interrupted(BaseException):
    """Raised by a signal's handler, like KeyboardInterrupt."""


def test_reply_to_an_interrupted_request_is_not_that_to_the_next_one(monkeypatch, tmp_path):
    def interrupt(*_: object) -> None:
        raise Interrupted

    def run(code: str) -> int:
        argv, output = [sys.executable, "-c", code], tmp_path / "out"
        request = {"do": "run", "argv": argv, "cwd": str(tmp_path), "output": str(output)}
        found: int = jvm._request(request)["pid"]
        return found

    monkeypatch.setattr(maven, "pulsar_jars", lambda _: [Path("/nowhere/pulsar.jar")])
    before = signal.signal(signal.SIGALRM, interrupt)
    jvm = Jvm(sys.executable, "4.2.4", None)
    try:
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
        run(f"{stubborn}; time.sleep(60)")
        while not (tmp_path / "out").read_text():
            time.sleep(0.01)
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                jvm.stop(6)  # and is interrupted long before
        assert jvm.exit_code() == -signal.SIGKILL
        assert run("import time; time.sleep(60)") > 0
        assert jvm.exit_code() is None
        jvm.kill()
        assert jvm.exit_code() == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGALRM, before)
        jvm.close()
