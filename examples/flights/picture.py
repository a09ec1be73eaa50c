"""The picture: epochs on a time line, with kills, aborts and commits, over what a reader saw."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from examples.flights.report import NAMES
from examples.flights.story import Run

# Okabe and Ito's palette: told apart with any colour vision.
_COMMITTED: Final = "#0072B2"
_FAILED: Final = "#E69F00"
_IN_DOUBT: Final = "#56B4E9"
_KILL: Final = "#D55E00"
_GREY: Final = "#555555"


@dataclass(frozen=True)
class Bar:
    """A stretch of one epoch's life; seconds from the run's begin."""

    epoch: int
    start_s: float
    end_s: float
    colour: str


def bars(run: Run) -> list[Bar]:
    """The attempts of all epochs, from the commit log, or from what the job told."""
    return _bars_of_log(run) if run.records else _bars_of_events(run)


def _bars_of_log(run: Run) -> list[Bar]:
    found: list[Bar] = []
    opened: dict[str, float] = {}
    for record in run.records:
        if record.epoch is None or record.written_at is None:
            continue
        at, epoch = record.written_at.timestamp() - run.began_at, int(record.epoch)
        if record.state == "OPEN":
            opened[record.epoch] = at
        elif record.state == "PREPARED":
            found.append(Bar(epoch, opened[record.epoch], at, _COMMITTED))
            opened[record.epoch] = at
        elif record.state == "COMMITTED":
            found.append(Bar(epoch, opened[record.epoch], at, _IN_DOUBT))
        elif record.state == "ABORTED":
            found.append(Bar(epoch, opened[record.epoch], at, _FAILED))
    return found


def _bars_of_events(run: Run) -> list[Bar]:
    found: list[Bar] = []
    begun: tuple[int, float] | None = None
    deaths = {kill.epoch: kill.at for kill in run.kills if kill.what == "driver"}
    for event in sorted(run.events, key=lambda event: event.at):
        if event.event == "begin":
            begun = event.epoch, event.at
        elif event.event == "end" and begun is not None:
            killed = event.epoch in deaths and event.at <= deaths[event.epoch]
            colour = _FAILED if killed else _COMMITTED
            start_s, end_s = begun[1] - run.began_at, event.at - run.began_at
            found.append(Bar(event.epoch, start_s, end_s, colour))
    return found


def draw(runs: list[Run], path: Path) -> None:
    """Write the picture of ``runs`` side by side as PNG."""
    figure, grid = plt.subplots(
        2, len(runs), figsize=(15, 8.6), sharex="col", squeeze=False, height_ratios=[3, 2]
    )
    top = 1.12 * max(max(len(run.drained), run.flights.rows) for run in runs) / 1000
    for column, run in enumerate(runs):
        _draw_epochs(grid[0][column], run)
        _draw_seen(grid[1][column], run, top)
    legend = [
        Patch(color=_COMMITTED, label="written"),
        Patch(color=_IN_DOUBT, label="prepared, not yet committed (in doubt)"),
        Patch(color=_FAILED, label="failed, run again"),
        Patch(color=_KILL, label="SIGKILL"),
    ]
    figure.legend(handles=legend, loc="lower center", ncols=4, frameon=False, fontsize=11)
    figure.suptitle(
        f"{runs[0].flights.rows:,} flights to Pulsar, under the same kills", fontsize=16
    )
    figure.tight_layout(rect=(0, 0.045, 1, 0.99))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _draw_epochs(axes: Any, run: Run) -> None:
    for bar in bars(run):
        width = max(bar.end_s - bar.start_s, 0.05)
        axes.barh(bar.epoch, width, left=bar.start_s, height=0.7, color=bar.colour)
    verdict = run.verdict
    extra, missing = sum(verdict.duplicates.values()), len(verdict.missing)
    axes.set_title(f"{NAMES[run.way]}: {extra:,} duplicates, {missing:,} missing", fontsize=13)
    axes.set_ylabel("epoch")
    axes.set_yticks(range(run.flights.epochs))
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    for kill in run.kills:
        at = kill.at - run.began_at
        axes.axvline(at, color=_KILL, linestyle="--", linewidth=1.6)
        axes.annotate(
            f"{kill.what} killed",
            (at, 0.02 if kill.what == "executor" else 0.10),
            xycoords=("data", "axes fraction"),
            xytext=(5, 0),
            textcoords="offset points",
            color=_KILL,
            fontsize=10,
        )


def _draw_seen(axes: Any, run: Run, top: float) -> None:
    times = [at - run.began_at for at, _ in run.seen]
    axes.step(times, [n / 1000 for n in range(1, len(times) + 1)], color=_COMMITTED, where="post")
    axes.axhline(run.flights.rows / 1000, color=_GREY, linestyle=":", linewidth=1.2)
    axes.annotate(
        f"rows in: {run.flights.rows:,}; a reader got {len(run.drained):,}",
        (0.02, 0.92),
        xycoords="axes fraction",
        color=_GREY,
        fontsize=10,
    )
    for kill in run.kills:
        axes.axvline(kill.at - run.began_at, color=_KILL, linestyle="--", linewidth=1.6)
    axes.set_xlabel("seconds since the first epoch began")
    axes.set_ylabel("rows that a reader has seen (thousands)")
    axes.set_ylim(0, top * 1.08)
    axes.grid(alpha=0.3)
