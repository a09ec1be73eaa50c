"""The picture and the table of ``make bench-log``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

TARGET: Final = 1.2


def draw(results: dict[str, Any], path: Path) -> None:
    """Medians with their spread, short beside long, one group for each thing measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    names = list(results["log"])
    for offset, which in ((-0.2, "short"), (0.2, "long")):
        spreads = [results["log"][name][which] for name in names]
        medians = [spread["median"] for spread in spreads]
        below = [spread["median"] - spread["p10"] for spread in spreads]
        above = [spread["p90"] - spread["median"] for spread in spreads]
        label = f"epoch {results['epochs'][which]:,}"
        places = [place + offset for place in range(len(names))]
        axes.bar(places, medians, 0.4, yerr=[below, above], capsize=3, label=label)
    labels = [f"{name}\nratio {results['log'][name]['ratio']}" for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.set_ylabel("milliseconds (median, 10th to 90th percentile)")
    axes.set_title("What the commit log costs, by how long it has been written")
    axes.legend()
    figure.savefig(path, dpi=120)


def show(results: dict[str, Any], console: Console) -> None:
    """The table of the run."""
    short, long = (f"epoch {results['epochs'][which]:,}" for which in ("short", "long"))
    table = Table("median (10 % .. 90 %), ms", short, long, "ratio", f"target {TARGET}")
    for name, found in results["log"].items():
        cells = [
            f"{found[w]['median']} ({found[w]['p10']} .. {found[w]['p90']})"
            for w in ("short", "long")
        ]
        reached = "[green]yes[/]" if found["ratio"] <= TARGET else "[red]no[/]"
        table.add_row(name, *cells, str(found["ratio"]), reached)
    console.print(table)
    many, listed = results["many"], results["listing"]
    console.print(
        f"{many['sinks']} sinks at once: {many['appends']:,} appends, {many['lost']} lost, "
        f"p50 {many['p50_ms']} ms, p99 {many['p99_ms']} ms. "
        f"{listed['sinks']:,} sinks listed in {listed['list_ms']} ms."
    )
