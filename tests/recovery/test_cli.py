"""The command line: help, usage, exit codes, JSON, secrets; it needs no Spark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eos.commit_log import CommitLog
from tests.protocol.epochs import claim

ROOT = Path(__file__).parent.parent.parent
VERBS = {
    "status": (),
    "show": ("s",),
    "metrics": (),
    "resolve": (),
    "abort": ("s",),
    "decide": ("s", "--epoch", "1", "--as", "aborted", "--because", "x"),
    "verify": (),
    "orphans": (),
    "heal": ("t",),
    "doctor": (),
    "log compact": (),
    "log export": ("s", "s.csv"),
    "log repair": ("s",),
}
EXIT_CODES = re.compile(r"Exit codes: 0 .*1 .*2 .*64 ")


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_shows_its_exit_codes_and_the_shared_options(recovery, verb):
    ended = recovery(*verb.split(), "--help")
    assert ended.code == 0
    assert EXIT_CODES.search(ended.out)
    for option in ("--commit-log", "--service-url", "--admin-url", "--token-file", "--json"):
        assert option in ended.out
    assert "eos recovery" in ended.out


@pytest.mark.parametrize("option", ["--token", "--basic-password", "--oauth2-client-secret"])
def test_secret_options_are_refused_and_not_shown(recovery, option):
    ended = recovery("status", f"{option}=hunter2")
    assert ended.code == 64
    assert option in ended.err
    assert "hunter2" not in ended.out + ended.err


PASSWORD = "EOS_BASIC_PASSWORD"


@pytest.mark.parametrize("url", ["pulsar://h:1?token=hunter2", "http://h", "pulsar://h:x"])
def test_each_verb_refuses_an_invalid_service_url(recovery, tmp_path, url):
    for verb in (("status",), ("doctor",), ("show", "sink")):
        ended = recovery(*verb, "--commit-log", tmp_path, "--service-url", url)
        assert ended.code == 64
        assert "service_url" in ended.err
        assert "hunter2" not in ended.out + ended.err


def test_incomplete_credentials_are_reported(recovery, tmp_path, monkeypatch):
    for options, variable, needs in (
        (("--basic-user", "a", "--token-file", "b"), PASSWORD, "not token_file and basic_user"),
        ((), PASSWORD, "EOS_BASIC_PASSWORD is set without a user"),
        (("--token-file", "b"), "EOS_TOKEN", "EOS_TOKEN and --token-file"),
        (("--token-file", ""), None, "token_file must be non-empty text"),
        (("--oauth2-issuer-url", "https://a"), None, "oauth2_credentials_file belong together"),
        (("--oauth2-issuer-url", "http://a", "--oauth2-credentials-file", "b"), None, "https://"),
    ):
        for name in (PASSWORD, "EOS_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        if variable is not None:
            monkeypatch.setenv(variable, "hunter2")
        ended = recovery("status", "--commit-log", tmp_path, *options)
        assert ended.code == 64
        assert needs in ended.err
        assert "hunter2" not in ended.out + ended.err


def test_every_verb_is_in_the_help_and_in_the_manual(recovery):
    shown = recovery("--help").out
    manual = (ROOT / "docs" / "recovery.md").read_text()
    for verb in VERBS:
        assert verb.split()[0] in shown
        assert f"`{verb}" in manual
    assert EXIT_CODES.search(shown)


@pytest.mark.parametrize("verb", VERBS)
def test_missing_commit_log_option_is_explained(recovery, verb):
    ended = recovery(*verb.split(), *VERBS[verb], "--service-url", "pulsar://127.0.0.1:1")
    if verb == "doctor":  # it checks as much as possible without the log
        assert ended.code == 2
        assert "Pass --commit-log" in ended.out
        return
    assert ended.code == 64
    asked_for = "--admin-url" if verb == "heal" else "--commit-log"
    assert f"Pass {asked_for}" in ended.err
    assert ended.out == ""


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_is_one_object_of_json(recovery, tmp_path, verb):
    where = ("--admin-url", "http://127.0.0.1:1", "--service-url", "pulsar://127.0.0.1:1")
    ended = recovery(*verb.split(), *VERBS[verb], *where, "--commit-log", "relative", "--json")
    assert ended.code
    assert ended.json["exit_code"] == ended.code
    if verb != "doctor":  # it has a report of errors
        assert f"{ended.json['error']} {ended.json['hint']}" in ended.err
    wrong = recovery(*verb.split(), "--bogus", "--json")
    assert (wrong.code, wrong.json["exit_code"]) == (64, 64)
    assert wrong.json["error"].startswith("No such option: --bogus")


@pytest.mark.parametrize(
    "args",
    [("bogus",), ("status", "--bogus"), ("show",), ("status", "--timeout-s", "0"), ("log", "x")],
    ids=" ".join,
)
def test_wrong_options_exit_with_64_and_not_with_unknown(recovery, args):
    ended = recovery(*args)
    assert ended.code == 64
    assert ended.err


def test_unknown_sink_lists_the_existing_ones(recovery, root):
    for sink in ("orders", "ticks"):
        (root / sink / "_delta_log").mkdir(parents=True)
        (root / sink / "_delta_log" / "00000000000000000000.json").touch()
    ended = recovery("status", "oders", "--commit-log", root)
    assert (ended.code, ended.out) == (64, "")
    assert "Sink 'oders' does not exist" in ended.err
    assert "orders, ticks" in ended.err


def test_an_empty_root_is_refused(recovery, tmp_path):
    ended = recovery("status", "--commit-log", tmp_path)
    assert ended.code == 64
    assert "No commit log found below" in ended.err
    assert list(tmp_path.iterdir()) == []


def test_options_come_from_the_environment(recovery, monkeypatch, tmp_path):
    monkeypatch.setenv("EOS_COMMIT_LOG", str(tmp_path / "elsewhere"))
    assert "elsewhere" in recovery("status").err


def test_a_broken_log_needs_action_and_does_not_hide_the_others(recovery, make_driver, root, name):
    make_driver().run("0")
    broken = root / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("{")
    ended = recovery("status", "--commit-log", root, "--json")
    assert ended.code == 1
    assert [sink["sink_id"] for sink in ended.json["sinks"]] == [name]
    (lost,) = ended.json["broken"]
    assert (lost["sink_id"], lost["is_broken"]) == ("broken", True)
    assert "00000000000000000000.json" in lost["error"]


def test_output_and_errors_contain_no_secrets(recovery, make_driver, root, tmp_path, monkeypatch):
    make_driver().run("0")
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"AWS_SECRET_ACCESS_KEY": "hunter2hunter2"}))
    monkeypatch.setenv("EOS_TOKEN", "hunter2hunter2")
    for args in (
        ("status", "--commit-log", root),
        ("doctor", "--commit-log", root, "--service-url", "pulsar://127.0.0.1:1"),
        ("verify", "--commit-log", root, "--service-url", "pulsar://127.0.0.1:1"),
        ("status", "--commit-log", "s3://nowhere/at-all", "--json"),
    ):
        ended = recovery(*args, "--timeout-s", 2, "--storage-options-file", options)
        assert "hunter2" not in ended.out + ended.err
    options.write_text('{"key": "hunter2hunter2"')
    ended = recovery("status", "--commit-log", root, "--storage-options-file", options)
    assert ended.code == 64
    assert "hunter2" not in ended.err


def test_it_runs_without_pyspark_and_starts_no_jvm(tmp_path):
    script = """
import sys
from importlib.abc import MetaPathFinder
class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j", "delta", "jpype"):
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
import subprocess
def refuse(*args, **kwargs): raise AssertionError("a process was started")
subprocess.Popen = refuse
sys.argv = ["eos recovery", "status", "--commit-log", sys.argv[1]]
from eos.recovery.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 64
    assert "No commit log found below" in " ".join(done.stderr.split())


@pytest.mark.parametrize("by", ["option", "environment"])
@pytest.mark.parametrize(
    ("root", "hint"), [("eos-log", "Write the absolute path"), ("dbfs:/x", "Write /dbfs/x")]
)
def test_incomplete_commit_log_url_is_refused_with_a_hint(
    recovery, monkeypatch, tmp_path, by, root, hint
):
    monkeypatch.chdir(tmp_path)
    given = ("--commit-log", root) if by == "option" else ()
    if by == "environment":
        monkeypatch.setenv("EOS_COMMIT_LOG", root)
    ended = recovery("status", *given)
    assert ended.code == 64
    assert hint in ended.err


def test_tilde_is_the_home_folder(recovery, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EOS_COMMIT_LOG", "~/eos")
    CommitLog.open(tmp_path / "eos", "orders").append(claim())
    assert recovery("show", "orders").code == 0
