"""Runs many schedules one after the other; resumable, and shrinks failures."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Final

from eos.chaos._run import ScheduleRun, needs_store
from eos.chaos.cluster.driver_process import logs_in
from eos.chaos.cluster.target import PulsarHolder, logs_of
from eos.chaos.faults import FAULTS
from eos.chaos.planning import draw, everything, is_empty, only, soak, steady_soak
from eos.chaos.report.outcome import ScheduleOutcome, outcome_of, schedule_of
from eos.chaos.schedule import Schedule

SOAK_CONFIG: Final = {
    # A ledger is deleted as a whole, by default after four hours: too late for a soak to show.
    "managedLedgerMinLedgerRolloverTimeMinutes": "1",
    "managedLedgerMaxLedgerRolloverTimeMinutes": "4",
}
_PACKAGES: Final = {"site-packages", "dist-packages"}
_HANGS: Final = "TimeoutError: "
_TRIES: Final = 2  # runs of a smaller schedule: timing varies, so it may pass once and still fail

Tell = Callable[[str], None]


@dataclass(frozen=True)
class CampaignEntry:
    """A schedule of a campaign."""

    name: str
    schedule: Schedule
    words: tuple[str, ...]  # the options of ``eos chaos run`` for only this one
    minutes: float | None = None
    is_alone: bool = False  # for a single fault, which must happen


def of_soak(
    seed: int, minutes: float, brokers: int = 1, rows: int | None = None
) -> Iterator[CampaignEntry]:
    """One long run whose driver must not end; ``rows``: of a steady input."""
    words = ("--soak-minutes", f"{minutes:g}", "--seed", str(seed), *_on(brokers))
    if rows is None:
        schedule = soak(seed, minutes=minutes, brokers=brokers)
        yield CampaignEntry(f"soak-{seed}", schedule, words, minutes)
    else:
        schedule = steady_soak(seed, rows=rows, minutes=round(minutes), brokers=brokers)
        words += ("--soak-rows", str(rows))
        yield CampaignEntry(f"soak-{seed}-{rows}", schedule, words, minutes)


def of_seeds(
    seeds: Sequence[int],
    faults: Sequence[str],
    epochs: int,
    always: Sequence[str] = (),
    brokers: int = 1,
) -> Iterator[CampaignEntry]:
    """The random schedules of these seeds, without empty ones. ``always``: conditions of each."""
    holding = ("--always", ",".join(always)) if always else ()
    for seed in seeds:
        words = ("--seed", str(seed), "--schedules", "1", "--epochs", str(epochs), *holding)
        schedule = draw(seed, faults, epochs=epochs, always=always, brokers=brokers)
        if is_empty(schedule, faults):  # the condition that its faults need was not drawn
            continue
        yield CampaignEntry(
            f"seed-{seed}", schedule, words + _choice(faults, brokers) + _on(brokers)
        )


def of_singles(faults: Sequence[str], brokers: int = 1) -> Iterator[CampaignEntry]:
    """A schedule for each fault alone."""
    for name in faults:
        keyed = name not in FAULTS or not FAULTS[name].needs_keyless
        words = ("--singles", "--faults", name, *_on(brokers))
        schedule = only(name, keyed=keyed, brokers=brokers)
        yield CampaignEntry(f"only-{name}", schedule, words, is_alone=True)


def of_pairs(faults: Sequence[str], brokers: int = 1) -> Iterator[CampaignEntry]:
    """A schedule for each ordered pair of faults."""
    for first, then in permutations(faults, 2):
        words = ("--pairs", "--faults", f"{first},{then}", *_on(brokers))
        yield CampaignEntry(f"{first}-then-{then}", only(first, then, brokers=brokers), words)


# Only options that differ from the defaults: people read the command.
def _on(brokers: int) -> tuple[str, ...]:
    return () if brokers == 1 else ("--brokers", str(brokers))


def _choice(faults: Sequence[str], brokers: int) -> tuple[str, ...]:
    return () if list(faults) == everything(brokers) else ("--faults", ",".join(faults))


@dataclass(frozen=True)
class Campaign:
    """The settings of a campaign."""

    workload: str
    entries: Iterable[CampaignEntry]  # may be endless
    report: Path  # folder for schedules/<name>.json and the logs of failures
    keep: Sequence[int] | None = None  # only these faults of each schedule, by number from 1
    shrink: bool = True  # find the fewest faults that still fail
    pulsar_version: str | None = None

    @cached_property
    def made_by(self) -> str:
        """The code of eos and of the workload's project, as a hash, and PySpark and Pulsar."""
        import pyspark  # not at the top: without it, ``eos chaos`` says what to install

        code = _code_of("eos", self.workload.partition(":")[0].partition(".")[0])
        pulsar = self.pulsar_version or "as by default"
        return f"code {code}, PySpark {pyspark.__version__}, Pulsar {pulsar}"

    def path(self, name: str) -> Path:
        """The file with the outcome of a schedule."""
        return self.report / "schedules" / f"{name}.json"

    def schedule(self, entry: CampaignEntry) -> Schedule:
        """The schedule to run for an entry; IndexError if it lacks a fault to keep."""
        return entry.schedule if self.keep is None else entry.schedule.keep(self.keep)

    def maybe_done(self, entry: CampaignEntry) -> ScheduleOutcome | None:
        """The stored outcome, or None. Those of failed runs, and of other schedules, code or
        versions of Pulsar don't count."""
        path = self.path(entry.name)
        outcome = ScheduleOutcome.read(path) if path.exists() else None
        # A failed run proves nothing, so it is repeated; one with anomalies is a result.
        if outcome is None or outcome.failure or outcome.workload != self.workload:
            return None
        if outcome.made_by != self.made_by:
            return None
        return outcome if schedule_of(outcome) == self.schedule(entry) else None

    def command(self, entry: CampaignEntry, outcome: ScheduleOutcome) -> str:
        """The command that runs a schedule again, with the fewest known faults."""
        words = ["eos", "chaos", "run", *entry.words, "--workload", self.workload]
        if self.pulsar_version is not None:
            words += ["--pulsar-version", self.pulsar_version]
        keep = outcome.shrunk_to or self.keep
        if keep:
            words += ["--keep", ",".join(map(str, keep))]
        return " ".join(words)


