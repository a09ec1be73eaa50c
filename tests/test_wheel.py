"""The wheel works outside of the checkout: built, unpacked, README's example run with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.judge import drain

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The built wheel, unpacked into a folder of its own."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_holds_the_packages_their_types_and_their_entry_points(wheel):
    assert {path.name for path in wheel.iterdir() if "dist-info" not in path.name} == {
        "eos", "sinks", "recovery", "chaos"
    }  # fmt: skip
    assert (wheel / "eos" / "py.typed").exists()
    (entry_points,) = wheel.glob("*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert "eos-broker = eos.standalone.cli:app" in text
    assert "eos-recovery = recovery.cli:main" in text
    assert "eos = eos.standalone.pytest_plugin" in text


def test_the_readmes_example_runs_with_nothing_but_the_wheel(wheel, tmp_path, pulsar_standalone):
    (code,) = re.findall(
        r"<!-- tests/test_wheel.py[^>]*-->\n```python\n(.*?)```",
        (ROOT / "README.md").read_text(),
        re.S,
    )
    code = code.replace("pulsar://localhost:6650", pulsar_standalone.service_url)
    code = code.replace("/tmp/eos", str(tmp_path / "eos")).replace(
        "Termination(20)", "Termination(9)"
    )
    script = tmp_path / "example.py"
    script.write_text(code + "import eos\nprint(eos.__file__)\n")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert str(wheel) in done.stdout
    assert "status='written', records=1000" in done.stdout
    seen = drain(pulsar_standalone.service_url, "persistent://public/default/ticks")
    batch = [m for m in seen if m.key]
    assert len(batch) == 1000
    assert len(seen) > len(batch)
    assert len({m.value for m in seen if not m.key}) == len(seen) - len(batch)
    audit = subprocess.run(
        [sys.executable, "-m", "recovery", "verify", "--commit-log", str(tmp_path / "eos" / "log")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert "Every committed epoch is there, whole, once." in audit.stdout
