"""A counterexample as readable text: the broken rule, the steps, and the loss."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.model.explorer import Search
from tests.model.mutants import Mutant

SCENARIOS: Final = Path(__file__).parent.parent / "scenarios"


def transcript(mutant: Mutant, found: Search) -> str:
    """The shortest path from a broken rule to a violation."""
    lines = [f"Without the rule that {mutant.breaks}:", ""]
    lines += [f"{number:3}. {name}" for number, name in enumerate(found.trace, 1)]
    return "\n".join([*lines, "", f"Wrong: {found.wrong}.", ""])


def path_of(mutant: Mutant) -> Path:
    """The file of a mutant's transcript."""
    return SCENARIOS / f"{mutant.name}.txt"
