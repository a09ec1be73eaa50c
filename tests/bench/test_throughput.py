"""The phases that the benchmark times are functions of the product."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.throughput import PHASES

EOS = Path(__file__).parents[2] / "eos"


@pytest.mark.parametrize(("file", "function"), PHASES.values(), ids=list(PHASES))
def test_each_phase_is_an_existing_function(file: str, function: str) -> None:
    """By name only: after a rename a long run would end with an error."""
    texts = [path.read_text() for path in EOS.rglob(file)]
    assert any(re.search(rf"^ *def {function}\(", text, re.MULTILINE) for text in texts)
