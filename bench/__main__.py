"""``python -m bench NAME``: the command line of all benchmarks."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Final

import typer

# Module of each command, and its help. A module is imported when its command runs: what it does
# not need, such as Spark, takes no time and no memory.
COMMANDS: Final = {
    "quick": ("bench.quick", "the main figures, each beside its peer, in ten minutes"),
    "compare": ("bench.compare", "eos next to its alternatives: make bench"),
    "schemas": ("bench.sending", "the same records by each schema"),
    "reading": ("bench.reading", "topics read in each way, and planning"),
    "past": ("bench.past", "offloaded ledgers, archives, and SQL over both"),
    "sending": ("bench.sending", "messages sent one by one"),
    "state": ("bench.state", "a KeyedState of a million keys, under 50 kills"),
    "tables": ("bench.tables", "PostgreSQL and upserts next to their alternatives"),
    "scale": ("bench.scaling", "3,000 partitions and 3,000 topics in an epoch"),
    "queries": ("bench.scaling", "ten queries in one driver"),
    "backlog": ("bench.backlog", "an hour's backlog in 3,000 topics"),
    "log": ("bench.log_growth", "a commit log after 100 and after 100,000 epochs"),
    "hostile": ("bench.hostile_entries", "memory for hostile entries, decoded in this process"),
    "hostile-broker": ("bench.hostile_broker", "memory for hostile entries, read from a broker"),
    # Started by the benchmarks themselves, in new processes.
    "first-epoch-driver": ("bench.latency", ""),
    "cluster-driver": ("bench.latency", ""),
    "state-service": ("bench.state", ""),
    "object-server": ("bench.past", ""),
}


def main(arguments: list[str]) -> None:
    """Run the command that the first argument names."""
    name = arguments[0] if arguments else "--help"
    if name not in COMMANDS:
        names = "\n".join(f"  {one:16}{text}" for one, (_, text) in COMMANDS.items() if text)
        print(f"Usage: python -m bench NAME [OPTIONS]\n\n{names}\n\nNAME --help: its options")
        sys.exit(0 if name in ("--help", "-h") else 2)
    module, _ = COMMANDS[name]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(getattr(import_module(module), name.replace("-", "_")))
    app(arguments[1:], prog_name=f"python -m bench {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
