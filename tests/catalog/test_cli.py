"""``eos catalog``: help, exit codes, secrets, and no Spark."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.http_server import scripted_server

ROOT = Path(__file__).parent.parent.parent
VERBS = {"list": (), "describe": ("t",), "peek": ("t",), "create": ("t",), "drop": ("t",)}
EXIT_CODES = re.compile(r"Exit codes: 0 .*2 .*64 ")
NOWHERE = ("--service-url", "pulsar://127.0.0.1:1", "--admin-url", "http://127.0.0.1:1")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verbs_help_has_examples_and_exit_codes(cli, verb):
    ended = cli(verb, "--help")
    assert ended.code == 0
    assert EXIT_CODES.search(ended.out)
    assert f"eos catalog {verb}" in ended.out
    for option in ("--service-url", "--admin-url", "--token-file", "--timeout-s", "--json"):
        assert option in ended.out


def test_every_verb_is_in_the_help_and_the_docs(cli):
    shown = cli("--help").out
    manual = (ROOT / "docs" / "catalog.md").read_text()
    for verb in VERBS:
        assert verb in shown
        assert f"`{verb}" in manual
    assert EXIT_CODES.search(shown)


@pytest.mark.parametrize("verb", VERBS)
def test_an_unreachable_broker_exits_with_2(cli, verb):
    ended = cli(verb, *VERBS[verb], *NOWHERE, "--timeout-s", 1)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("eos catalog: ")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("verb", VERBS)
def test_an_error_is_one_object_of_json(cli, verb):
    ended = cli(verb, *VERBS[verb], *NOWHERE, "--timeout-s", 1, "--json")
    assert (ended.code, ended.json["exit_code"]) == (2, 2)
    assert f"{ended.json['error']} {ended.json['hint']}".strip() in ended.err


def test_the_brokers_reason_of_a_refusal_is_shown(cli):
    with scripted_server() as server:
        server.give(412, b'{"reason":"Exceed maximum number of topics in namespace."}')
        ended = cli("list", "public/default", "--admin-url", server.url(), "--json")
    assert ended.code == 2
    assert "Exceed maximum number of topics in namespace." in ended.json["error"]
    assert ended.json["error"] in ended.err


def test_peek_names_what_works_without_the_admin_api(cli):
    ended = cli("peek", "t", *NOWHERE[:2])
    assert ended.code == 64
    for word in ("admin API", "Pass --admin-url", "--from earliest"):
        assert word in ended.err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_without_a_cluster_names_the_options(cli, verb):
    ended = cli(verb, *VERBS[verb])
    assert ended.code == 64
    assert "Pass --admin-url" in ended.err or "Pass --service-url" in ended.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("bogus",), "bogus"),
        (("describe",), "topic"),
        (("describe", "a/b"), "topic"),
        (("list", "--bogus"), "bogus"),
        (("list", "public"), "TENANT/NAMESPACE"),
        (("list", "public/default/orders"), "TENANT/NAMESPACE"),
        (("list", "../../x"), "TENANT/NAMESPACE"),
        (("list", "a/b", "--tenant", "c"), "not both"),
        (("peek", "t", "-n", "0"), "number"),
        (("peek", "t", "-n", "1000000"), "number"),
        (("archive", "t", "~nosuchuser/x"), "TABLE '~nosuchuser/x': Could not"),
        (("archive", "t", f"{__file__}/x"), "Not a directory"),
        (("create", "t", "--schema", "avro"), "--definition FILE.avsc"),
        (("create", "t", "--schema", "key_value"), "Choose one of bytes"),
        (("create", "t", "--definition", "nowhere.avsc"), "nowhere.avsc"),
        (("create", "t-partition-0"), "is the name of a partition"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_wrong_options_exit_with_64(cli, args, says):
    ended = cli(*args, *NOWHERE)
    assert (ended.code, ended.out) == (64, "")
    assert says in ended.err


def test_a_loop_of_links_is_no_table(cli, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    ended = cli("archive", "t", tmp_path / "loop", *NOWHERE)
    assert (ended.code, ended.out) == (64, "")
    assert ended.err.startswith("eos catalog: TABLE ")


def test_an_invalid_definition_is_refused_before_creation(cli, tmp_path):
    file = tmp_path / "orders.avsc"
    for text, says in (("{", "JSON"), ('"string"', "not a record"), ('{"type": "record"}', "name")):
        file.write_text(text)
        ended = cli("create", "t", "--schema", "avro", "--definition", file, *NOWHERE)
        assert ended.code == 64
        assert says in ended.err
    file.write_bytes(b"\xff")
    ended = cli("create", "t", "--schema", "avro", "--definition", file, *NOWHERE)
    assert (ended.code, "UnicodeDecodeError" in ended.err) == (64, True)
    ended = cli("create", "t", "--schema", "string", "--definition", file, *NOWHERE)
    assert (ended.code, "takes no --definition" in ended.err) == (64, True)


@pytest.mark.parametrize("option", ["--token", "--basic-password"])
def test_secrets_can_not_be_options_and_are_not_shown(cli, option):
    ended = cli("list", f"{option}=hunter2")
    assert ended.code == 64
    assert option in ended.err
    assert "hunter2" not in ended.out + ended.err


def test_errors_show_no_secrets(cli, monkeypatch):
    monkeypatch.setenv("EOS_TOKEN", "hunter2hunter2")
    for verb, args in VERBS.items():
        ended = cli(verb, *args, *NOWHERE, "--timeout-s", 1)
        assert "hunter2" not in ended.out + ended.err
    ended = cli("list", "--service-url", "pulsar+ssl://h:1", "--admin-url", "http://h:1")
    assert (ended.code, "sent unencrypted" in ended.err) == (64, True)


def test_it_needs_no_pyspark_and_no_process():
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
sys.argv = ["eos catalog", *sys.argv[1:]]
from eos.catalog.cli import main
main()
"""
    for verb, args in VERBS.items():
        done = subprocess.run(
            [sys.executable, "-c", script, verb, *args, *NOWHERE, "--timeout-s", "1"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("eos catalog: ")
