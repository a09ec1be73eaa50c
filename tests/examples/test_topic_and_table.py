"""The example of two outputs, as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.chaos
def test_a_driver_killed_between_the_two_commits_leaves_each_flight_once_in_both():
    ran = subprocess.run(
        [sys.executable, "-m", "examples.topic_and_table"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "40,000" in ran.stdout
    assert "30,000" in ran.stdout
    assert "each flight once in both" in ran.stdout
