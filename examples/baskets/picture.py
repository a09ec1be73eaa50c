"""The picture: epochs on a time line with the kills, over the backlog of the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from examples.baskets.judge import BasketVerdict
from examples.baskets.run import BasketsRun
from examples.flights.picture import KILL_COLOUR, LOOKS, STYLE
from examples.flights.timeline import EpochFate, stretches_of

_BACKLOG: Final = "#0072B2"
_MIN_WIDTH_S: Final = 0.25


def draw_baskets(run: BasketsRun, verdict: BasketVerdict, png: Path) -> None:
    """Write the picture of a run."""
    with matplotlib.rc_context(STYLE):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(12, 9), sharex=True, height_ratios=[3, 2]
        )
        _draw_epochs(above, run)
        _draw_backlog(below, run)
        for axes in (above, below):
            _draw_kills(axes, run, named=axes is above)
            axes.grid(axis="x", alpha=0.25)
        above.set_title(_title(run, verdict), fontsize=13, loc="left", pad=26)
        above.tick_params(labelbottom=True)
        below.set_xlim(0, (run.ended_at - run.began_at) * 1.02)
        below.set_xlabel("seconds since the first epoch began")
        _add_legend(figure, run)
        figure.tight_layout(rect=(0, 0.07, 1, 1))
        figure.savefig(png, dpi=120)
        plt.close(figure)


def _title(run: BasketsRun, verdict: BasketVerdict) -> str:
    counts = [
        sum(numbers)
        for numbers in zip(
            *((one.extra, one.missing, one.wrong) for one in (verdict.topic, verdict.table)),
            strict=True,
        )
    ]
    return (
        f"{len(run.year.baskets):,} baskets, {verdict.windows:,} windows, in a topic and a table: "
        f"{counts[0]:,} extra, {counts[1]:,} missing, {counts[2]:,} wrong"
    )


def _draw_epochs(axes: Any, run: BasketsRun) -> None:
    for start_s, end_s in _outages(run):
        axes.axvspan(start_s, end_s, color="#000000", alpha=0.06, linewidth=0)
    last = 0
    for stretch in stretches_of(run.records, run.began_at):
        last = max(last, stretch.epoch)
        axes.barh(
            stretch.epoch,
            max(stretch.end_s - stretch.start_s, _MIN_WIDTH_S),
            left=stretch.start_s,
            height=0.7,
            linewidth=0.6,
            **LOOKS[stretch.fate],
        )
    axes.set_ylim(last + 0.8, -0.8)
    axes.set_ylabel("epoch")


def _outages(run: BasketsRun) -> list[tuple[float, float]]:
    """From each death of a driver until the next one begins an epoch."""
    begins = [event.at for event in run.events if event.event == "begin"]
    deaths = [event.at for event in run.events if event.event == "died"]
    return [
        (at - run.began_at, min((b for b in begins if b > at), default=run.ended_at) - run.began_at)
        for at in deaths
    ]


def _draw_backlog(axes: Any, run: BasketsRun) -> None:
    times = [at - run.began_at for at, _ in run.backlog]
    axes.fill_between(
        times, [entries for _, entries in run.backlog], step="post", color=_BACKLOG, alpha=0.35
    )
    axes.step(times, [entries for _, entries in run.backlog], where="post", color=_BACKLOG)
    axes.set_ylabel("backlog of the input (entries)")
    axes.set_ylim(0)


def _draw_kills(axes: Any, run: BasketsRun, *, named: bool) -> None:
    for strike in run.strikes:
        at_s = strike.at - run.began_at
        axes.axvline(at_s, color=KILL_COLOUR, linestyle=(0, (4, 3)), linewidth=1.4)
        if named:
            axes.annotate(
                f"{strike.what} killed",
                (at_s, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, 5),
                textcoords="offset points",
                ha="center",
                color=KILL_COLOUR,
                fontsize=10,
            )


def _add_legend(figure: Any, run: BasketsRun) -> None:
    fates = {stretch.fate for stretch in stretches_of(run.records, run.began_at)}
    handles: list[Any] = [
        Patch(label=fate.value, **LOOKS[fate]) for fate in EpochFate if fate in fates
    ]
    handles += [
        Line2D([], [], color=KILL_COLOUR, linestyle=(0, (4, 3)), label="SIGKILL"),
        Patch(color="#000000", alpha=0.06, label="no driver: Spark starts again"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=3, frameon=False, fontsize=10)
