"""A counterexample as a text for people: which rule was broken, what happened, what was lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.model.explorer import Search
from tests.model.mutants import Mutant

SCENARIOS: Final = Path(__file__).parent.parent / "scenarios"


def transcript(mutant: Mutant, found: Search) -> str:
    """The shortest way from a broken rule to what must never be."""
    lines = [f"Without the rule that {mutant.breaks}:", ""]
    lines += [f"{number:3}. {name}" for number, name in enumerate(found.trace, 1)]
    return "\n".join([*lines, "", f"Wrong: {found.wrong}.", ""])


def path_of(mutant: Mutant) -> Path:
    """Where the transcript of a mutant is kept."""
    return SCENARIOS / f"{mutant.name}.txt"
