"""One HTML page that needs no network: the verdict, then the schedules, then the faults."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import jinja2
import matplotlib
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from eos.chaos.checker.history import NO_LOG
from eos.chaos.faults import FAULTS, Fault
from eos.chaos.faults.conditions import CONDITIONS, Condition
from eos.chaos.observers.resources import Sample, is_long
from eos.chaos.report.machine import DURATIONS, Percentiles, durations_of, verdict_of
from eos.chaos.report.outcome import ScheduleOutcome

matplotlib.use("Agg")  # a report is made without a display

# Okabe and Ito's palette, for any colour vision; hatches work without colours.
_ATTEMPT: Final[dict[str, dict[str, Any]]] = {
    "COMMITTED": {"facecolor": "#0072B2", "edgecolor": "#0072B2"},
    "EMPTY": {"facecolor": "#FFFFFF", "edgecolor": "#0072B2"},
    "ABORTED": {"facecolor": "#F7DFA8", "edgecolor": "#8A5A00", "hatch": "xxxx"},
}
_UNDECIDED: Final = {"facecolor": "#F3C6AA", "edgecolor": "#A34700", "hatch": "////"}
_READER: Final = "#222222"
_FAULT: Final = "#B30000"
_DRIVER: Final = "#009E73"
_STYLE: Final[Any] = {
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "svg.hashsalt": "eos",
}
_NARROWEST_S: Final = 0.08


def timeline(outcome: ScheduleOutcome) -> str:
    """The timeline of a schedule: faults, drivers, the transactions of each epoch, a reader."""
    with matplotlib.rc_context(_STYLE):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 6.2), sharex=True, height_ratios=[2, 5]
        )
        _draw_faults(above, outcome)
        _draw_epochs(below, outcome)
        below.set_xlabel("seconds since the schedule began")
        _legend(figure)
        figure.tight_layout(rect=(0, 0.06, 1, 1))
        return _svg(figure)


def _draw_faults(axes: Any, outcome: ScheduleOutcome) -> None:
    names: list[str] = []
    drivers = [one for one in outcome.operations if one.name.startswith("driver run")]
    for number, driver in enumerate(drivers):
        width = max(driver.ended_s - driver.began_s, _NARROWEST_S)
        row = -0.17 if number % 2 else 0.17  # two may run at once
        axes.barh(row, width, left=driver.began_s, height=0.3, color=_DRIVER, edgecolor="white")
    for fault in outcome.faults:
        names.append(fault.name)
        width = max(fault.healed_s - fault.began_s, _NARROWEST_S)
        look: dict[str, Any] = {"color": _FAULT} if fault.hit else {"color": "#BBBBBB"}
        axes.barh(len(names), width, left=fault.began_s, height=0.6, **look)
    axes.set_yticks(range(len(names) + 1), ["driver", *names])
    axes.invert_yaxis()
    axes.grid(axis="x", color="#E5E5E5")
    axes.set_axisbelow(True)


def _draw_epochs(axes: Any, outcome: ScheduleOutcome) -> None:
    # The keys of batch jobs may be words; rows of the plot are numbers.
    for attempt in (one for one in outcome.attempts if one.epoch.isdecimal()):
        width = max(attempt.ended_s - attempt.began_s, _NARROWEST_S)
        look = _ATTEMPT.get(attempt.state, _UNDECIDED)
        axes.barh(int(attempt.epoch) - 0.15, width, left=attempt.began_s, height=0.5, **look)
    for view in (one for one in outcome.views if one.epoch.isdecimal()):
        row = int(view.epoch) + 0.28
        axes.plot([view.first_s, view.last_s], [row, row], color=_READER, linewidth=2.5)
        axes.plot([view.last_s], [row], ".", color=_READER, markersize=4)
    for fault in outcome.fired:
        axes.axvspan(fault.began_s, fault.healed_s, color=_FAULT, alpha=0.07, linewidth=0)
    axes.set_ylabel("epoch")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.invert_yaxis()
    axes.grid(axis="x", color="#E5E5E5")
    axes.set_axisbelow(True)


def _legend(figure: Any) -> None:
    entries = [
        Patch(**_ATTEMPT["COMMITTED"], label="committed"),
        Patch(**_ATTEMPT["ABORTED"], label="aborted, runs again"),
        Patch(**_ATTEMPT["EMPTY"], label="empty"),
        Line2D([], [], color=_READER, linewidth=2.5, label="received by a reader"),
        Patch(color=_FAULT, label="fault"),
        Patch(color="#BBBBBB", label="fault that hit nothing"),
        Patch(color=_DRIVER, label="driver"),
    ]
    figure.legend(handles=entries, loc="lower center", ncols=len(entries), frameon=False)


def recovery_times(durations: Mapping[str, Sequence[float]]) -> str:
    """The distribution of each kind of duration, with its p50 and p99."""
    with matplotlib.rc_context(_STYLE):
        figure, panels = plt.subplots(1, len(durations), figsize=(11, 3.2))
        for axes, (name, seconds) in zip(panels, durations.items(), strict=True):
            axes.set_title(textwrap.fill(DURATIONS[name], 30), fontsize=9)
            axes.set_xlabel("seconds")
            axes.set_xlim(left=0)
            if not seconds:
                axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)
                axes.set_yticks([])
                continue
            ordered = sorted(seconds)
            share = [100 * (n + 1) / len(ordered) for n in range(len(ordered))]
            axes.step([0, *ordered], [0, *share], where="post", color="#0072B2")
            figures = Percentiles.of(seconds)
            for label, at, height in (("p50", figures.p50_s, 4), ("p99", figures.p99_s, 56)):
                axes.axvline(at, color="#A34700", linestyle=":")
                text = f" {label} {at:.3g} s"
                axes.text(at, height, text, color="#A34700", rotation=90, fontsize=8)
            axes.set_xlim(0, max(ordered) * 1.12 or 1)
            axes.set_ylabel("% of cases")
        figure.tight_layout()
        return _svg(figure)


_PROCESSES: Final = {
    "memory (MB)": {"driver": "driver_mb", "its JVM": "jvm_mb", "largest worker": "worker_mb"},
    "open files": {"driver": "driver_files", "its JVM": "jvm_files", "worker": "worker_files"},
}
_STORAGE: Final = {
    "files": {"commit log": "log_files", "checkpoint": "checkpoint_files"},
    "bytes": {
        "input topic": "input_bytes",
        "commit log": "log_bytes",
        "receipt topic": "receipts_bytes",
    },
}


def resources(outcome: ScheduleOutcome) -> str:
    """Memory, open files and, for a soak, storage over a long run; dotted lines are faults."""
    stored = [sample for sample in outcome.samples if sample.log_files is not None]
    rows = [(outcome.samples, _PROCESSES), *([(stored, _STORAGE)] if stored else [])]
    with matplotlib.rc_context(_STYLE):
        figure, grid = plt.subplots(len(rows), 2, figsize=(11, 3.4 * len(rows)), squeeze=False)
        for panels, (samples, titles) in zip(grid, rows, strict=True):
            for axes, (title, lines) in zip(panels, titles.items(), strict=True):
                _draw_lines(axes, samples, lines)
                axes.set_ylabel(title)
                if title == "bytes":
                    axes.set_yscale("log")
                else:
                    axes.set_ylim(bottom=0)
                axes.yaxis.set_major_formatter(EngFormatter())
                for fault in outcome.fired if stored else ():
                    axes.axvline(fault.began_s / 60, color=_FAULT, linestyle=":", linewidth=0.8)
        figure.tight_layout()
        return _svg(figure)


def _draw_lines(axes: Any, samples: Sequence[Sample], lines: Mapping[str, str]) -> None:
    minutes = [sample.at_s / 60 for sample in samples]
    for style, (label, name) in zip(("-", "--", ":"), lines.items(), strict=False):
        values = [getattr(sample, name) for sample in samples]
        axes.plot(minutes, values, style, label=label, color=_READER)
    axes.set_xlabel("minutes")
    axes.legend(frameon=False)


def _svg(figure: Any) -> str:
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # all contain URLs
    figure.savefig(text, format="svg", metadata=nothing)
    plt.close(figure)
    # Only the element, without the XML prologue, whose DTD is a URL.
    return text.getvalue()[text.getvalue().index("<svg") :]


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    undefined=jinja2.StrictUndefined,
    keep_trailing_newline=True,
)


def write_page(outcomes: Sequence[ScheduleOutcome], path: Path) -> None:
    """Write the page."""
    durations = durations_of(outcomes)
    known: list[Fault | Condition] = [*FAULTS.values(), *CONDITIONS.values()]
    text = _ENVIRONMENT.get_template("report.html.jinja").render(
        outcomes=outcomes,
        verdict=verdict_of(outcomes),
        durations=[(text, Percentiles.of(durations[name])) for name, text in DURATIONS.items()],
        spread=recovery_times(durations),
        summaries={one.name: one.summary.replace("`", "") for one in known},
        no_log=NO_LOG,
        timeline=timeline,
        resources=resources,
        is_long=is_long,
    )
    path.write_text(text, encoding="utf-8")
