"""The report of the two runs: table, verdict, evidence from the commit log, picture. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from eos.protocol import LogRecord, State
from examples._demo.demo_command import Conclusion, DemoReport, ReportLine
from examples._demo.epoch_chart import (
    BLUE,
    ORANGE,
    AttemptPhase,
    Curve,
    EpochChart,
    Interval,
    KillMark,
    ReadInterval,
    logged_intervals,
    outages,
)
from examples.flights.flights_run import FlightsRun

NAMES: Final = {"pulsar_client": "foreachPartition + pulsar-client", "eos": "eos PulsarSink"}
_CAPTION: Final = (
    "Rows out, duplicates, missing: counted by a new pulsar-client reader after the job's end. "
    "Partly visible: a second reader, which read all the time, had rows of the epoch before all of "
    "them were written. Reading rows that appear at once takes a moment too: for eos, that is the "
    "time shown."
)
_PICTURE_CAPTION: Final = (
    "Above, each epoch: a bar while it was written, and below the bar the time in which its rows "
    "reached a reader that read all the time. Below, all rows that this reader had received."
)


def report_on(runs: Sequence[FlightsRun]) -> DemoReport:
    """Return the report; the last of ``runs`` is that of eos."""
    return DemoReport(
        title="flights under kills",
        conclusion=conclude(runs),
        summary=(
            f"Spark Structured Streaming wrote {runs[-1].flights.rows:,} flights to a Pulsar topic "
            "with four partitions. After a third of the epochs an executor was killed while it "
            "wrote; after two thirds the driver was killed at the worst moment, and started again "
            f"on the same checkpoint. Each kill was a SIGKILL.{_comparison(runs[:-1])}"
        ),
        table_title="the same job, under the same kills",
        columns=tuple(NAMES[run.way] for run in runs),
        lines=tuple(lines_of(runs)),
        caption=_CAPTION,
        picture_title="Epoch by epoch",
        picture_caption=_PICTURE_CAPTION,
        evidence=tuple(evidence(runs[-1])),
    )


def _comparison(others: Sequence[FlightsRun]) -> str:
    return "".join(
        f" Written in the usual way ({NAMES[run.way]}), the topic ended with "
        f"{run.duplicate_rows:,} duplicate rows and {len(run.tally.missing):,} missing rows."
        for run in others
    )


def lines_of(runs: Sequence[FlightsRun]) -> list[ReportLine]:
    """Return the lines of the table, for one run or two."""

    def line(label: str, cells: Sequence[str], bad: Sequence[bool] | None = None) -> ReportLine:
        return ReportLine(label, tuple(cells), tuple(bad or [False] * len(runs)))

    def counts(label: str, numbers: Sequence[int], of: Sequence[str] | None = None) -> ReportLine:
        texts = [f"{n:,}{end}" for n, end in zip(numbers, of or [""] * len(runs), strict=True)]
        return line(label, texts, [n > 0 for n in numbers])

    tallies = [run.tally for run in runs]
    of = [f" of {run.flights.epochs}" for run in runs]
    lines = [
        line("rows in", [f"{one.rows_in:,}" for one in tallies]),
        line(
            "rows out",
            [f"{one.rows_out:,}" for one in tallies],
            [one.rows_out != one.rows_in for one in tallies],
        ),
        counts("duplicate rows", [run.duplicate_rows for run in runs]),
        counts("flights that have duplicates", [len(one.duplicates) for one in tallies]),
        counts("missing flights", [len(one.missing) for one in tallies]),
        counts("epochs partly visible", [len(run.partly_visible) for run in runs], of),
        line("an epoch partly read, at most", [f"{run.longest_window_s:.1f} s" for run in runs]),
        line(
            "first epoch to last, restart included",
            [f"{run.ended_at - run.began_at:.0f} s" for run in runs],
        ),
    ]
    if any(one.unknown for one in tallies):
        lines.append(counts("messages never written", [len(one.unknown) for one in tallies]))
    return lines


def conclude(runs: Sequence[FlightsRun]) -> Conclusion:
    """Judge the last of ``runs``, which is eos; another one only has to have had its kills."""
    eos = runs[-1]
    unproved = [text for run in runs[:-1] for text in _missing_kills(run)]
    unproved += _missing_kills(eos) + _kills_without_effect(eos)
    success = "eos: every flight exactly once, under both kills."
    return Conclusion(tuple(_anomalies(eos)), tuple(unproved), success)


def _anomalies(run: FlightsRun) -> list[str]:
    counted = run.tally
    early = ", ".join(map(str, run.partly_visible))
    found = [
        (counted.duplicates, f"{len(counted.duplicates):,} flights have duplicates"),
        (counted.missing, f"{len(counted.missing):,} flights are missing"),
        (counted.incomplete, f"epochs {', '.join(counted.incomplete)} are incomplete"),
        (counted.unknown, f"{len(counted.unknown):,} messages were never written"),
        (early, f"epochs {early} were readable before they were complete"),
        (
            len({flight for _, flight in run.seen}) < len(run.seen),
            "the reader that read all the time received a flight twice",
        ),
    ]
    for epoch in range(run.flights.epochs):
        committed = [r.records for r in run.history(epoch) if r.state is State.COMMITTED]
        if committed != [len(run.flights.ids(epoch))]:
            found.append((True, f"the log says {committed} rows were committed in epoch {epoch}"))
    return [text for is_so, text in found if is_so]


def _missing_kills(run: FlightsRun) -> list[str]:
    killed = {kill.what for kill in run.kills}
    return [
        f"no {what} was killed during an epoch ({NAMES[run.way]})"
        for what in ("executor", "driver")
        if what not in killed
    ]


def _kills_without_effect(eos: FlightsRun) -> list[str]:
    found = []
    executor, driver = eos.last_kill("executor"), eos.last_kill("driver")
    if executor and not _poisoned(eos, executor.epoch):
        found.append("the executor's death poisoned no transaction")
    if driver and _resolved(eos, driver.epoch) is None:
        found.append("the killed driver's prepared transaction was not committed by the next one")
    return found


def evidence(eos: FlightsRun) -> list[str]:
    """Return the commit log's evidence on the killed epochs, in sentences without a full stop."""
    lines = []
    executor, driver = eos.last_kill("executor"), eos.last_kill("driver")
    if executor and (record := _poisoned(eos, executor.epoch)):
        lines.append(
            f"epoch {executor.epoch}: the broker had {executor.sent:,} of its rows when the "
            f"executor was killed. Its {record.label} was aborted, and the epoch was written "
            f"again in a new one. Reason in the log: {record.reason}"
        )
    if driver and (pair := _resolved(eos, driver.epoch)):
        prepared, committed = pair
        assert prepared.written_at is not None
        assert committed.written_at is not None
        waited_s = (committed.written_at - prepared.written_at).total_seconds()
        lines.append(
            f"epoch {driver.epoch}: the broker had all {driver.sent:,} rows, and the log had "
            f"PREPARED, when the driver was killed (run {prepared.run_id[:8]}). The next driver "
            f"(run {committed.run_id[:8]}) committed the same {committed.label}, "
            f"{waited_s:.0f} s later, without writing it again"
        )
    return lines


