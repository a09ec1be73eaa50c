"""The figures of the table, and whether the demo has shown what it claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eos.protocol import LogRecord, State
from examples.flights.run import DemoRun

NAMES = {"today": "foreachPartition + pulsar-client", "eos": "eos PulsarSink"}
CAPTION = (
    "Rows out, duplicates, missing: what a fresh pulsar-client reader finds when all is quiet. "
    "Partly visible: a second reader, which watched all the time, got rows of the epoch before "
    "all of them were written. It needs a moment to read even what appears at once: that is the "
    "time it takes."
)


@dataclass(frozen=True)
class Line:
    """One line of the table, with a cell for each run; ``bad``: the cells that show harm."""

    label: str
    cells: tuple[str, ...]
    bad: tuple[bool, ...]


@dataclass(frozen=True)
class Conclusion:
    """What the demo has shown. ``anomalies``: what eos did wrong. ``unproved``: kills without
    effect, so that nothing was shown. Both empty: exactly-once."""

    anomalies: tuple[str, ...]
    unproved: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 exactly-once; 1 it is not; 3 nothing was shown."""
        return 1 if self.anomalies else 3 if self.unproved else 0

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.anomalies:
            return f"eos failed: {'; '.join(self.anomalies)}."
        if self.unproved:
            return f"Nothing was shown: {'; '.join(self.unproved)}."
        return "eos: every flight exactly once, under both kills."


def lines_of(runs: Sequence[DemoRun]) -> list[Line]:
    """The table's lines, for one run or two."""

    def line(label: str, cells: Sequence[str], bad: Sequence[bool] | None = None) -> Line:
        return Line(label, tuple(cells), tuple(bad or [False] * len(runs)))

    def counts(label: str, numbers: Sequence[int], ends: Sequence[str] | None = None) -> Line:
        texts = [f"{n:,}{end}" for n, end in zip(numbers, ends or [""] * len(runs), strict=True)]
        return line(label, texts, [n > 0 for n in numbers])

    verdicts = [run.verdict for run in runs]
    of = [f" of {run.flights.epochs}" for run in runs]
    lines = [
        line("rows in", [f"{v.rows_in:,}" for v in verdicts]),
        line(
            "rows out",
            [f"{v.rows_out:,}" for v in verdicts],
            [v.rows_out != v.rows_in for v in verdicts],
        ),
        counts("flights there twice or more", [len(v.duplicates) for v in verdicts]),
        counts("extra copies of them", [run.extra_copies for run in runs]),
        counts("flights missing", [len(v.missing) for v in verdicts]),
        counts("epochs partly visible", [len(run.early_epochs) for run in runs], of),
        line(
            "longest time an epoch was partly read", [f"{r.longest_window_s:.1f} s" for r in runs]
        ),
        line(
            "first epoch to last, restart included",
            [f"{r.ended_at - r.began_at:.0f} s" for r in runs],
        ),
    ]
    if any(v.invented for v in verdicts):
        lines.append(counts("messages never written", [len(v.invented) for v in verdicts]))
    return lines


def conclude(runs: Sequence[DemoRun]) -> Conclusion:
    """Judge the last of ``runs``, which is eos; of another one only that it was killed as well."""
    eos = runs[-1]
    unproved = [text for run in runs[:-1] for text in _missing_kills(run)]
    return Conclusion(tuple(_anomalies(eos)), tuple(unproved + _missing_kills(eos) + _idle(eos)))


def _anomalies(run: DemoRun) -> list[str]:
    verdict = run.verdict
    early = ", ".join(map(str, run.early_epochs))
    found = [
        (verdict.duplicates, f"{len(verdict.duplicates):,} flights are there more than once"),
        (verdict.missing, f"{len(verdict.missing):,} flights are missing"),
        (verdict.torn, f"epochs {', '.join(verdict.torn)} are there in part"),
        (verdict.invented, f"{len(verdict.invented):,} messages were never written"),
        (early, f"epochs {early} were readable before they were whole"),
        (
            len({flight for _, flight in run.seen}) < len(run.seen),
            "the watching reader got a flight twice",
        ),
    ]
    for epoch in range(run.flights.epochs):
        committed = [r.records for r in run.history(epoch) if r.state is State.COMMITTED]
        if committed != [len(run.flights.ids(epoch))]:
            found.append((True, f"the log says {committed} rows were committed in epoch {epoch}"))
    return [text for is_so, text in found if is_so]


def _missing_kills(run: DemoRun) -> list[str]:
    killed = {kill.what for kill in run.kills}
    return [
        f"no {what} was killed in mid-epoch ({NAMES[run.way]})"
        for what in ("executor", "driver")
        if what not in killed
    ]


def _idle(eos: DemoRun) -> list[str]:
    """Kills of eos that did not have the effect that they were made for."""
    found = []
    executor, driver = eos.last_kill("executor"), eos.last_kill("driver")
    if executor and not _poisoned(eos, executor.epoch):
        found.append("no transaction was poisoned by the executor's death")
    if driver and _resolved(eos, driver.epoch) is None:
        found.append("the killed driver's prepared transaction was not committed by the next one")
    return found


def evidence(eos: DemoRun) -> list[str]:
    """What the commit log says about the epochs that the kills met, in sentences."""
    lines = []
    executor, driver = eos.last_kill("executor"), eos.last_kill("driver")
    if executor and (record := _poisoned(eos, executor.epoch)):
        lines.append(
            f"epoch {executor.epoch}: the broker had {executor.sent:,} of its rows when the "
            f"executor was killed. Its {record.label} was aborted, and the epoch written "
            "again in a new one. "
            f"Reason in the log: {record.reason}"
        )
    if driver and (pair := _resolved(eos, driver.epoch)):
        prepared, committed = pair
        assert prepared.written_at is not None
        assert committed.written_at is not None
        waited_s = (committed.written_at - prepared.written_at).total_seconds()
        lines.append(
            f"epoch {driver.epoch}: the broker had all {driver.sent:,} rows, and PREPARED was in "
            f"the log, when the driver was killed (run {prepared.run_id[:8]}). The next driver "
            f"(run {committed.run_id[:8]}) committed the same {committed.label}, "
            f"{waited_s:.0f} s later, without writing it again"
        )
    return lines


def _poisoned(eos: DemoRun, epoch: int) -> LogRecord | None:
    """The attempt that an executor's death ended."""
    aborted = [record for record in eos.aborted() if record.epoch == str(epoch)]
    return next((r for r in aborted if str(r.reason).startswith("POISONED")), None)


def _resolved(eos: DemoRun, epoch: int) -> tuple[LogRecord, LogRecord] | None:
    """PREPARED by one run and COMMITTED by another, of the epoch's only transaction."""
    history = eos.history(epoch)
    by_state = {record.state: record for record in history}
    if sum(record.state is State.OPEN for record in history) != 1:
        return None  # It was written again.
    prepared, committed = by_state.get(State.PREPARED), by_state.get(State.COMMITTED)
    if prepared is None or committed is None or prepared.label != committed.label:
        return None
    return None if prepared.run_id == committed.run_id else (prepared, committed)