def run_all(
    plan: Campaign,
    *,
    tell: Tell,
    on_outcome: Callable[[ScheduleOutcome, bool], None],  # the bool: of an earlier run
    until: float | None = None,  # no schedule begins after this time.monotonic()
) -> None:
    """Run the schedules without a stored outcome."""
    plan.path("").parent.mkdir(parents=True, exist_ok=True)
    with _Runner(plan, tell) as runner:
        for entry in plan.entries:
            stored = plan.maybe_done(entry)
            if stored is None and until is not None and time.monotonic() > until:
                return
            on_outcome(stored or runner.run(entry), stored is not None)


class _Runner:
    # One broker or cluster for all schedules, replaced after a failure.

    def __init__(self, plan: Campaign, tell: Tell) -> None:
        self._plan = plan
        self._tell = tell
        self._scratch = Path(tempfile.mkdtemp(prefix="eos-chaos-"))
        self._pulsar = PulsarHolder(plan.pulsar_version)

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._pulsar.close()
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def run(self, entry: CampaignEntry) -> ScheduleOutcome:
        plan, schedule = self._plan, self._plan.schedule(entry)
        log = plan.path(entry.name).with_suffix(".driver.log")
        outcome = self._run_once(schedule, log=log, minutes=entry.minutes)
        for found in outcome.anomalies:
            self._tell(f"{entry.name}: {found.count} x {found.name}: {found.examples[0]}")
        # In a random schedule a fault may come too late; alone, its hit is the point.
        missed = outcome.missed + outcome.unproved
        if entry.is_alone and outcome.is_good and missed:
            failure = f"{'; '.join(missed)}, which proves nothing"
            outcome = outcome.model_copy(update={"failure": failure})
        can_shrink = plan.shrink and entry.minutes is None and len(schedule.faults) > 1
        # One that hangs takes minutes each time.
        if can_shrink and not outcome.is_good and not outcome.failure.startswith(_HANGS):
            outcome = self._shrunk(schedule, outcome)
        outcome = outcome.model_copy(update={"name": entry.name})
        outcome = outcome.model_copy(update={"again": plan.command(entry, outcome)})
        outcome.write(plan.path(entry.name))
        return outcome

    def _run_once(
        self, schedule: Schedule, *, log: Path | None = None, minutes: float | None = None
    ) -> ScheduleOutcome:
        plan = self._plan
        config = SOAK_CONFIG if schedule.input_rows else None
        broker = self._pulsar.get(schedule.brokers, config, is_tiered=needs_store(schedule))
        folder = Path(tempfile.mkdtemp(prefix=f"{schedule.seed}-", dir=self._scratch))
        run = ScheduleRun(
            schedule,
            plan.workload,
            broker,
            folder,
            tell=self._tell,
            minutes=minutes,
            store=self._pulsar.store,
        )
        outcome = outcome_of(run.go(), plan.workload, made_by=plan.made_by, minutes=minutes)
        if not outcome.is_good:
            if log is not None:
                log.write_bytes(b"".join(path.read_bytes() for path in logs_in(folder)))
                brokers = log.with_name(log.name.replace(".driver.log", ".broker.log"))
                brokers.write_text(logs_of(broker))
            self._pulsar.discard()  # the failure may be the broker's, and would hit the next ones
        shutil.rmtree(folder, ignore_errors=True)
        return outcome

    def _shrunk(self, schedule: Schedule, outcome: ScheduleOutcome) -> ScheduleOutcome:
        """Leave out faults one by one, as long as the schedule still fails in the same way."""
        wanted = _failures(outcome)
        self._tell("shrinking: without any fault")
        if _failures(self._run_once(schedule.keep([]))) & wanted:
            return outcome.model_copy(update={"shrunk_to": []})
        numbers = list(range(1, len(schedule.faults) + 1))
        for number in list(numbers):
            fewer = [other for other in numbers if other != number]
            self._tell(f"shrinking: without fault {number} of {len(schedule.faults)}")
            for _ in range(_TRIES):
                again = self._run_once(schedule.keep(fewer))
                if _failures(again) & wanted:  # another failure would be another schedule's
                    numbers = fewer
                    break
        # The command's numbers are those of the whole schedule.
        kept = sorted(self._plan.keep or range(1, len(schedule.faults) + 1))
        return outcome.model_copy(update={"shrunk_to": [kept[number - 1] for number in numbers]})


