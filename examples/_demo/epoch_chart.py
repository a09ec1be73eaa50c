"""The picture: above, epochs on a time line with the kills; below, a quantity over the same time.

``EpochChart`` is plain data, one for each run; charts are drawn side by side.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from eos.protocol import LogRecord, State
from examples._demo.subprocesses import Event


class AttemptPhase(Enum):
    """The phase of an attempt during an interval; ``value`` is the legend's text."""

    WRITTEN = "written"
    IN_DOUBT = "prepared, then committed at the end of this bar"
    ABORTED = "aborted: no reader sees its rows"
    REPEATED = "written, and written again later"


@dataclass(frozen=True)
class Interval:
    """A part of an attempt; seconds since the first epoch began."""

    epoch: int
    start_s: float
    end_s: float
    phase: AttemptPhase


def logged_intervals(records: Iterable[LogRecord], began_at: float) -> list[Interval]:
    """Return all attempts in a commit log; seconds count from ``began_at``."""
    phases = {
        State.PREPARED: AttemptPhase.WRITTEN,
        State.COMMITTED: AttemptPhase.IN_DOUBT,
        State.ABORTED: AttemptPhase.ABORTED,
    }
    found: list[Interval] = []
    since: dict[str, float] = {}
    for record in records:
        if record.epoch is None or record.written_at is None:
            continue
        at_s = record.written_at.timestamp() - began_at
        if record.state in phases:
            start_s = since[record.epoch]
            found.append(Interval(int(record.epoch), start_s, at_s, phases[record.state]))
        if record.state in (State.OPEN, State.PREPARED):
            since[record.epoch] = at_s
    return found


def outages(
    events: Iterable[Event], deaths: Iterable[float], began_at: float, ended_at: float
) -> list[tuple[float, float]]:
    """Return, for each death of a driver, the seconds until the next one begins an epoch.

    Args:
        deaths, began_at, ended_at: ``time.time()`` seconds.
    """
    begins = [event.at for event in events if event.event == "begin"]
    return [
        (at - began_at, min((begin for begin in begins if begin > at), default=ended_at) - began_at)
        for at in deaths
    ]


# Okabe and Ito's palette, for any colour vision; hatches for none.
BLUE: Final = "#0072B2"
ORANGE: Final = "#D55E00"
_LOOKS: Final[dict[AttemptPhase, dict[str, Any]]] = {
    AttemptPhase.WRITTEN: {"facecolor": BLUE, "edgecolor": BLUE},
    AttemptPhase.IN_DOUBT: {"facecolor": "#DCEBF5", "edgecolor": BLUE, "hatch": "...."},
    AttemptPhase.ABORTED: {"facecolor": "#F7DFA8", "edgecolor": "#8A5A00", "hatch": "xxxx"},
    AttemptPhase.REPEATED: {"facecolor": "#F3C6AA", "edgecolor": "#A34700", "hatch": "////"},
}
_READER: Final = "#222222"
_RED: Final = "#B30000"
_GREY: Final = "#555555"
_DASHES: Final = (0, (4, 3))
_STYLE: Final[Any] = {
    "font.size": 11,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    # The same bytes for the same run.
    "svg.hashsalt": "eos",
}
_MIN_BAR_S: Final = 0.1
_MOST_TICKS: Final = 20
# Share of the time axis; labels of kills that are closer would overlap.
_CLOSE: Final = 0.2


class KillMark(NamedTuple):
    """A kill, in seconds since the first epoch began; ``label`` is empty for an unnamed one."""

    at_s: float
    label: str


class ReadInterval(NamedTuple):
    """When a reader received the first and the last row of an epoch."""

    epoch: int
    first_s: float
    last_s: float


@dataclass(frozen=True)
class Curve:
    """A quantity over time.

    Attributes:
        floor: the area between it and ``values`` is filled, if it is given.
    """

    label: str
    color: str
    times_s: Sequence[float]
    values: Sequence[float]
    floor: Sequence[float] | None = None


@dataclass(frozen=True)
class EpochChart:
    """The data of one run's picture. Seconds count from the beginning of the first epoch.

    Attributes:
        reads: drawn below the epochs' bars.
        curves, curves_label: the lower half.
        limit: a dotted line in the lower half, with its label.
    """

    title: str
    intervals: Sequence[Interval]
    kills: Sequence[KillMark]
    outages: Sequence[tuple[float, float]]
    end_s: float
    curves: Sequence[Curve]
    curves_label: str
    reads: Sequence[ReadInterval] = ()
    limit: tuple[float, str] | None = None
    total: tuple[str, str] | None = None


