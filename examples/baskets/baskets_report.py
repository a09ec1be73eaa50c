"""The report of a run: table, verdict, picture. Pure."""

from __future__ import annotations

from typing import Final

from eos.protocol import State
from examples._demo.demo_command import Conclusion, DemoReport, ReportLine
from examples._demo.epoch_chart import (
    BLUE,
    Curve,
    EpochChart,
    KillMark,
    as_steps,
    logged_intervals,
    outages,
)
from examples.baskets.baskets_run import VICTIMS, BasketsRun
from examples.baskets.window_verdict import BasketVerdict, OutputVerdict

_CAPTION: Final = (
    "Messages and rows: counted by plain readers (pulsar-client, deltalake) after the end. Extra: "
    "more rows than one for a window. Wrong: a row whose baskets or messages differ from the data."
)
_PICTURE_CAPTION: Final = (
    "Above, each epoch's attempts, from the commit log. Below, the entries of the input topic that "
    "the query had not acknowledged."
)


def report_on_baskets(run: BasketsRun, verdict: BasketVerdict) -> DemoReport:
    """Return the report."""
    return DemoReport(
        title="baskets under kills",
        conclusion=conclude_baskets(run, verdict),
        summary=(
            f"A producer sent {len(run.year.baskets):,} baskets to a topic in transactions, some "
            "of them twice, and aborted other transactions. Spark counted the baskets of each "
            "store and day, and wrote the counts to a topic and to a Delta table, all or nothing, "
            "on a cluster of two brokers. An executor, the driver and the broker of the output "
            "topic were killed. Each kill was a SIGKILL."
        ),
        table_title="baskets, from topic to topic and table, under kills",
        columns=("result",),
        lines=tuple(figures(run, verdict)),
        caption=_CAPTION,
        picture_title="Epoch by epoch",
        picture_caption=_PICTURE_CAPTION,
        evidence=tuple(_evidence(run)),
    )


def conclude_baskets(run: BasketsRun, verdict: BasketVerdict) -> Conclusion:
    """Judge a run: its outputs, and whether all planned kills, duplicates and aborts happened."""
    unproved = [f"no {what} was killed" for what in VICTIMS if run.kill_of(what) is None]
    if not verdict.duplicates:
        unproved.append("no basket was sent twice")
    if not run.aborted:
        unproved.append("no transaction of the producer was aborted")
    success = "eos: every window once in topic and table, with the right count, under all kills."
    return Conclusion(verdict.anomalies, tuple(unproved), success)


def figures(run: BasketsRun, verdict: BasketVerdict) -> list[ReportLine]:
    """Return the lines of the table."""
    repeated = f", {run.repeated} sent again" if run.repeated else ""
    lines = [
        _line("baskets in the data set", f"{len(run.year.baskets):,}"),
        _line("messages in the input topic", f"{verdict.messages:,}", bad=verdict.unsent > 0),
        _line("duplicates among them", f"{verdict.duplicates:,}"),
        _line("the producer's transactions", f"{run.aborted} aborted{repeated}"),
        _line("readable messages of aborted ones", f"{verdict.fakes:,}", bad=verdict.fakes > 0),
        _line("windows (one store, one day)", f"{verdict.windows:,}"),
        _rows("rows in the output topic", verdict.topic),
        _rows("rows in the Delta table", verdict.table),
        _line("rows in only one of both", f"{verdict.differing:,}", bad=verdict.differing > 0),
        _line("rows dropped as late", f"{run.late:,}"),
        _line("epochs committed, attempts aborted", _epochs(run)),
        _line("driver programs", _drivers(run)),
    ]
    for kill in run.kills:
        seconds = run.next_commit_s(kill)
        waited = "none" if seconds is None else f"{seconds:.1f} s"
        lines.append(_line(f"{kill.what} killed, until the next commit", waited))
    lines.append(_line("first epoch to last", f"{run.ended_at - run.began_at:.0f} s"))
    return lines


def _line(label: str, cell: str, *, bad: bool = False) -> ReportLine:
    return ReportLine(label, (cell,), (bad,))


def _rows(label: str, output: OutputVerdict) -> ReportLine:
    counts = (output.extra, output.missing, output.wrong)
    text = f"{output.rows:,}: {counts[0]:,} extra, {counts[1]:,} missing, {counts[2]:,} wrong"
    return _line(label, text, bad=any(counts))


def _epochs(run: BasketsRun) -> str:
    return f"{run.in_state(State.COMMITTED)}, {run.in_state(State.ABORTED)}"


def _drivers(run: BasketsRun) -> str:
    started = sum(event.event == "started" for event in run.events)
    return f"{started}, {run.unplanned} ended with an error"


def _evidence(run: BasketsRun) -> list[str]:
    found = []
    for kill in run.kills:
        records = [record for record in run.records if record.epoch == str(kill.epoch)]
        states = ", ".join(record.state.name for record in records)
        found.append(f"{kill.text}. The epoch's records: {states or 'none'}")
    return found


def chart_of_baskets(run: BasketsRun, verdict: BasketVerdict) -> EpochChart:
    """Return the data of the picture."""
    outputs = (verdict.topic, verdict.table)
    times_s, entries = as_steps((at - run.began_at, float(count)) for at, count in run.backlog)
    return EpochChart(
        title=(
            f"{len(run.year.baskets):,} baskets, {verdict.windows:,} windows, in a topic and a "
            f"table:\n{sum(one.extra for one in outputs):,} extra, "
            f"{sum(one.missing for one in outputs):,} missing, "
            f"{sum(one.wrong for one in outputs):,} wrong"
        ),
        intervals=logged_intervals(run.records, run.began_at),
        kills=[KillMark(kill.at - run.began_at, f"{kill.what} killed") for kill in run.kills],
        outages=outages(
            run.events,
            [event.at for event in run.events if event.event == "died"],
            run.began_at,
            run.ended_at,
        ),
        end_s=run.ended_at - run.began_at,
        curves=[Curve("backlog of the input", BLUE, times_s, entries, [0.0] * len(entries))],
        curves_label="backlog of the input (entries)",
    )
