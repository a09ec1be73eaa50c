"""The phases that the benchmark times are functions of the product."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.hot_path import PHASES

EOS = Path(__file__).parents[2] / "eos"


@pytest.mark.parametrize(("file", "function"), PHASES.values(), ids=list(PHASES))
def test_each_phase_is_a_function_that_is_there(file: str, function: str) -> None:
    """By name only: a file that is renamed would end a run of many minutes."""
    texts = [path.read_text() for path in EOS.rglob(file)]
    assert any(re.search(rf"^ *def {function}\(", text, re.MULTILINE) for text in texts)