def as_steps(points: Iterable[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return times and values of a curve that changes only at ``points``."""
    times: list[float] = []
    values: list[float] = []
    for at, value in points:
        if times:
            times.append(at)
            values.append(values[-1])
        times.append(at)
        values.append(value)
    return times, values


def draw(charts: Sequence[EpochChart], png: Path, svg: Path) -> None:
    """Write the charts, side by side, in two formats."""
    with matplotlib.rc_context(_STYLE):
        figure, grid = plt.subplots(
            2,
            len(charts),
            figsize=(8 * len(charts) if len(charts) > 1 else 11, 9.6),
            sharex="col",
            sharey="row",
            squeeze=False,
            height_ratios=[3, 2],
        )
        for column, chart in enumerate(charts):
            _draw_epochs(grid[0][column], chart)
            _draw_curves(grid[1][column], chart)
        end_s = max(chart.end_s for chart in charts)
        for axes in grid[1]:
            axes.set_xlim(0, end_s * 1.03)
        last = max(one.epoch for chart in charts for one in chart.intervals)
        grid[0][0].set_ylim(last + 0.6, -0.7)
        grid[0][0].set_yticks(range(0, last + 1, 1 + last // _MOST_TICKS))
        grid[0][0].set_ylabel("epoch")
        grid[1][0].set_ylabel(charts[0].curves_label)
        for chart, axes in zip(charts, grid[0], strict=True):
            _label_kills(axes, chart.kills, end_s)
        _add_legend(figure, charts)
        figure.tight_layout(rect=(0, 0.09, 1, 1), w_pad=2.5)
        figure.savefig(png, dpi=120)
        # Without date and version: the same bytes for the same run.
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
        plt.close(figure)


def _draw_epochs(axes: Any, chart: EpochChart) -> None:
    _draw_outages_and_kills(axes, chart)
    for one in chart.intervals:
        axes.barh(
            one.epoch - (0.12 if chart.reads else 0),
            max(one.end_s - one.start_s, _MIN_BAR_S),  # a shorter bar would be invisible
            left=one.start_s,
            height=0.46 if chart.reads else 0.7,
            linewidth=0.6,
            **_LOOKS[one.phase],
        )
    for epoch, first_s, last_s in chart.reads:
        axes.plot(
            [first_s, last_s],
            [epoch + 0.27] * 2,
            color=_READER,
            linewidth=2.2,
            marker="|",
            markersize=6,
            solid_capstyle="butt",
        )
    axes.set_title(chart.title, fontsize=13, loc="left", pad=24)
    axes.grid(axis="x", alpha=0.25)
    axes.tick_params(labelleft=True, labelbottom=True)


def _draw_outages_and_kills(axes: Any, chart: EpochChart) -> None:
    for start_s, end_s in chart.outages:
        axes.axvspan(start_s, end_s, color="#000000", alpha=0.06, linewidth=0)
    for kill in chart.kills:
        axes.axvline(kill.at_s, color=_RED, linestyle=_DASHES, linewidth=1.4)


def _label_kills(axes: Any, kills: Sequence[KillMark], end_s: float) -> None:
    named = [kill for kill in kills if kill.label]
    for number, kill in enumerate(named):
        before = number > 0 and kill.at_s - named[number - 1].at_s < _CLOSE * end_s
        after = number + 1 < len(named) and named[number + 1].at_s - kill.at_s < _CLOSE * end_s
        # Labels of neighbours would overlap: they are moved away from each other.
        align = "center" if before == after else "left" if before else "right"
        axes.annotate(
            kill.label,
            (kill.at_s, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 4),
            textcoords="offset points",
            ha=align,
            color=_RED,
            fontsize=10,
        )


def _draw_curves(axes: Any, chart: EpochChart) -> None:
    _draw_outages_and_kills(axes, chart)
    for curve in chart.curves:
        axes.plot(curve.times_s, curve.values, color=curve.color, linewidth=1.6)
        if curve.floor is not None:
            axes.fill_between(
                curve.times_s,
                curve.floor,
                curve.values,
                color=curve.color,
                alpha=0.35,
                linewidth=0,
            )
    axes.set_ylim(0)
    if chart.limit is not None:
        _draw_limit(axes, *chart.limit)
    if chart.total is not None:
        text, color = chart.total
        axes.annotate(
            text,
            (0.985, 0.06),
            xycoords="axes fraction",
            ha="right",
            fontsize=11,
            fontweight="bold",
            color=color,
        )
    axes.set_xlabel("seconds since the first epoch began")
    axes.grid(alpha=0.25)
    axes.tick_params(labelleft=True)


def _draw_limit(axes: Any, value: float, text: str) -> None:
    axes.axhline(value, color=_GREY, linestyle=":", linewidth=1.2)
    axes.annotate(
        text,
        (0.0, value),
        xycoords=("axes fraction", "data"),
        xytext=(8, 5),
        textcoords="offset points",
        color=_GREY,
        fontsize=10,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        zorder=4,
    )
    axes.set_ylim(0, value * 1.22)


def _add_legend(figure: Any, charts: Sequence[EpochChart]) -> None:
    phases = {one.phase for chart in charts for one in chart.intervals}
    handles: list[Any] = [
        Patch(label=phase.value, **_LOOKS[phase]) for phase in AttemptPhase if phase in phases
    ]
    if any(chart.reads for chart in charts):
        handles.append(
            Line2D(
                [], [], color=_READER, marker="|", linewidth=2.2, label="its rows reach a reader"
            )
        )
    handles += [
        Line2D([], [], color=_RED, linestyle=_DASHES, label="SIGKILL"),
        Patch(color="#000000", alpha=0.06, label="no driver: Spark starts again"),
    ]
    curves = {curve.label: curve for curve in chain(*(chart.curves for chart in charts))}
    handles += [
        Line2D([], [], color=curve.color, label=curve.label)
        if curve.floor is None
        else Patch(color=curve.color, alpha=0.5, label=curve.label)
        for curve in curves.values()
    ]
    columns = 3 if len(charts) > 1 else 2
    figure.legend(handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=10)
