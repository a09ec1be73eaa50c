"""Reports for machines: ``report.json``, and JUnit XML for CI systems."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np

from eos.chaos.checker.history import NO_LOG, AnomalyKind
from eos.chaos.report.outcome import ScheduleOutcome

# XML can't have them, not even escaped, and a driver's error may.
_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of durations, in seconds; all 0 if nothing was measured."""

    count: int
    p50_s: float
    p99_s: float
    max_s: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Percentiles:
        """Compute them for any number of durations."""
        values = list(seconds)
        if not values:
            return cls(0, 0.0, 0.0, 0.0)
        p50, p99 = (float(np.percentile(values, q)) for q in (50, 99))
        return cls(len(values), p50, p99, max(values))


DURATIONS = {
    "driver_restart_s": "driver started again until the next epoch was committed",
    "broker_restart_s": "broker ready again until the next epoch was committed",
    "failover_s": "part of a cluster hit until the next epoch was committed",
    "reader_stall_s": "epoch committed until a watching reader had all of it",
}


@dataclass(frozen=True)
class CampaignVerdict:
    """The totals of all schedules."""

    schedules: int
    good: int
    anomalies: dict[str, int]
    broke_off: int
    ended: int
    faults_due: int
    faults_fired: dict[str, int]
    conditions_due: int
    conditions_held: dict[str, int]
    records: int
    destroyed: int
    epochs: int
    control_lost: int
    grown: dict[str, float]
    doubts: list[str]
    without_log: int

    @property
    def is_good(self) -> bool:
        """Whether every schedule is good, and there is at least one; and a fault has hit if any was
        due, or else a condition has held."""
        return self.schedules > 0 and self.good == self.schedules and not self._missed_all

    @property
    def _missed_all(self) -> bool:
        if self.faults_due:
            return not self.faults_fired
        return self.conditions_due > 0 and not self.conditions_held

    def sentence(self) -> str:
        """The verdict in one line."""
        if not self.schedules:
            return "Nothing was run."
        if self.is_good:
            return f"No anomaly in {_many(self.schedules, 'schedule')}: {self._scope()}."
        if self.good == self.schedules:
            what = "fault has hit" if self.faults_due else "condition has held"
            return f"No {what}, which proves nothing: {self._scope()}."
        found = ", ".join(f"{count} x {name}" for name, count in self.anomalies.items())
        broke_off = f"{self.broke_off} did not finish" if self.broke_off else ""
        grown = ", ".join(f"{name} grew x {ratio:.2f}" for name, ratio in self.grown.items())
        what = "; ".join(filter(None, (found, broke_off, grown, *self.doubts)))
        return (
            f"{self.schedules - self.good} of {_many(self.schedules, 'schedule')} failed: {what}."
        )

    def _scope(self) -> str:
        # With its limits: faults that hit nothing and destroyed records belong to the verdict.
        fired, held = sum(self.faults_fired.values()), sum(self.conditions_held.values())
        missed, unproved = self.faults_due - fired, self.conditions_due - held
        under = f"under {_many(held, 'condition')}, " if held else ""
        parts = [
            f"{_many(fired, 'fault')} of {_many(len(self.faults_fired), 'kind')}, {under}"
            f"{self.epochs:,} epochs, {self.records:,} records, each readable exactly once",
            f"{_many(self.ended, 'job')} ended with the required error" if self.ended else "",
            f"{_many(self.destroyed, 'record')} destroyed by a fault itself"
            if self.destroyed
            else "",
            f"{_many(missed, 'fault')} hit nothing" if missed else "",
            f"{_many(unproved, 'condition')} without proof" if unproved else "",
            f"{_many(self.without_log, 'schedule')} {NO_LOG}" if self.without_log else "",
        ]
        return "; ".join(filter(None, parts))


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def verdict_of(outcomes: Sequence[ScheduleOutcome]) -> CampaignVerdict:
    """Add up the outcomes."""
    anomalies: Counter[str] = Counter()
    for outcome in outcomes:
        anomalies.update({found.name: found.count for found in outcome.anomalies})
    fired = Counter(fault.name for outcome in outcomes for fault in outcome.fired)
    held = Counter(name for outcome in outcomes for name in outcome.held)
    grown: dict[str, float] = {}
    for outcome in outcomes:
        for name, ratio in outcome.grown.items():
            grown[name] = max(ratio, grown.get(name, ratio))
    return CampaignVerdict(
        schedules=len(outcomes),
        good=sum(outcome.is_good for outcome in outcomes),
        anomalies=dict(anomalies),
        broke_off=sum(bool(outcome.failure) for outcome in outcomes),
        ended=sum(bool(outcome.ended_by) for outcome in outcomes),
        faults_due=sum(outcome.due for outcome in outcomes),
        faults_fired=dict(sorted(fired.items())),
        conditions_due=sum(len(outcome.met) for outcome in outcomes),
        conditions_held=dict(sorted(held.items())),
        records=sum(outcome.records_out for outcome in outcomes),
        destroyed=sum(outcome.destroyed for outcome in outcomes),
        epochs=sum(outcome.epochs_done for outcome in outcomes),
        control_lost=sum(outcome.control_lost for outcome in outcomes),
        grown=grown,
        doubts=[doubt for outcome in outcomes for doubt in outcome.doubts],
        without_log=sum(not outcome.has_log for outcome in outcomes),
    )


