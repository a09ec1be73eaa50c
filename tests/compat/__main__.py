"""``make compat`` and ``make compat-spark``: tests, a short chaos run and the demo, release by
release.

``python -m tests.compat pulsar`` tries releases of Pulsar in this environment. ``python -m
tests.compat spark`` makes an environment for each release of PySpark; ``--smoke`` only runs one
schedule of the chaos harness there. Both write a folder for each release in build/, and the table
in docs/deployment.md. Exit code 1: a test or run failed; the table shows where. Pass versions to
try only these, or other ones: the rows of releases that are not tried stay unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from bench.publish import between, put_between
from eos.testing.maven import DEFAULT_PULSAR_VERSION, PULSAR_VERSION_VARIABLE

ROOT: Final = Path(__file__).parent.parent.parent
BUILD: Final = ROOT / "build"
DOCS: Final = ROOT / "docs/deployment.md"
PULSAR: Final = (DEFAULT_PULSAR_VERSION, "4.0.7", "5.0.0-M1")
"""The default, the newest long-term release with all jars available, the next release."""
SPARK: Final = ("3.5.9", "4.0.5", "4.1.4", "4.2.1", "4.3.0")
"""The newest patch of each supported release of PySpark."""
FIRST_WITH_SOURCES: Final = 4
"""The major release of PySpark whose data sources can be written in Python."""
FIRST_WITH_PANDAS_3: Final = (4, 3)


@dataclass(frozen=True)
class Trial:
    """What runs on one release, with which Python, and which options of pytest."""

    version: str
    folder: Path
    python: Path
    tests: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Results of one release."""

    version: str
    passed: int
    failed: int
    skipped: int
    schedules: int
    good: int
    demo_code: int
    minutes: float

    @property
    def is_good(self) -> bool:
        """Whether tests ran and none failed."""
        chaos_is_good = 0 < self.schedules == self.good
        return self.passed > 0 and not self.failed and chaos_is_good and not self.demo_code

    def row(self) -> str:
        """The release's row of the table."""
        tests = f"{self.passed:,} passed, {self.skipped} skipped"
        tests += f", **{self.failed} failed**" if self.failed else ""
        demo = "good" if self.demo_code == 0 else f"**ended with {self.demo_code}**"
        chaos = f"{self.good} of {self.schedules}"
        return f"| {self.version} | {tests} | {chaos} | {demo} | {date.today()} |"


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
console: Final = Console(highlight=False, soft_wrap=True)
Versions = Annotated[list[str] | None, typer.Argument(help="Releases; all known ones if empty.")]


@app.command()
def pulsar(versions: Versions = None) -> None:
    """The tests that need a broker, two schedules of chaos, the demo; half an hour each."""

    def trial(version: str) -> Trial:
        # This -m replaces the suite's, so it must also exclude the long tests.
        tests = ("-m", "broker and not chaos and not release")
        environment = {PULSAR_VERSION_VARIABLE: version}
        return Trial(version, _emptied("compat", version), Path(sys.executable), tests, environment)

    _try_all("compat", "Pulsar", versions or PULSAR, trial)


@app.command()
def spark(
    versions: Versions = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="One schedule of chaos, no table.")
    ] = False,
) -> None:
    """The tests of sinks, source, catalog and recovery, two schedules of chaos, the demo."""
    if smoke:
        for version in versions or SPARK:
            folder = _emptied("compat-spark", version)
            words = ("--seed", "46", "--faults", "kill-at-prepare,executor-kill")
            code = _chaos(Trial(version, folder, _installed(folder, version), ()), 1, *words)
            console.print(f"PySpark {version}: the smoke run ended with {code}")
            if code:
                raise typer.Exit(1)
        return

    def trial(version: str) -> Trial:
        folder = _emptied("compat-spark", version)
        rooms = ["sinks", "recovery", "delta"]
        if int(version.split(".")[0]) >= FIRST_WITH_SOURCES:
            rooms += ["sources", "catalog"]
        tests = ("-m", "not chaos", *(f"tests/{room}" for room in rooms))
        return Trial(version, folder, _installed(folder, version), tests)

    _try_all("compat-spark", "PySpark", versions or SPARK, trial)