def _poisoned(eos: FlightsRun, epoch: int) -> LogRecord | None:
    aborted = [record for record in eos.aborted() if record.epoch == str(epoch)]
    return next((r for r in aborted if str(r.reason).startswith("POISONED")), None)


def _resolved(eos: FlightsRun, epoch: int) -> tuple[LogRecord, LogRecord] | None:
    # PREPARED by one run and COMMITTED by another, of the epoch's only transaction: the next driver
    # finished it without writing the rows again.
    history = eos.history(epoch)
    by_state = {record.state: record for record in history}
    if sum(record.state is State.OPEN for record in history) != 1:
        return None  # It was written again.
    prepared, committed = by_state.get(State.PREPARED), by_state.get(State.COMMITTED)
    if prepared is None or committed is None or prepared.label != committed.label:
        return None
    return None if prepared.run_id == committed.run_id else (prepared, committed)


# --- the picture -------------------------------------------------------------------------------


def chart_of(run: FlightsRun) -> EpochChart:
    """Return the data of a run's picture."""
    last_seen = run.seen[-1][0] if run.seen else run.ended_at
    times_s, flights, rows = received(run)
    curves = [Curve("flights, each counted once", BLUE, times_s, flights)]
    if run.duplicate_rows:
        curves.append(Curve("duplicates of flights that it has", ORANGE, times_s, rows, flights))
    return EpochChart(
        title=(
            f"{NAMES[run.way]}\n{run.duplicate_rows:,} duplicate rows, "
            f"{len(run.tally.missing):,} missing, "
            f"{len(run.partly_visible)} of {run.flights.epochs} epochs partly visible"
        ),
        intervals=intervals_of(run),
        kills=[
            KillMark(
                kill.at - run.began_at,
                f"{kill.what} killed" if kill is run.last_kill(kill.what) else "",
            )
            for kill in run.kills
        ],
        outages=outages(
            run.events,
            [kill.at for kill in run.kills if kill.what == "driver"],
            run.began_at,
            run.ended_at,
        ),
        end_s=max(run.ended_at, last_seen) - run.began_at,
        curves=curves,
        curves_label="rows that a reader has (thousands)",
        reads=[
            ReadInterval(epoch, window.first - run.began_at, window.complete - run.began_at)
            for epoch, window in run.windows.items()
        ],
        limit=(run.flights.rows / 1000, f"{run.flights.rows:,} flights went in"),
        total=(f"{len(run.drained):,} rows came out", ORANGE if run.duplicate_rows else BLUE),
    )


def intervals_of(run: FlightsRun) -> list[Interval]:
    """Return all attempts: from the commit log, or from the job's events if it has no log."""
    if run.way == "eos":
        return logged_intervals(run.records, run.began_at)
    found: list[Interval] = []
    begun_s = 0.0
    last = {event.epoch: event.at for event in run.events if event.event == "end"}
    for event in run.events:
        if event.event == "begin":
            begun_s = event.at - run.began_at
        elif event.event == "end":
            is_last = event.at == last[event.epoch]
            phase = AttemptPhase.WRITTEN if is_last else AttemptPhase.REPEATED
            found.append(Interval(event.epoch, begun_s, event.at - run.began_at, phase))
    return found


def received(
    run: FlightsRun, *, step_s: float = 0.05
) -> tuple[list[float], list[float], list[float]]:
    """Return the watching reader's totals over time.

    Times in seconds, thousands of flights, thousands of rows with all duplicates; a step for each
    ``step_s`` in which something arrived.
    """
    times, flights, rows = [0.0], [0.0], [0.0]
    known: set[int] = set()
    for index, (at, flight) in enumerate(run.seen, start=1):
        at_s = at - run.began_at
        if at_s - times[-1] >= step_s:
            times += [at_s, at_s]
            flights += [flights[-1], flights[-1]]
            rows += [rows[-1], rows[-1]]
        known.add(flight)
        flights[-1], rows[-1] = len(known) / 1000, index / 1000
    return times, flights, rows