def _failures(outcome: ScheduleOutcome) -> set[str]:
    failed = {"failed"} if outcome.failure else set()
    return {anomaly.name for anomaly in outcome.anomalies} | failed | outcome.grown.keys()


def _code_of(*names: str) -> str:
    found = hashlib.sha256()
    for name, module in zip(names, map(importlib.import_module, names), strict=True):
        roots = [Path(root) for root in getattr(module, "__path__", ())]
        file = getattr(module, "__file__", None)  # None for a folder without __init__.py
        parent = roots[0].parent if roots else Path(file or "").parent
        if name != "eos" and not _PACKAGES & set(parent.parts):
            roots = [parent]  # a job may import other modules of its project
        elif file:
            found.update(Path(file).read_bytes())
        for root in roots:
            # In a checkout, folders of eos are links.
            for folder, folders, files in os.walk(root, followlinks=name == "eos"):
                folders[:] = sorted(one for one in folders if _has_code(Path(folder, one)))
                for one in sorted(one for one in files if one.endswith(".py")):
                    found.update(Path(folder, one).read_bytes())
    return found.hexdigest()[:16]


def _has_code(folder: Path) -> bool:
    # Of a project: no virtual environment.
    return not folder.name.startswith(".") and not (folder / "pyvenv.cfg").exists()
