"""``status --watch``: a refreshed table, and a clean end."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.protocol.epochs import claim, committed_epoch, opened
from tests.support.logs import failed_epoch, log_of, small_log

ROOT = Path(__file__).parent.parent.parent.parent
COMMAND = (sys.executable, "-m", "eos", "recovery", "status", "--watch", "--every-s", "0.2")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "160", "TERM": "xterm"}


def started(root: Path, *args: str, stdout: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "--commit-log", str(root), *args],
        cwd=root.parent,
        env=ENVIRONMENT,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def ended_by_ctrl_c(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def read_until(fd: int, text: str, count: int = 1) -> str:
    """Read ``fd`` until ``text`` has come that often."""
    seen, deadline = "", time.monotonic() + 60
    while seen.count(text) < count:
        assert time.monotonic() < deadline, seen
        if select.select([fd], [], [], 1)[0]:
            seen += os.read(fd, 65536).decode()
    return seen


def test_terminal_shows_a_live_table_until_ctrl_c(root):
    run = claim()
    log = log_of(root, run, *committed_epoch(run, "0"))
    master, slave = pty.openpty()
    process = started(root, stdout=slave)
    os.close(slave)
    try:
        first = read_until(master, "stop with Ctrl-C")
        for column in ("sink", "last committed", "unfinished", "not written", "claim"):
            assert column in first
        log.append(opened(run, "1", least=8))
        read_until(master, "1 OPEN")
        code, err = ended_by_ctrl_c(process)
    finally:
        process.kill()
        os.close(master)
    assert (code, err) == (0, b"")


def test_json_prints_a_line_for_each_refresh(root):
    run = claim()
    log_of(root, run, failed_epoch(run, "0"))
    process = started(root, "--json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        lines = [json.loads(process.stdout.readline()) for _ in range(3)]
        code, err = ended_by_ctrl_c(process)
    finally:
        process.kill()
    assert (code, err) == (0, b"")
    assert [line["sinks"][0]["owing"][0]["epoch"] for line in lines] == ["0"] * 3
    assert lines[0]["exit_code"] == 1


def test_removed_log_is_reported_and_does_not_end_the_watch(root):
    small_log(root)
    process = started(root, "--json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        root.rename(root.with_name("away"))
        line = json.loads(process.stdout.readline())
        while "error" not in line:
            line = json.loads(process.stdout.readline())
        assert "No commit log found below" in line["error"]
        assert (line["exit_code"], "Check that it is mounted" in line["hint"]) == (64, True)
        root.with_name("away").rename(root)
        while "sinks" not in line:
            line = json.loads(process.stdout.readline())
        assert ended_by_ctrl_c(process) == (0, b"")
    finally:
        process.kill()


def test_closed_pipe_ends_it_without_a_traceback(root):
    small_log(root)
    process = started(root, "--json", stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    assert process.wait(30) == 0


def test_pipe_gets_the_table_at_each_refresh(root):
    small_log(root)
    process = started(root, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        seen = read_until(process.stdout.fileno(), "stop with Ctrl-C", 3)
        assert ended_by_ctrl_c(process) == (0, b"")
    finally:
        process.kill()
    assert seen.count("last committed") == 3
    assert "\x1b" not in seen


@pytest.mark.parametrize("every_s", ["0", "-1", "x"])
def test_zero_interval_is_refused(recovery, root, every_s):
    small_log(root)
    ended = recovery("status", "--watch", "--every-s", every_s, "--commit-log", root)
    assert ended.code == 64


def test_missing_sink_is_refused_at_once(recovery, root):
    small_log(root)
    ended = recovery("status", "oders", "--watch", "--commit-log", root)
    assert ended.code == 64
    assert "Sink 'oders' does not exist" in ended.err
