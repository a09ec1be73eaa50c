"""How console scripts end if their output can't be written, or by Ctrl-C during their imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

LOST = {"": 2, "recovery": 2, "catalog": 2, "chaos": 2, "broker": 1}


def run(name: str, redirection: str) -> tuple[int, str]:
    """Run ``--help`` of a program in a shell; return its exit code and its stderr."""
    # A shell can close a stream; bash has the exit code of a pipe's first program.
    script = f'"$0" -m eos {name} --help {redirection}; exit ${{PIPESTATUS[0]}}'
    ended = subprocess.run(
        ["bash", "-c", script, sys.executable], capture_output=True, text=True, timeout=60
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("name", LOST)
def test_a_full_disk_is_one_line_and_an_error_code(name):
    code, said = run(name, ">/dev/full")
    assert code == LOST[name]
    assert said.count("\n") == 1
    assert "No space left on device" in said


def test_a_broken_pipe_is_silent():
    assert run("recovery", "| sleep 0") == (LOST["recovery"], "")


def test_closed_streams_change_nothing():
    assert run("recovery", ">&- 2>&-") == (0, "")


NAMED = """
import sys
from eos.cli.programs import start
def main():
    print("orders\u2026 \u00e9")
start("some", "__main__:main", lost=2)
"""


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", rb"orders\u2026 \xe9"), ("latin-1", b"orders\\u2026 \xe9")]
)
def test_a_terminal_that_lacks_a_character_gets_its_code(encoding, shown):
    ended = subprocess.run(
        [sys.executable, "-c", NAMED],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        timeout=60,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, shown + b"\n", b"")


SLOW = """
import time
print("importing", flush=True)
time.sleep(60)
"""


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    command = "from eos.cli.programs import start; start('slow', 'slow:main', lost=2)"
    root = Path(__file__).parent.parent.parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)])}
    with subprocess.Popen(
        [sys.executable, "-c", command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert said == b""
