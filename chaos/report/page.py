"""One HTML page that needs no network: the verdict, then the schedules, then the faults."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2

from eos.chaos.faults import FAULTS, Fault
from eos.chaos.faults.conditions import CONDITIONS, Condition
from eos.chaos.observers.resources import is_long
from eos.chaos.report._plots import recovery_times, resources, timeline
from eos.chaos.report.machine import DURATIONS, Percentiles, durations_of, verdict_of
from eos.chaos.report.outcome import ScheduleOutcome

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
        timeline=timeline,
        resources=resources,
        is_long=is_long,
    )
    path.write_text(text, encoding="utf-8")