def durations_of(outcomes: Sequence[ScheduleOutcome]) -> dict[str, list[float]]:
    """All measured durations, by the names in ``DURATIONS``."""
    return {
        name: [seconds for outcome in outcomes for seconds in getattr(outcome, name)]
        for name in DURATIONS
    }


def write_json(outcomes: Sequence[ScheduleOutcome], path: Path) -> None:
    """``report.json``: verdict, durations, then each schedule."""
    verdict = verdict_of(outcomes)
    report: dict[str, Any] = {
        "is_good": verdict.is_good,
        "verdict": verdict.sentence(),
        **{key: value for key, value in vars(verdict).items() if key != "anomalies"},
        "anomalies": {kind.name.lower(): 0 for kind in AnomalyKind} | verdict.anomalies,
        "operations": dict(
            Counter(one.outcome for outcome in outcomes for one in outcome.operations)
        ),
        "durations": {
            name: vars(Percentiles.of(seconds)) for name, seconds in durations_of(outcomes).items()
        },
        "runs": [outcome.model_dump() for outcome in outcomes],
    }
    path.write_text(json.dumps(report, indent=1))


def write_junit(outcomes: Sequence[ScheduleOutcome], path: Path) -> None:
    """JUnit XML: a test case for each schedule; one that did not finish is an error."""
    kinds = ["" if one.is_good else _junit_kind(one) for one in outcomes]
    suite = ElementTree.Element(
        "testsuite",
        name="eos chaos",
        tests=str(len(outcomes)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        time=f"{sum(one.seconds for one in outcomes):.1f}",
    )
    for outcome, kind in zip(outcomes, kinds, strict=True):
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=outcome.workload,
            name=outcome.name,
            time=f"{outcome.seconds:.1f}",
        )
        if not outcome.has_log:
            ElementTree.SubElement(case, "system-out").text = f"checked {NO_LOG}"
        if not kind:
            continue
        message = _NO_XML.sub("\ufffd", outcome.complaint)
        broken = ElementTree.SubElement(case, kind, message=message)
        examples = [example for found in outcome.anomalies for example in found.examples]
        text = "\n".join([outcome.failure, *examples, outcome.again]).strip()
        broken.text = _NO_XML.sub("\ufffd", text)
    ElementTree.indent(suite)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _junit_kind(outcome: ScheduleOutcome) -> str:
    return "failure" if outcome.anomalies or not outcome.failure else "error"
