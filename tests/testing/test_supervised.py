"""The supervisor's replies: an interrupted request does not shift them."""

from __future__ import annotations

import re
import signal
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from eos.errors import ConfigurationError
from eos.testing import _settings as settings
from eos.testing.jvm import Jvm, StandaloneJvm, Supervised, find_java


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


@pytest.mark.parametrize("name", ["a b", "a,b", "${sys:user.home}", "a\\b", 'a"b', "a<b", "100%"])
def test_a_folder_that_pulsar_cant_use_is_named_before_anything_starts(tmp_path, monkeypatch, name):
    folder = tmp_path / name
    with pytest.raises(ConfigurationError, match=re.escape(repr(str(folder)))):
        Jvm("java", "4.2.4", folder)
    assert not folder.exists()
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with pytest.raises(ConfigurationError, match=re.escape(repr(str(folder)))):
        Jvm("java", "4.2.4", None)
    assert list(folder.iterdir()) == []


def test_the_log_is_configured_in_any_usable_folder():
    xml = ElementTree.fromstring(settings.log4j2(Path("/R&D's/broker.log")))
    assert [file.get("fileName") for file in xml.iter("File")] == ["/R&D's/broker.log"]


def test_the_error_says_why_a_folder_cant_be_used(tmp_path):
    (tmp_path / "eos-server.lock").mkdir()
    with pytest.raises(ConfigurationError, match="Is a directory: '/"):
        Supervised("server", tmp_path)


def test_an_old_java_in_java_home_does_not_hide_the_paths(tmp_path, monkeypatch):
    for folder, version in (("old/bin", "11.0.2"), ("new", "17.0.1")):
        java = tmp_path / folder / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path / "new"))
    assert find_java() == str(tmp_path / "new" / "java")
    java.unlink()
    assert find_java() is None
