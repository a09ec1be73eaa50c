"""The picture: epochs on a time line, with kills, aborts and commits, over what a reader got."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from examples.flights.report import NAMES
from examples.flights.run import DemoRun
from examples.flights.timeline import EpochFate, outages, readable, stretches

# Okabe and Ito's palette: told apart with any colour vision; hatches do it without colour.
LOOKS: Final[dict[EpochFate, dict[str, Any]]] = {
    EpochFate.WRITTEN: {"facecolor": "#0072B2", "edgecolor": "#0072B2"},
    EpochFate.IN_DOUBT: {"facecolor": "#DCEBF5", "edgecolor": "#0072B2", "hatch": "...."},
    EpochFate.ABORTED: {"facecolor": "#F7DFA8", "edgecolor": "#8A5A00", "hatch": "xxxx"},
    EpochFate.REPEATED: {"facecolor": "#F3C6AA", "edgecolor": "#A34700", "hatch": "////"},
}
_READER: Final = "#222222"
_COPIES: Final = "#D55E00"
_FLIGHTS: Final = "#0072B2"
KILL_COLOUR: Final = "#B30000"
_GREY: Final = "#555555"
STYLE: Final[Any] = {
    "font.size": 11,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    # The same bytes for the same run.
    "svg.hashsalt": "eos",
}


def draw(runs: Sequence[DemoRun], png: Path, svg: Path) -> None:
    """Write the picture of ``runs``, side by side, in two formats."""
    with matplotlib.rc_context(STYLE):
        figure, grid = plt.subplots(
            2,
            len(runs),
            figsize=(8 * len(runs) if len(runs) > 1 else 10, 9.6),
            sharex="col",
            sharey="row",
            squeeze=False,
            height_ratios=[3, 2],
        )
        for column, run in enumerate(runs):
            _draw_epochs(grid[0][column], run)
            _draw_readable(grid[1][column], run)
        end_s = max(_end_s(run) for run in runs)
        for axes in grid[1]:
            axes.set_xlim(0, end_s * 1.03)
        grid[0][0].set_ylabel("epoch")
        grid[1][0].set_ylabel("rows that a reader has got (thousands)")
        _add_legend(figure, runs)
        figure.tight_layout(rect=(0, 0.09, 1, 1), w_pad=2.5)
        figure.savefig(png, dpi=120)
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _end_s(run: DemoRun) -> float:
    last_seen = run.seen[-1][0] if run.seen else run.ended_at
    return max(run.ended_at, last_seen) - run.began_at


def _draw_epochs(axes: Any, run: DemoRun) -> None:
    _shade_outages(axes, run)
    for stretch in stretches(run):
        width = max(stretch.end_s - stretch.start_s, 0.05)
        axes.barh(
            stretch.epoch - 0.12,
            width,
            left=stretch.start_s,
            height=0.46,
            linewidth=0.6,
            **LOOKS[stretch.fate],
        )
    for epoch, window in run.windows.items():
        first_s, complete_s = window.first - run.began_at, window.complete - run.began_at
        axes.plot(
            [first_s, complete_s],
            [epoch + 0.27] * 2,
            color=_READER,
            linewidth=2.2,
            marker="|",
            markersize=6,
            solid_capstyle="butt",
        )
    _draw_kills(axes, run)
    axes.set_title(_title(run), fontsize=13, loc="left", pad=24)
    axes.set_yticks(range(run.flights.epochs))
    axes.set_ylim(run.flights.epochs - 0.4, -0.7)
    axes.grid(axis="x", alpha=0.25)
    axes.tick_params(labelleft=True, labelbottom=True)


def _title(run: DemoRun) -> str:
    copies, missing = run.extra_copies, len(run.verdict.missing)
    early = len(run.early_epochs)
    return (
        f"{NAMES[run.way]}\n{copies:,} extra rows, {missing:,} missing, "
        f"{early} of {run.flights.epochs} epochs partly visible"
    )


def _shade_outages(axes: Any, run: DemoRun) -> None:
    for start_s, end_s in outages(run):
        axes.axvspan(start_s, end_s, color="#000000", alpha=0.06, linewidth=0)


def _draw_kills(axes: Any, run: DemoRun, *, named: bool = True) -> None:
    for kill in run.kills:
        at_s = kill.at - run.began_at
        axes.axvline(at_s, color=KILL_COLOUR, linestyle=(0, (4, 3)), linewidth=1.4)
        # Two labels at most, which turn away from each other.
        if named and kill is run.last_kill(kill.what):
            is_left = kill.what == "executor"
            axes.annotate(
                f"{kill.what} killed",
                (at_s, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(8 if is_left else -8, 4),
                textcoords="offset points",
                ha="right" if is_left else "left",
                color=KILL_COLOUR,
                fontsize=10,
            )


def _draw_readable(axes: Any, run: DemoRun) -> None:
    times_s, flights, rows = readable(run)
    thousands = [[n / 1000 for n in counts] for counts in (flights, rows)]
    _shade_outages(axes, run)
    axes.plot(times_s, thousands[0], color=_FLIGHTS, linewidth=1.8)
    if run.extra_copies:
        axes.plot(times_s, thousands[1], color=_COPIES, linewidth=1.4)
        axes.fill_between(times_s, *thousands, color=_COPIES, alpha=0.35, linewidth=0)
    axes.axhline(run.flights.rows / 1000, color=_GREY, linestyle=":", linewidth=1.2)
    axes.annotate(
        f"{run.flights.rows:,} flights went in",
        (0.0, run.flights.rows / 1000),
        xycoords=("axes fraction", "data"),
        xytext=(8, 5),
        textcoords="offset points",
        color=_GREY,
        fontsize=10,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        zorder=4,
    )
    axes.annotate(
        f"{len(run.drained):,} rows came out",
        (0.985, 0.06),
        xycoords="axes fraction",
        ha="right",
        fontsize=11,
        fontweight="bold",
        color=_COPIES if run.extra_copies else _FLIGHTS,
    )
    _draw_kills(axes, run, named=False)
    axes.set_xlabel("seconds since the first epoch began")
    axes.set_ylim(0, run.flights.rows / 1000 * 1.22)
    axes.grid(alpha=0.25)
    axes.tick_params(labelleft=True)


def _add_legend(figure: Any, runs: Sequence[DemoRun]) -> None:
    fates = {stretch.fate for run in runs for stretch in stretches(run)}
    handles: list[Any] = [
        Patch(label=fate.value, **LOOKS[fate]) for fate in EpochFate if fate in fates
    ]
    handles += [
        Line2D([], [], color=_READER, marker="|", linewidth=2.2, label="its rows reach a reader"),
        Line2D([], [], color=KILL_COLOUR, linestyle=(0, (4, 3)), label="SIGKILL"),
        Patch(color="#000000", alpha=0.06, label="no driver: Spark starts again"),
        Line2D([], [], color=_FLIGHTS, label="flights, each counted once"),
    ]
    if any(run.extra_copies for run in runs):
        handles.append(Patch(color=_COPIES, alpha=0.5, label="copies of flights it has already"))
    columns = 3 if len(runs) > 1 else 2
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=10)
