"""A broker whose restart fails keeps its data; the fixture's broker is replaced once it is dead."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from eos.errors import ConfigurationError
from eos.testing import PulsarStandalone, _broker
from eos.testing import _settings as settings
from tests.support.checkout import ROOT


class Engine:
    """An engine whose first restart fails."""

    pid = 1
    data_dir = Path("data")

    def __init__(self) -> None:
        self.starts = 0
        self.is_alive = self.is_closed = False

    def start(self, values: Mapping[str, str], ports: list[int]) -> None:
        self.starts += 1
        self.is_alive = True
        if self.starts == 1:
            raise ConfigurationError("The port is taken.")

    def exit_code(self) -> int | None:
        return None if self.is_alive else 137

    def kill(self) -> None:
        self.is_alive = False

    def stop(self, grace_s: float) -> None:
        self.is_alive = False

    def close(self) -> None:
        self.is_closed = True

    def log(self) -> str:
        return ""


def test_a_failed_restart_can_be_repeated(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(_broker.Probe, "wait", lambda *_: None)
    broker = PulsarStandalone()
    broker._settings = settings.complete({}, transactions=True, token=None)
    broker._engine = engine  # as after a start, which would need Pulsar
    address = broker.service_url
    with pytest.raises(ConfigurationError, match="The port is taken"):
        broker.restart()
    assert not broker.is_running()
    assert broker.data_dir == engine.data_dir
    assert broker.restart().is_running()
    assert broker.service_url == address
    broker.stop()
    assert engine.is_closed


TESTS = """
import eos.testing._broker as module

class Broker:
    made = []
    def __init__(self): self.made.append(self)
    def start(self): self.alive = True; return self
    def is_running(self): return self.alive
    def stop(self, *_): self.alive = False
    __enter__, __exit__ = start, stop

module.PulsarStandalone = Broker

def test_leaves_it_dead(pulsar_standalone): pulsar_standalone.stop()
def test_does_not_use_it(): assert not Broker.made[0].alive
def test_uses_it(pulsar_standalone): assert pulsar_standalone.alive
"""


def test_a_dead_broker_is_replaced_for_the_next_test(tmp_path):
    (tmp_path / "test_users.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "3 passed" in ended.stdout, ended.stdout + ended.stderr
