"""The wheel works outside of the checkout: build and install it, run README's example with it."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.checkout import LINKED, ROOT, SHIPPED, files
from tests.support.judge import drain
from tests.support.wheel import build_wheel, installed_environment

UNTIL_ROWS = """
import time
ends_at = time.monotonic() + 110
while query.status["isTriggerActive"] or not sum(e["numInputRows"] for e in query.recentProgress):
    assert query.isActive and time.monotonic() < ends_at
    time.sleep(0.1)
"""
"""Waits until the stream of README's example has written rows and waits for its next trigger:
``verify`` reports an epoch that is interrupted as unfinished."""


@pytest.fixture(autouse=True)
def nothing_of_this_checkout(monkeypatch):
    """Remove this checkout from the path, also if the tests were found by it."""
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The path of the built wheel."""
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def scripts(wheel, tmp_path_factory) -> Path:
    """The programs' folder of an environment that has the wheel and not this checkout."""
    return installed_environment(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_holds_the_packages_their_types_and_their_entry_points(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = [name for name in names if name.endswith("/entry_points.txt")]
        text = archive.read(entry_points).decode()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"eos", "pyspark_pulsar"}
    assert {"eos/py.typed", "pyspark_pulsar/py.typed"} <= set(names)
    modules = {path.relative_to(ROOT).as_posix() for path in files(*SHIPPED)}
    linked = {f"eos/{one}" if one.split("/")[0] in LINKED else one for one in modules}
    assert linked == {name for name in names if name.endswith(".py")}
    assert "eos = eos.testing.pytest_plugin" in text
    assert "chaos.pytest_plugin" not in text


def test_pytest_runs_in_a_project_with_folders_of_our_names(scripts, tmp_path):
    for name in ("sinks", "sources", "catalog", "chaos", "recovery"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "test_mine.py").write_text(
        "import chaos, sinks\nfrom eos import PulsarSink\nfrom eos.chaos import testing\n\n\n"
        "def test_mine():\n    assert chaos.MINE and sinks.MINE\n\n\n"
        "def test_harness(assert_exactly_once):\n"
        "    assert assert_exactly_once is testing.check_exactly_once\n"
    )
    command = [str(scripts / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["broker", "recovery", "catalog", "chaos"])
def test_each_program_is_installed_under_both_names_and_has_help(scripts, name, tmp_path):
    helps = []
    for command in ([str(scripts / f"eos-{name}")], [str(scripts / "eos"), name]):
        done = subprocess.run(
            [*command, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert "Exit codes" in done.stdout
        helps.append(done.stdout.split("[OPTIONS]")[1])
    assert helps[0].split() == helps[1].split()


def test_a_missing_package_of_the_chaos_harness_is_named(scripts, tmp_path):
    code = "import sys; sys.modules['psutil'] = None; from eos.cli.programs import chaos; chaos()"
    command = [str(scripts / "python"), "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    command = done.stderr.partition("psutil is not installed. Run: pip install ")[2]
    # What the wheel itself asks for: nothing that a new user would have to look up.
    assert {"'pyspark>=3.5'", "'psutil>=5.9'", "'jinja2>=3.1'"} <= set(command.split())


def test_the_readmes_example_runs_with_only_the_wheel(scripts, tmp_path, pulsar_standalone):
    (code,) = re.findall(
        r"<!-- tests/test_wheel.py[^>]*-->\n```python\n(.*?)```",
        (ROOT / "README.md").read_text(),
        re.S,
    )
    code = code.replace("pulsar://localhost:6650", pulsar_standalone.service_url)
    code = code.replace("/tmp/eos", str(tmp_path / "eos"))
    for there, wanted in (
        ("query.awaitTermination(20)\n", UNTIL_ROWS),
        ("5 seconds", "20 seconds"),
    ):
        assert there in code
        code = code.replace(there, wanted)
    script = tmp_path / "example.py"
    script.write_text(code + "import eos\nprint(eos.__file__)\n")
    done = subprocess.run(
        [str(scripts / "python"), str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_PYTHON": str(scripts / "python")},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert str(scripts.parent) in done.stdout
    assert "written\nskipped\n" in done.stdout
    seen = drain(pulsar_standalone.service_url, "persistent://public/default/ticks")
    batch = [m for m in seen if m.key]
    assert len(batch) == 1000
    assert len(seen) > len(batch)
    assert len({m.value for m in seen if not m.key}) == len(seen) - len(batch)
    audit = subprocess.run(
        [str(scripts / "eos"), "recovery", "verify", "--commit-log", str(tmp_path / "eos" / "log")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "Every committed epoch is there, complete, without duplicates." in audit.stdout
    (commands,) = re.findall(r"```\n(export EOS_.*?)```", (ROOT / "README.md").read_text(), re.S)
    for there, mine in (
        ("pulsar://localhost:6650", pulsar_standalone.service_url),
        ("http://localhost:8080", pulsar_standalone.admin_url),
        ("\neos ", f"\n{scripts / 'eos'} "),
    ):
        assert there in commands
        commands = commands.replace(there, mine)
    shown = subprocess.run(
        ["sh", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0, shown.stderr
    # The task that ends last is not always that of the highest values.
    values = {int(value) for value in re.findall(r'"value": (\d+)', shown.stdout)}
    assert values
    assert values < set(range(1000))
