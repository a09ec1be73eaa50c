"""``make compat``: the broker's tests, a short chaos run and the demo, on each release of Pulsar.

Writes a folder for each release in build/compat, and the table in docs/deployment.md. Exit code 1:
a test or run failed; the table shows where. Pass versions to try only these, or other ones: the
rows of releases that are not tried stay unchanged.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.publish import between, put_between
from eos.testing.maven import DEFAULT_PULSAR_VERSION, PULSAR_VERSION_VARIABLE

ROOT: Final = Path(__file__).parent.parent.parent
RELEASES: Final = (DEFAULT_PULSAR_VERSION, "4.0.7", "5.0.0-M1")
"""The default, the newest long-term release with all jars available, the next release."""
WHICH: Final = "broker and not chaos"
"""Replaces the suite's ``-m``, so it must also exclude the long tests."""
BUILD: Final = ROOT / "build/compat"
DOCS: Final = ROOT / "docs/deployment.md"
HEAD: Final = (
    "| Pulsar | tests with a broker | `eos chaos run` | `make demo` | on |",
    "|---|---|---|---|---|",
)


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
        demo = "as promised" if self.demo_code == 0 else f"**ended with {self.demo_code}**"
        chaos = f"{self.good} of {self.schedules} good"
        return f"| {self.version} | {tests} | {chaos} | {demo} | {date.today()} |"


def try_release(version: str, console: Console) -> Outcome:
    """Run everything on one release; takes half an hour."""
    folder = BUILD / version
    shutil.rmtree(folder, ignore_errors=True)  # Results of an earlier run must not be mixed in.
    folder.mkdir(parents=True)
    env = {**os.environ, PULSAR_VERSION_VARIABLE: version}
    began = time.monotonic()

    def run(what: str, *words: str) -> int:
        console.print(f"{version}: {what} ({folder / what}.log)")
        with (folder / f"{what}.log").open("wb") as log:
            command = [sys.executable, "-m", *words]
            return subprocess.run(
                command, cwd=ROOT, env=env, stdout=log, stderr=log, check=False
            ).returncode

    junit = folder / "junit.xml"
    run("tests", "pytest", "-n", "2", "--dist", "loadfile", "-m", WHICH, f"--junit-xml={junit}")
    report = folder / "chaos"
    words = ("--schedules", "2", "--seed", "87", "--epochs", "14", "--report", str(report))
    run("chaos", "eos", "chaos", "run", *words)
    demo_code = run("demo", "examples.flights", "--output", str(folder / "demo"))
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    failed, skipped = (int(suite.get(a, 0)) + int(suite.get(b, 0)) for a, b in _COUNTS)
    verdict = json.loads((report / "report.json").read_text())
    return Outcome(
        version,
        passed=int(suite.get("tests", 0)) - failed - skipped,
        failed=failed,
        skipped=skipped,
        schedules=verdict["schedules"],
        good=verdict["good"],
        demo_code=demo_code,
        minutes=(time.monotonic() - began) / 60,
    )


_COUNTS: Final = (("failures", "errors"), ("skipped", ""))


def main(versions: list[str]) -> int:
    """Try the releases; return the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    outcomes = []
    for version in versions or RELEASES:
        outcome = try_release(version, console)
        console.print(f"{outcome.row()} {outcome.minutes:.0f} min")
        outcomes.append(outcome)
        put_between(DOCS, table(between(DOCS, "compat"), outcome), "compat")
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def table(before: str, outcome: Outcome) -> str:
    """The table ``before`` with a new row for the release of ``outcome``."""
    rows = {line.split(" | ")[0].strip("| "): line for line in before.splitlines()[2:]}
    rows[outcome.version] = outcome.row()
    return "\n".join([*HEAD, *rows.values()]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