def _emptied(suite: str, version: str) -> Path:
    folder = BUILD / suite / version
    shutil.rmtree(folder, ignore_errors=True)  # Results of an earlier run must not be mixed in.
    folder.mkdir(parents=True)
    return folder


def _installed(folder: Path, version: str) -> Path:
    """Make an environment with this release of PySpark, and return its Python.

    All other packages are those of this environment. It is kept beside the results.
    """
    home = folder.parent / "environments" / version
    python = home / "bin/python"
    if not python.exists():
        console.print(f"{version}: installation")
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        (packages,) = home.glob("lib/python*/site-packages")
        here = sysconfig.get_paths()["purelib"]
        (packages / "others.pth").write_text(f"{here}\n{ROOT}\n")
    release = tuple(int(part) for part in version.split(".")[:2])
    pandas = "pandas>=3" if release >= FIRST_WITH_PANDAS_3 else "pandas<3"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--progress-bar", "off"]
    # Captured: pip complains that delta-spark, which is not used there, wants another PySpark.
    done = subprocess.run(
        [*pip, f"pyspark=={version}", pandas], capture_output=True, text=True, check=False
    )
    if done.returncode:
        console.print(done.stderr, markup=False)
        raise typer.Exit(1)
    return python


def _try_all(
    suite: str, what: str, versions: list[str] | tuple[str, ...], trial: Callable[[str], Trial]
) -> None:
    """Try the releases one by one; after each, its row is in the table."""
    outcomes = []
    for version in versions:
        outcome = run_trial(trial(version))
        console.print(f"{outcome.row()} {outcome.minutes:.0f} min")
        outcomes.append(outcome)
        put_between(DOCS, table(what, between(DOCS, suite), outcome), suite)
    if not all(outcome.is_good for outcome in outcomes):
        raise typer.Exit(1)


def run_trial(trial: Trial) -> Outcome:
    """Run everything on one release; takes half an hour."""
    began = time.monotonic()
    junit = trial.folder / "junit.xml"
    _run(
        trial,
        "tests",
        "pytest",
        "-n",
        "2",
        "--dist",
        "loadfile",
        *trial.tests,
        f"--junit-xml={junit}",
    )
    _chaos(trial, 2, "--seed", "87")
    demo_code = _run(trial, "demo", "examples.flights", "--output", str(trial.folder / "demo"))
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    failed, skipped = (int(suite.get(a, 0)) + int(suite.get(b, 0)) for a, b in _COUNTS)
    verdict = json.loads((trial.folder / "chaos/report.json").read_text())
    return Outcome(
        trial.version,
        passed=int(suite.get("tests", 0)) - failed - skipped,
        failed=failed,
        skipped=skipped,
        schedules=verdict["schedules"],
        good=verdict["good"],
        demo_code=demo_code,
        minutes=(time.monotonic() - began) / 60,
    )


_COUNTS: Final = (("failures", "errors"), ("skipped", ""))


def _chaos(trial: Trial, schedules: int, *words: str) -> int:
    report = str(trial.folder / "chaos")
    every = ("--schedules", str(schedules), "--epochs", "14", "--report", report)
    return _run(trial, "chaos", "eos", "chaos", "run", *every, *words)


def _run(trial: Trial, what: str, *words: str) -> int:
    path = trial.folder / f"{what}.log"
    console.print(f"{trial.version}: {what} ({path})")
    with path.open("wb") as log:
        return subprocess.run(
            [str(trial.python), "-m", *words],
            cwd=ROOT,
            env={**os.environ, **trial.environment},
            stdout=log,
            stderr=log,
            check=False,
        ).returncode


def table(what: str, before: str, outcome: Outcome) -> str:
    """The table ``before`` with a new row for the release of ``outcome``."""
    head = f"| {what} | tests | `eos chaos run` | `make demo` | on |", "|---|---|---|---|---|"
    rows = {line.split(" | ")[0].strip("| "): line for line in before.splitlines()[2:]}
    rows[outcome.version] = outcome.row()
    return "\n".join([*head, *rows.values()]) + "\n"


if __name__ == "__main__":
    app()
