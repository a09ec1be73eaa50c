"""``eos-broker`` as people run it: a process of its own, stopped by a signal."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from eos.standalone import PulsarStandalone, class_archive, maven
from eos.standalone.cli import app
from tests.standalone.messages import read, write

TOPIC = "persistent://public/default/kept"
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


def test_start_runs_until_sigterm_and_its_data_can_be_opened_again(tmp_path: Path):
    data = tmp_path / "data"
    command = [sys.executable, "-m", "eos.standalone.cli", "start", "--data", str(data)]
    command += ["--port", "0", "--admin-port", "0", "--set", "maxMessageSize=1048576"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            if found := re.search(r"service URL: +(\S+)", line):
                url = found[1]
            if line.startswith("Ready"):
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        assert "maxMessageSize=1048576\n" in (data / "broker.conf").read_text()
        write(url, TOPIC, [b"kept"])

        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "Stopped." in out
    assert not any(child.is_running() for child in children)

    with PulsarStandalone(data) as broker:
        assert broker.data_dir == data
        assert read(broker.service_url, TOPIC, 1) == [b"kept"]
    assert (data / "bookkeeper").is_dir()


def test_help_teaches_by_example_and_names_the_exit_codes():
    answer = runner.invoke(app, ["start", "--help"])
    assert answer.exit_code == 0
    assert "eos-broker start --data" in answer.output
    assert "Exit codes" in answer.output


def test_a_malformed_setting_is_a_usage_error():
    answer = runner.invoke(app, ["start", "--set", "maxMessageSize"])
    assert answer.exit_code == 2
    assert "KEY=VALUE" in answer.output


def test_fetch_without_maven_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = runner.invoke(app, ["fetch"])
    assert answer.exit_code == 2
    assert "Install Maven" in answer.output


def test_fetch_tells_what_is_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(maven, "pulsar_jars", lambda: [tmp_path / "a.jar"])
    monkeypatch.setenv("EOS_BROKER", "maven")
    monkeypatch.setattr(class_archive, "create", lambda java: tmp_path / "classes.jsa")
    answer = runner.invoke(app, ["fetch"])
    assert answer.exit_code == 0
    assert f"1 jars in {tmp_path}" in answer.output
    assert "classes.jsa" in answer.output


def test_an_archive_older_than_the_jars_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    java, jar = tmp_path / "java", tmp_path / "a.jar"
    java.touch()
    jar.touch()
    assert class_archive.find(str(java), [jar]) is None
    archive = class_archive._path(str(java))
    archive.touch()
    os.utime(jar, (1, 1))
    assert class_archive.find(str(java), [jar]) == archive
    os.utime(archive, (0, 0))
    assert class_archive.find(str(java), [jar]) is None
