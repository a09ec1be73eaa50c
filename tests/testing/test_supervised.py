"""The supervisor's replies: an interrupted request does not shift them."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from eos.testing import _settings as settings
from eos.testing.jvm import StandaloneJvm, Supervised


class Interrupted(BaseException):
    """Raised by a signal's handler, like KeyboardInterrupt."""


def test_reply_to_an_interrupted_request_is_not_that_to_the_next_one(tmp_path):
    def interrupt(*_: object) -> None:
        raise Interrupted

    def run(code: str) -> int:
        process.run_program([sys.executable, "-c", code], tmp_path / "out")
        assert process.pid is not None
        return process.pid

    before = signal.signal(signal.SIGALRM, interrupt)
    process = Supervised("server", None)
    try:
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
        run(f"{stubborn}; time.sleep(60)")
        while not (tmp_path / "out").read_text():
            time.sleep(0.01)
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Interrupted):
                process.stop(6)  # and is interrupted long before
        assert process.exit_code() == -signal.SIGKILL
        assert run("import time; time.sleep(60)") > 0
        assert process.exit_code() is None
        process.kill()
        assert process.exit_code() == -signal.SIGKILL
    finally:
        signal.signal(signal.SIGALRM, before)
        process.close()


def test_the_bookies_port_is_none_of_the_brokers(monkeypatch, tmp_path):
    """Neither listens yet when the port is chosen, so both are free."""
    first = settings.free_port(set())
    second = settings.free_port({first})
    monkeypatch.setattr(settings, "_PORTS", [first] * 199 + [second])
    begun: list[str] = []
    monkeypatch.setattr(StandaloneJvm, "run", lambda _, main, args, values: begun.extend(args))
    server = StandaloneJvm.__new__(StandaloneJvm)  # without a process
    server.version, server.data_dir, server._role = "4.2.4", tmp_path, "broker"
    server.start({}, [first])
    assert begun[begun.index("--bookkeeper-port") + 1] == str(second)
