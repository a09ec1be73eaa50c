"""The stored outcome of a schedule: a JSON file, for resuming campaigns and for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from eos.chaos._run import Result
from eos.chaos.checker.history import Anomaly, AnomalyKind, RunHistory, View
from eos.chaos.observers.resources import Sample, grown, unmeasured
from eos.chaos.schedule import Schedule
from eos.errors import ConfigurationError

_EXACT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_EXACT)
class FaultOutcome:
    """A fault that was due. ``hit`` is its proof, "" if it did not happen, with the reason in
    ``error``. Times are seconds since the schedule began."""

    name: str
    epoch: int
    began_s: float
    healed_s: float
    hit: str
    error: str = ""


@dataclass(frozen=True, config=_EXACT)
class AnomalyOutcome:
    """The cases of one kind of anomaly."""

    number: int
    name: str
    count: int
    examples: list[str]


@dataclass(frozen=True, config=_EXACT)
class OperationOutcome:
    """A driver of the driver, or a fault, with how it ended: ok, fail or unknown."""

    name: str
    began_s: float
    ended_s: float
    outcome: str
    detail: str


@dataclass(frozen=True, config=_EXACT)
class AttemptOutcome:
    """A transaction in the commit log: when it was opened, and how and when it ended."""

    epoch: str
    attempt: int
    began_s: float
    ended_s: float
    state: str


@dataclass(frozen=True, config=_EXACT)
class EpochView:
    """When a watching reader received the first and the last record of an epoch."""

    epoch: str
    first_s: float
    last_s: float


class ScheduleOutcome(BaseModel, extra="forbid", frozen=True):
    """A schedule and its results; fields of the same name are those of ``Result``."""

    name: str = ""  # in its campaign
    again: str = ""  # the command that repeats it
    schedule: dict[str, object]
    workload: str
    made_by: str = ""  # the code and the Pulsar that ran it
    minutes: float | None = None  # of a soak
    seconds: float
    failure: str
    ended_by: str = ""
    anomalies: list[AnomalyOutcome]
    left: list[AnomalyOutcome]
    faults: list[FaultOutcome]
    met: dict[str, str] = {}
    operations: list[OperationOutcome]
    attempts: list[AttemptOutcome]
    views: list[EpochView]
    records_in: int
    records_out: int
    epochs_done: int
    control_lost: int
    control_unknown: int
    driver_restart_s: list[float]
    broker_restart_s: list[float]
    failover_s: list[float] = []
    reader_stall_s: list[float]
    samples: list[Sample] = []
    has_log: bool = True  # or some checks were not made
    # The fewest faults that still fail, by number from 1 in the whole schedule; None if not shrunk.
    shrunk_to: list[int] | None = None

    @property
    def is_good(self) -> bool:
        """Whether it ended, and nothing is wrong."""
        return not self.complaint

    @property
    def complaint(self) -> str:
        """Everything that is wrong, in one line; "" if nothing is."""
        found = [f"{anomaly.count} x {anomaly.name}" for anomaly in self.anomalies]
        more = [f"{name} grew x {ratio:.2f}" for name, ratio in self.grown.items()]
        alone = "fails without any fault" if self.shrunk_to == [] else ""
        parts = (", ".join(found), self.failure, ", ".join(more), ", ".join(self.doubts), alone)
        return "; ".join(filter(None, parts))

    @property
    def destroyed(self) -> int:
        """Number of committed records that the faults themselves deleted."""
        lost = AnomalyKind.LOST_WRITE.name.lower()
        return sum(found.count for found in self.left if found.name == lost)

    @property
    def due(self) -> int:
        """Number of faults that were due."""
        return len(self.fired) + len(self.missed)

    @property
    def missed(self) -> list[str]:
        """The faults that were due but did not happen, each with the reason."""
        begun = [
            f"{fault.name}: {fault.error or 'there was nothing to hit'}"
            for fault in self.faults
            if not fault.hit
        ]
        later = schedule_of(self).faults[len(self.faults) :]
        # A soak ends by time: faults after its last epoch were not due.
        passed = [one.fault for one in later if one.epoch < self.epochs_done]
        return begun + [f"{name}: the job was done before it began" for name in passed]

    @property
    def held(self) -> list[str]:
        """The conditions that held, with proof."""
        return [name for name, proof in self.met.items() if proof]

    @property
    def unproved(self) -> list[str]:
        """The conditions without proof, each with that text."""
        return [
            f"{name}: nothing shows that it held" for name, proof in self.met.items() if not proof
        ]

    @property
    def grown(self) -> dict[str, float]:
        """The figures of ``Sample`` that have grown too much, each with its growth."""
        # Only known for a run with one driver: each driver starts at nothing.
        return grown(self.samples) if len(self._drivers) == 1 else {}

    @property
    def doubts(self) -> list[str]:
        """The reasons why a soak does not prove that nothing has grown."""
        is_steady = bool(schedule_of(self).input_rows)
        if self.failure or (self.minutes is None and not is_steady):
            return []
        end_s = max((one.ended_s for one in self._drivers), default=0.0)
        found = unmeasured(self.samples, end_s) if is_steady else []
        if len(self._drivers) != 1:
            found.append(f"the driver was started {len(self._drivers)} times")
        if is_steady and self.schedule["faults"] and not self.fired:
            found.append("no fault has hit")
        return found

    @property
    def _drivers(self) -> list[OperationOutcome]:
        return [one for one in self.operations if one.name.startswith("driver run")]

    @property
    def fired(self) -> list[FaultOutcome]:
        """The faults that happened, with proof."""
        return [fault for fault in self.faults if fault.hit]

    def write(self, path: Path) -> None:
        """Write the file atomically: a campaign may be interrupted, and continues from it."""
        draft = path.with_suffix(".draft")
        draft.write_text(self.model_dump_json(indent=1))
        draft.rename(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file made by ``write``.

        Raises:
            ConfigurationError: the file is not the outcome of a schedule.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ConfigurationError(
                f"{path} is not the outcome of a schedule: {error.error_count()} errors.",
                hint="Remove it, or use another --report folder.",
            ) from None


def outcome_of(
    result: Result, workload: str, *, made_by: str = "", minutes: float | None = None
) -> ScheduleOutcome:
    """Make the outcome of a run."""
    start, history = result.began_at, result.history
    operations = history.operations if history else ()
    return ScheduleOutcome(
        schedule=result.schedule.to_dict(),
        workload=workload,
        made_by=made_by,
        minutes=minutes,
        seconds=result.ended_at - start,
        failure=result.failure,
        ended_by=result.ended_by,
        anomalies=_found(result.anomalies),
        left=_found(result.left),
        faults=list(_happened(result)),
        met=result.met,
        operations=[
            OperationOutcome(
                one.name, one.began_at - start, one.ended_at - start, one.outcome, one.detail
            )
            for one in operations
        ],
        attempts=_attempts(result),
        views=_views(result),
        records_in=len(history.records) if history else 0,
        records_out=len(history.fresh.sightings) if history else 0,
        epochs_done=_epochs_done(history) if history else 0,
        control_lost=len(history.control.lost) if history else 0,
        control_unknown=len(history.control.unknown) if history else 0,
        driver_restart_s=result.timing.driver_restart_s,
        broker_restart_s=result.timing.broker_restart_s,
        failover_s=result.timing.failover_s,
        reader_stall_s=result.timing.reader_stall_s,
        samples=result.samples,
        has_log=history is None or history.has_log,
    )


def _epochs_done(history: RunHistory) -> int:
    return len(View(history).done if history.noted is None else history.noted)


def _happened(result: Result) -> Iterator[FaultOutcome]:
    for one in result.happened:
        began_s, healed_s = one.began_at - result.began_at, one.healed_at - result.began_at
        planned = one.planned
        yield FaultOutcome(planned.fault, planned.epoch, began_s, healed_s, one.hit, one.error)


def _found(anomalies: Sequence[Anomaly]) -> list[AnomalyOutcome]:
    return [
        AnomalyOutcome(one.kind.number, one.kind.name.lower(), one.count, list(one.examples))
        for one in anomalies
    ]


def _attempts(result: Result) -> list[AttemptOutcome]:
    newest: dict[tuple[str, int], AttemptOutcome] = {}
    for record in result.records:
        if record.attempt is None or record.written_at is None:  # FAILED: no transaction
            continue
        at = record.written_at.timestamp() - result.began_at
        key = (f"{record.query_id} {record.epoch}", record.attempt or 0)
        began = newest[key].began_s if key in newest else at
        newest[key] = AttemptOutcome(record.epoch or "", key[1], began, at, record.state.value)
    return list(newest.values())


def _views(result: Result) -> list[EpochView]:
    if result.history is None:
        return []
    epochs = {record.id: record.epoch for record in result.history.records}
    found: dict[str, EpochView] = {}
    for reader in result.history.readers:
        for sight in reader.sightings:
            epoch = epochs.get(sight.record or "")
            if epoch is None:
                continue
            at, known = sight.at - result.began_at, found.get(epoch)
            first = min(at, known.first_s) if known else at
            last = max(at, known.last_s) if known else at
            found[epoch] = EpochView(epoch, first, last)
    return list(found.values())


def schedule_of(outcome: ScheduleOutcome) -> Schedule:
    """The schedule of an outcome."""
    return TypeAdapter(Schedule).validate_python(outcome.schedule)
