"""One HTML page that opens without a network: the verdict, the pictures, then the faults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Final

from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS
from eos.chaos.observers.resources import are_long
from eos.chaos.report._plots import recovery_times, resources, timeline
from eos.chaos.report.machine import DURATIONS, Percentiles, durations_of, verdict_of
from eos.chaos.report.outcome import ScheduleOutcome

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>eos chaos: $title</title>
<style>
  body { font: 16px/1.55 system-ui, sans-serif; color: #1c1c1c; background: #f5f6f7; margin: 0; }
  main { max-width: 72rem; margin: 0 auto; padding: 2rem 1.2rem 4rem; }
  h1 { font-size: 1.6rem; line-height: 1.3; margin: 0; }
  h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
  .verdict { border-left: .5rem solid; padding: 1rem 1.3rem; background: #fff; }
  .good { border-color: #0072B2; } .bad { border-color: #B30000; }
  section { background: #fff; border-radius: .5rem; padding: 1.2rem 1.4rem; margin-top: 1.4rem; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
  th, td { padding: .35rem .8rem; border-bottom: 1px solid #e2e2e2; text-align: left; }
  .n { text-align: right; }
  th { font-weight: 600; border-bottom: 2px solid #888; }
  code { background: #eef0f2; padding: .1rem .35rem; border-radius: .2rem; font-size: .88rem;
         overflow-wrap: anywhere; }
  details { margin-top: .5rem; } summary { cursor: pointer; }
  .harm { color: #B30000; font-weight: 600; }
  .note { color: #555; font-size: .9rem; }
  svg { width: 100%; min-width: 44rem; height: auto; display: block; }
</style>
<main>
<div class="verdict $mood"><h1>$verdict</h1>$caution</div>
$failures
<section><h2>Schedule by schedule</h2>
<p class="note">Bars are transactions by the commit log; the dark line below each is when a watching
reader got the epoch's records; red is where a fault was in effect.</p>
$schedules</section>
<section><h2>How long it took to get over them</h2>
<div class="wide"><table><tr><th></th><th class="n">cases</th><th class="n">p50</th>
<th class="n">p99</th><th class="n">longest</th></tr>
$durations</table>$spread</div></section>
<section><h2>Faults that were proved to have happened</h2>
<div class="wide"><table><tr><th>fault</th><th>what it does</th><th class="n">times</th></tr>
$faults</table></div></section>
</main>
</html>
""")


def write_page(outcomes: Sequence[ScheduleOutcome], path: Path) -> None:
    """Write the page."""
    verdict = verdict_of(outcomes)
    durations = durations_of(outcomes)
    lost = verdict.control_lost
    page = _PAGE.substitute(
        title="no anomaly" if verdict.is_good else "anomalies",
        mood="good" if verdict.is_good else "bad",
        verdict=escape(verdict.sentence()),
        caution=(
            f'<p class="harm">The broker lost {lost} acknowledged messages of the control workload '
            "as well: look there first.</p>"
            if lost
            else ""
        ),
        failures="".join(_failure(one) for one in outcomes if not one.is_good),
        faults="\n".join(_fault_row(name, n) for name, n in verdict.faults_fired.items()),
        durations="\n".join(_duration_row(name, durations[name]) for name in DURATIONS),
        spread=recovery_times(durations),
        schedules="\n".join(
            _schedule(one, is_open=n == 0 or not one.is_good) for n, one in enumerate(outcomes)
        ),
    )
    path.write_text(page, encoding="utf-8")


def _failure(outcome: ScheduleOutcome) -> str:
    rows = "".join(
        f"<tr><td>{found.number}</td><td class='harm'>{escape(found.name)}</td>"
        f"<td class='n'>{found.count:,}</td><td>{escape(found.examples[0])}</td></tr>"
        for found in outcome.anomalies
    )
    table = f'<div class="wide"><table>{rows}</table></div>' if rows else ""
    return (
        f"<section><h2>{escape(outcome.name)} failed</h2>"
        f'<p class="harm">{escape(outcome.complaint)}</p>{table}'
        f"<p>Run it again: <code>{escape(outcome.again)}</code></p></section>"
    )


def _fault_row(name: str, count: int) -> str:
    known = FAULTS.get(name) or CONDITIONS.get(name)
    text = known.summary.replace("`", "") if known is not None else ""
    return f"<tr><td>{escape(name)}</td><td>{escape(text)}</td><td class='n'>{count}</td></tr>"


def _duration_row(name: str, seconds: Sequence[float]) -> str:
    figures = Percentiles.of(seconds)
    cells = (
        [f"{value:.3g} s" for value in (figures.p50_s, figures.p99_s, figures.max_s)]
        if figures.count
        else ["not measured", "", ""]
    )
    shown = "".join(f"<td class='n'>{cell}</td>" for cell in cells)
    return f"<tr><td>{escape(DURATIONS[name])}</td><td class='n'>{figures.count}</td>{shown}</tr>"


def _schedule(outcome: ScheduleOutcome, *, is_open: bool) -> str:
    mark = "" if outcome.is_good else ' <span class="harm">failed</span>'
    faults = ", ".join(fault.name for fault in outcome.fired) or "no fault"
    samples = f"<div class='wide'>{resources(outcome)}</div>" if are_long(outcome.samples) else ""
    return (
        f"<details{' open' if is_open else ''}><summary>"
        f"{escape(outcome.name)}{mark}: {escape(faults)}; "
        f"{outcome.records_out:,} of {outcome.records_in:,} records readable, "
        f"{outcome.seconds:.0f} s</summary>{''.join(_remarks(outcome))}"
        f"<div class='wide'>{timeline(outcome)}</div>{samples}"
        f"<p class='note'><code>{escape(outcome.again)}</code></p></details>"
    )


def _remarks(outcome: ScheduleOutcome) -> Iterator[str]:
    """What a reader has to know to take the schedule for what it is worth."""
    if outcome.ended_by:
        yield f"<p>The job ended, as it has to: {escape(outcome.ended_by)}</p>"
    if outcome.left:
        what = ", ".join(f"{found.count:,} x {found.name}" for found in outcome.left)
        yield f"<p>The work of the fault itself, against which no sink can help: {what}</p>"
    for missed in outcome.missed:
        yield f"<p>Did not happen: {escape(missed)}</p>"
