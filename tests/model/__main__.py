"""``make model``: search the protocol, break each rule in turn, save the counterexamples."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from tests.model.explorer import search
from tests.model.mutants import MUTANTS
from tests.model.sometimes import SOMETIMES
from tests.model.transcript import SCENARIOS, path_of, transcript
from tests.model.world import Faults

ALL_FAULTS = Faults(
    lives=2, crashes=1, replies=1, expiries=1, tasks=1, reloads=1, trims=1, wipes=1, swallows=1
)
COMPLETE = {
    "crashes and lost replies": Faults(lives=2, crashes=1, replies=1, reloads=1),
    "crashes and expiry": Faults(lives=2, crashes=1, expiries=1),
    "crashes and tasks that run again": Faults(lives=2, crashes=1, tasks=1),
    "tasks that run again, lost replies": Faults(lives=1, tasks=2, replies=1),
    "tasks that run again, with rows and without": Faults(lives=1, tasks=2, empties=1),
    "a trimmed receipt topic": Faults(lives=2, crashes=1, replies=1, trims=1),
    "swallowed errors": Faults(lives=2, crashes=1, tasks=1, swallows=1),
    "a topic and a table": Faults(lives=2, crashes=1, replies=1, expiries=1, tables=1),
    "a topic and a table, tasks that run again": Faults(lives=2, crashes=1, tasks=1, tables=1),
    "another cluster": Faults(lives=2, crashes=1, expiries=1, wipes=1),
}


def main() -> None:
    """Search, print, write the transcripts; exit with 1 if any result is not as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--states", type=int, default=1_000_000, help="of the search with all faults together"
    )
    parser.add_argument("--complete", action="store_true", help="all of them, however many")
    options = parser.parse_args()
    console = Console()
    is_good = _search(console, None if options.complete else options.states)
    is_good &= _mutants(console)
    sys.exit(0 if is_good else 1)


def _search(console: Console, max_states: int | None) -> bool:
    table = Table("searched", "states", "depth", "seconds", "complete", "found")
    runs = {name: (faults, None) for name, faults in COMPLETE.items()}
    runs["all faults together"] = (ALL_FAULTS, max_states)
    is_good, missing = True, set(SOMETIMES)
    for name, (faults, limit) in runs.items():
        found = search(faults, max_states=limit, sometimes=SOMETIMES)
        missing -= set(found.reached)
        is_good &= not found.wrong
        table.add_row(
            name,
            f"{found.states:,}",
            str(found.depth),
            f"{found.seconds:.0f}",
            "yes" if found.is_complete else "no",
            found.wrong or "nothing wrong",
        )
        if found.wrong:
            console.print("\n".join([name, *found.trace, found.wrong]))
    console.print(table)
    console.print(f"{len(SOMETIMES) - len(missing)} of {len(SOMETIMES)} interesting states reached")
    for name in sorted(missing):
        console.print(f"[red]never reached:[/] {name}")
    return is_good and not missing


def _mutants(console: Console) -> bool:
    SCENARIOS.mkdir(exist_ok=True)
    alive, states, seconds = [], 0, 0.0
    for mutant in MUTANTS:
        found = search(mutant.faults, mutant.rules)
        states, seconds = states + found.states, seconds + found.seconds
        if found.wrong:
            path_of(mutant).write_text(transcript(mutant, found))
        else:
            alive.append(mutant.name)
    console.print(
        f"{len(MUTANTS) - len(alive)} of {len(MUTANTS)} mutants killed, {states:,} states, "
        f"{seconds:.0f} s; the shortest way to each in {SCENARIOS.name}/"
    )
    for name in alive:
        console.print(f"[red]alive:[/] {name}")
    return not alive


if __name__ == "__main__":
    main()
