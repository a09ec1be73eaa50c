"""``eos broker`` as users run it: a separate process, stopped by a signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pulsar
import pytest
from typer.testing import CliRunner

from eos.testing import PulsarStandalone, jvm, maven
from eos.testing._settings import free_port
from eos.testing.cli import TokenFolder, app
from tests.testing.messages import read, write

pytestmark = pytest.mark.broker

TOPIC = "persistent://public/default/kept"
runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb"})


@contextmanager
def started(*options: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict]]:
    """Run ``eos broker start`` on free ports; yield its process and its output until "Ready"."""
    command = [sys.executable, "-m", "eos", "broker", "start", *options]
    command += ["--port", "0", "--admin-port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        assert process.stdout is not None
        said: dict[str, str] = {}
        for line in process.stdout:
            name, _, value = line.strip().partition(":")
            said[name] = value.strip()
            if line.startswith("Ready"):
                break
        yield process, said
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> str:
    """Stop it with SIGTERM; return the rest of its output."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out


def test_start_runs_until_sigterm_and_its_data_can_be_opened_again(tmp_path: Path):
    data = tmp_path / "data"
    with started("--data", str(data), "--set", "maxMessageSize=1048576") as (process, said):
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        assert "maxMessageSize=1048576\n" in (data / "broker.conf").read_text()
        write(said["service URL"], TOPIC, [b"kept"])
        assert "Stopped." in stop(process)
    assert not any(child.is_running() for child in children)

    with PulsarStandalone(data) as broker:
        assert broker.data_dir == data
        assert read(broker.service_url, TOPIC, 1) == [b"kept"]
    assert (data / "bookkeeper").is_dir()


def test_a_cluster_is_started_and_a_server_that_dies_is_named():
    with started("--brokers", "2", "--bookies", "1", "--temporary") as (process, said):
        assert said["service URL"].count(",") == 1
        assert said["admin URL"].count(",") == 1
        write(said["service URL"], TOPIC, [b"1"])
        pid = int(said["broker-1"].split()[1].rstrip(","))
        psutil.Process(pid).kill()
        assert process.stderr is not None
        assert "broker-1 died." in process.stderr.readline()
        children = psutil.Process(process.pid).children(recursive=True)
        assert "Stopped." in stop(process)
    assert not any(child.is_running() for child in children)


def test_another_version_of_pulsar_can_be_chosen():
    answer = runner.invoke(app, ["start", "--pulsar-version", "latest"])
    assert answer.exit_code == 2
    assert "such as 4.2.4" in answer.output
    assert maven.pulsar_version("4.0.7") == "4.0.7"


def test_data_is_kept_by_default(tmp_path: Path):
    """The commit log and checkpoint of a first example outlive its broker, so its data must too."""
    where = {"XDG_DATA_HOME": str(tmp_path)}
    with started(**where) as (process, said):
        assert said["data"] == f"{tmp_path}/eos/broker (kept)"
        write(said["service URL"], TOPIC, [b"kept"])
        stop(process)
    with started(**where) as (process, said):
        assert read(said["service URL"], TOPIC, 1) == [b"kept"]
        stop(process)


def test_a_folder_has_one_broker_and_a_temporary_one_is_deleted(tmp_path: Path):
    data = tmp_path / "data"
    with started("--temporary", XDG_DATA_HOME=str(tmp_path)) as (process, said):
        folder = Path(said["data"].removesuffix(" (temporary)"))
        assert folder.is_dir()
        stop(process)
    assert not folder.exists()
    assert not (tmp_path / "eos").exists()
    with PulsarStandalone(data) as broker:
        answer = runner.invoke(app, ["start", "--data", str(data), "--port", "0"])
        assert answer.exit_code == 2
        assert "another server uses" in answer.output
        assert broker.is_running()
    answer = runner.invoke(app, ["start", "--data", str(data), "--temporary"])
    assert answer.exit_code == 2


def test_a_port_in_use_is_named_before_anything_starts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        answer = runner.invoke(app, ["start", "--temporary", "--port", str(port)])
    assert answer.exit_code == 2
    assert f"Something listens on port {port}" in " ".join(answer.output.split())


def test_a_port_that_is_given_twice_is_named_before_anything_starts():
    port = str(free_port(set()))
    answer = runner.invoke(app, ["start", "--temporary", "--port", port, "--admin-port", port])
    assert answer.exit_code == 2
    assert f"webServicePort={port}: another listener" in answer.output


