"""``make mutants``: apply each patch to a copy of the tree; the test that it names must fail.

A patch begins with two lines, ``Breaks:`` (an invariant I1-I9, or step 1-10, and a description of
the missing rule) and ``Killed-by:`` (the pytest id of the test that must fail). First, all these
tests run on the unchanged tree: one that fails there proves nothing, and its mutants are not tried.
Exit code 0: every mutant was killed. 1: a mutant survived or was not tried, a patch does not apply,
or a named test does not even run; the table says which. 2: an unknown name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from eos.steps import Step
from tests.support.checkout import ROOT, SHIPPED, copy_checkout

HERE = Path(__file__).parent
COPIED = (*SHIPPED, "examples", "tests", "pyproject.toml")
TEST_TIMEOUT_S = 240
AT_ONCE = 2  # as make test
TESTS_FAILED = 1  # pytest's exit code for "ran, and failed"; 2 to 5 mean that no test could run


@dataclass(frozen=True)
class Mutant:
    """One patch: the guarantee that it breaks, and the test that must fail."""

    path: Path
    breaks: str
    killed_by: str

    @property
    def name(self) -> str:
        return self.path.stem


def read_mutants() -> list[Mutant]:
    """Read all patches in this folder.

    Raises:
        ValueError: a header is missing, or an invariant or a step has no mutant.
    """
    mutants = []
    for path in sorted(HERE.glob("*.patch")):
        text = path.read_text()
        breaks = re.search(r"^Breaks: (.+)$", text, re.MULTILINE)
        killed_by = re.search(r"^Killed-by: (.+)$", text, re.MULTILINE)
        if not breaks or not killed_by:
            raise ValueError(f"{path.name}: needs the lines 'Breaks:' and 'Killed-by:'")
        mutants.append(Mutant(path, breaks[1], killed_by[1]))
    needed = [f"I{n}" for n in range(1, 10)] + [f"step {step.number}" for step in Step]
    for what in needed:
        if not any(re.match(rf"{what}\b", mutant.breaks) for mutant in mutants):
            raise ValueError(f"no mutant breaks {what}")
    return mutants


def run_tests(tree: Path, tests: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run ``tests`` in ``tree``; its modules take precedence over installed ones."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        *tests,
    ]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        command,
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TEST_TIMEOUT_S * len(tests),
        check=False,
    )


def fail_unchanged(tests: list[str], console: Console) -> set[str]:
    """Return those of ``tests`` that fail on the unchanged tree."""
    found = run_tests(ROOT, tests, "-n", str(AT_ONCE), "--dist", "loadfile")
    if found.returncode:
        console.print(found.stdout[-3000:], markup=False)
    if found.returncode not in (0, TESTS_FAILED):
        return set(tests)
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", found.stdout, re.MULTILINE)
    return {test for test in tests if any(f"{one}[".startswith(f"{test}[") for one in failed)}


def try_mutant(mutant: Mutant, untried: set[str]) -> tuple[str, float]:
    """Return ``killed`` or the problem, and the seconds that it took."""
    started = time.monotonic()
    if mutant.killed_by in untried:
        return "not tried: the test fails without it", 0.0
    return outcome_of(mutant), time.monotonic() - started


def outcome_of(mutant: Mutant) -> str:
    """Return ``killed``, or the problem."""
    with tempfile.TemporaryDirectory(prefix="eos-mutant-") as folder:
        tree = Path(folder)
        copy_checkout(tree, COPIED)
        applied = subprocess.run(
            ["git", "apply", "--unidiff-zero", str(mutant.path)],
            cwd=tree,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        if applied.returncode:
            return f"does not apply: {applied.stderr.strip()}"
        try:
            result = run_tests(tree, [mutant.killed_by])
        except subprocess.TimeoutExpired:
            return "survived (the test did not end)"
    if result.returncode == TESTS_FAILED and re.search(r"\d+ failed", result.stdout):
        return "killed"
    if result.returncode == 0:
        return "SURVIVED"
    return f"the test did not run: {result.stdout[-500:]}"


def main() -> int:
    """Run all mutants, or those whose names are given; print the table."""
    console = Console()
    known = {mutant.name: mutant for mutant in read_mutants()}
    if unknown := set(sys.argv[1:]) - set(known):
        console.print(f"no mutant {', '.join(sorted(unknown))}; there are {', '.join(known)}")
        return 2
    chosen = [known[name] for name in sys.argv[1:] or known]
    tests = sorted({mutant.killed_by for mutant in chosen})
    console.print(f"{len(chosen)} mutants; first their {len(tests)} tests on the tree as it is")
    untried = fail_unchanged(tests, console)
    table = Table("mutant", "breaks", "test", "", title="mutants")
    survivors = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(partial(try_mutant, untried=untried), chosen)
        tried = zip(chosen, outcomes, strict=True)
        for number, (mutant, (outcome, took_s)) in enumerate(tried, 1):
            survivors += outcome != "killed"
            console.print(f"{number}/{len(chosen)} {mutant.name}: {outcome} ({took_s:.0f} s)")
            test = escape(mutant.killed_by.split("::")[-1])
            table.add_row(mutant.name, mutant.breaks, test, outcome)
    console.print(table)
    console.print(f"{len(chosen) - survivors} killed, {survivors} not")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
