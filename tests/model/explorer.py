"""Breadth-first search: visits every state once, by its shortest path."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.rules import Rules
from tests.model.system import System, initial, successors, violation
from tests.model.world import Faults


@dataclass
class Search:
    """Result of a search. ``trace``: steps to the first violation; the violation is the last."""

    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    is_complete: bool = False
    wrong: str = ""
    trace: list[str] = field(default_factory=list)
    reached: dict[str, int] = field(default_factory=dict)
    """For each "sometimes" property, the number of the first state that has it."""


def search(
    faults: Faults,
    rules: Rules | None = None,
    *,
    max_states: int | None = None,
    sometimes: dict[str, Callable[[System], bool]] | None = None,
) -> Search:
    """Visit every state that is reachable with these faults; stop at the first violation.

    Args:
        max_states: stop after this many states; None visits all.
        sometimes: interesting states that a useful search must reach.
    """
    rules, wanted, found = rules or Rules(), dict(sometimes or {}), Search()
    started = time.monotonic()
    first = initial(faults)
    came: dict[System, tuple[System, str] | None] = {first: None}
    layer = [first]
    while layer and not found.wrong:
        below: list[System] = []
        for system in layer:
            for name, after in successors(system, rules):
                if after in came:
                    continue
                came[after] = (system, name)
                below.append(after)
                for label in [label for label, holds in wanted.items() if holds(after)]:
                    found.reached[label] = len(came)
                    del wanted[label]
                found.wrong = violation(after)
                if found.wrong:
                    found.trace = _trace(came, after)
                    break
            if found.wrong or (max_states is not None and len(came) >= max_states):
                break
        found.depth += 1
        if max_states is not None and len(came) >= max_states:
            break
        layer = below
    found.states, found.seconds = len(came), time.monotonic() - started
    found.is_complete = not layer
    return found


def _trace(came: dict[System, tuple[System, str] | None], last: System) -> list[str]:
    names = []
    at: System | None = last
    while at is not None:
        step = came[at]
        if step is None:
            break
        names.append(step[1])
        at = step[0]
    return names[::-1]
