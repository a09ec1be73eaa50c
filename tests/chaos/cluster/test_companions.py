"""Companions: a kill counts if there was a process, and an exit code if the program has it."""

from __future__ import annotations

import subprocess
import sys

from eos.chaos.cluster.companions import Companion
from eos.chaos.job import BROKE_OFF


def companion(tmp_path, *words: str) -> Companion:
    return Companion("one", words, tmp_path, expected_codes=frozenset({0}), tell=lambda _: None)


def test_only_a_living_process_can_be_killed(tmp_path):
    living = companion(tmp_path, "http.server", "0", "--bind", "127.0.0.1")
    with living:
        pid = living._process.pid
        assert living.kill() == pid
    ended = companion(tmp_path, "platform")
    ended._process = ended._started()
    ended._process.wait()
    assert ended.kill() == 0


def test_only_an_error_of_eos_is_expected_of_the_counter():
    def code(*arguments: str) -> int:
        command = [sys.executable, "-m", "eos.chaos._keyed_counter", *arguments]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert code("no URL", "from", "state", "to") == BROKE_OFF
    assert code("a bug: too few arguments") == 1
