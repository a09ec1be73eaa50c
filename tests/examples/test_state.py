"""The verdict on counting services: each planted error is found and named; a small run passes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial

import pytest

from examples._demo.demo_command import Terminal, publish
from examples.state.state_run import CountedWay, StateRun, conclude, draw, report_on
from tests.support.checkout import ROOT

EXPECTED = {"JFK-LAX": (2, 30), "EWR-SFO": (1, -4)}
RIGHT = CountedWay(dict(EXPECTED), {"JFK-LAX": [1, 2], "EWR-SFO": [1]}, 3.0, 2, (0, 1, 2))
AGAIN = replace(RIGHT, state={**EXPECTED, "JFK-LAX": (3, 60)}, sent={"JFK-LAX": [1, 2, 3]})
RUN = StateRun(EXPECTED, {"plain": AGAIN, "eos": RIGHT})


def test_right_totals_pass():
    assert conclude(RUN).exit_code == 0
    assert (AGAIN.excess(EXPECTED), AGAIN.unexpected(EXPECTED)) == (1, 2)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"state": {**EXPECTED, "JFK-LAX": (3, 30)}}, "counted too often"),
        ({"state": {"JFK-LAX": (2, 30)}}, "1 flights were not counted"),
        ({"state": {**EXPECTED, "JFK-LAX": (2, 31)}}, "routes have a wrong total"),
        ({"state": {**EXPECTED, "XXX": (1, 1)}}, "keys are in no input"),
        ({"sent": {"JFK-LAX": [1, 2, 2], "EWR-SFO": [1]}}, "1 totals were sent twice or never"),
        ({"sent": {"JFK-LAX": [1, 2]}}, "1 totals were sent twice or never"),
    ],
)
def test_a_planted_error_is_found_and_named(change, text):
    found = conclude(StateRun(EXPECTED, {"plain": RIGHT, "eos": replace(RIGHT, **change)}))
    assert found.exit_code == 1
    assert text in found.sentence


def test_without_a_restored_key_nothing_was_shown():
    run = StateRun(EXPECTED, {"plain": RIGHT, "eos": replace(RIGHT, restored=(0, 0))})
    assert conclude(run).exit_code == 3


def test_the_report_is_printed_drawn_and_written_as_a_page(tmp_path, capsys):
    assert publish(Terminal(), report_on(RUN), partial(draw, RUN), tmp_path, "state").exit_code == 0
    assert (tmp_path / "state.png").read_bytes().startswith(b"\x89PNG")
    assert "each was sent once" in capsys.readouterr().out
    assert '<td class="harm">1</td>' in (tmp_path / "state.html").read_text()


@pytest.mark.chaos
@pytest.mark.broker
@pytest.mark.slow
def test_a_small_run_is_exact(tmp_path):
    command = ["-m", "examples.state", "--rows", "40000", "--kills", "3", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