@pytest.mark.parametrize("command", [["start"], ["start", "--temporary"], ["fetch"]])
def test_a_user_without_a_home_directory_is_told(monkeypatch: pytest.MonkeyPatch, command):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    for variable in ("EOS_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("EOS_BROKER", "maven")
    ports = [] if command == ["fetch"] else ["--port", "0", "--admin-port", "0"]
    answer = runner.invoke(app, [*command, *ports])
    assert answer.exit_code == 2
    assert "no home directory. Set HOME" in answer.output


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_supervisor_is_reported_and_leaves_nothing(number: signal.Signals):
    with started("--temporary") as (process, said):
        folder = Path(said["data"].removesuffix(" (temporary)"))
        (supervisor,) = psutil.Process(process.pid).children()
        children = supervisor.children(recursive=True)
        supervisor.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "The broker died" in err
    assert "supervisor of the broker was killed" in err
    assert "Traceback" not in err
    psutil.wait_procs(children, timeout=10)
    assert not any(child.is_running() for child in children)
    assert not folder.exists()


def test_help_has_examples_and_exit_codes():
    answer = runner.invoke(app, ["start", "--help"])
    assert answer.exit_code == 0
    assert "eos broker start --data" in answer.output
    assert "Exit codes" in answer.output


def test_a_malformed_setting_is_a_usage_error():
    answer = runner.invoke(app, ["start", "--set", "maxMessageSize"])
    assert answer.exit_code == 2
    assert "KEY=VALUE" in answer.output


def test_fetch_without_maven_names_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = runner.invoke(app, ["fetch"])
    assert answer.exit_code == 2
    assert "Install Maven" in answer.output


def test_fetch_prints_the_jars_and_the_archive(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(maven, "pulsar_jars", lambda version: [tmp_path / "a.jar"])
    monkeypatch.setenv("EOS_BROKER", "maven")
    monkeypatch.setattr(jvm, "create_archive", lambda *_: tmp_path / "classes.jsa")
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
    assert jvm.find_archive(str(java), [jar], "4.2.4") is None
    archive = jvm.archive_path(str(java), "4.2.4")
    archive.touch()
    os.utime(jar, (1, 1))
    assert jvm.find_archive(str(java), [jar], "4.2.4") == archive
    os.utime(archive, (0, 0))
    assert jvm.find_archive(str(java), [jar], "4.2.4") is None


def test_a_broker_with_tokens_accepts_only_its_own(tmp_path):
    tokens = tmp_path / "tokens"
    given = {role: file.read_text() for role, file in TokenFolder(tokens).files.items()}
    with started("--temporary", "--tokens", str(tokens)) as (process, said):
        assert said["job token"] == str(tokens / "job.token")
        url, job = said["service URL"], given["job"].strip()
        client = pulsar.Client(url, authentication=pulsar.AuthenticationToken(job))
        client.create_producer("persistent://public/default/orders").send(b"a")
        client.close()
        for wrong in (None, pulsar.AuthenticationToken(f"{job[:-4]}AAAA")):
            refused = pulsar.Client(url, authentication=wrong, operation_timeout_seconds=3)
            with pytest.raises(pulsar.PulsarException):
                refused.create_producer("persistent://public/default/orders")
        stop(process)
    # A restarted broker accepts the same tokens.
    assert {role: file.read_text() for role, file in TokenFolder(tokens).files.items()} == given
    assert {file.stat().st_mode & 0o777 for file in tokens.iterdir()} == {0o600}


def test_tokens_of_another_key_are_signed_again(tmp_path):
    files = TokenFolder(tmp_path).files
    given = files["job"].read_text()
    (tmp_path / "secret.key").unlink()
    TokenFolder(tmp_path)
    assert files["job"].read_text() != given
    assert len(files["job"].read_text()) == len(given)


@pytest.mark.parametrize("key", [b"", b"\n", b"too short"])
def test_a_key_that_cant_be_used_is_named(tmp_path, key):
    (tmp_path / "secret.key").write_bytes(key)
    answer = runner.invoke(app, ["start", "--tokens", str(tmp_path), "--port", "0"])
    assert answer.exit_code == 2
    assert "secret.key is shorter" in answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["secret.key"]


def test_tokens_are_refused_for_clusters(tmp_path):
    ended = runner.invoke(app, ["start", "--brokers", "2", "--tokens", str(tmp_path)])
    assert ended.exit_code == 2
    assert "--tokens is for one broker" in ended.output
