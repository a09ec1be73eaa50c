"""The model's driver conforms to the committer: it can do all that the real one does.

The real ``Committer`` runs on a log in memory and a scripted cluster, which record every call with
its answer. The model must have a path with exactly these calls.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from eos.committer import Committer, Reports
from eos.errors import EosError, Fenced, Retriable
from eos.ids import MessageId, TxnId
from eos.participant import Attempt
from eos.protocol import History, LogRecord, Part
from eos.pulsar.end_rules import DataAnswer, EndAnswer, MarkAnswer, WitnessAnswer
from eos.pulsar.part import PulsarPart
from eos.pulsar.participant import PulsarParticipant
from eos.task_report import Answer, PartitionFigures, TaskError, TaskSummary
from tests.model.records import QUERY, TASKS
from tests.model.rules import Rules
from tests.model.system import System, initial, successors
from tests.model.world import Faults

TOPIC = "persistent://public/default/__eos-receipts-s-1"
_EVENTS = (
    (r"run \d+ starts", "start"),
    (r"run \d+ dies", "die"),
    (r".* is fenced at (\w+)", r"fenced \1"),
    (r".* appends (\w+).*", r"append \1"),
    (r".* sends a mark, begins .*", "begin"),
    (r".* sends the receipt.*", "receipt"),
    (r".* END_TXN\((\w+)\) of \d+: OK", r"end \1: ok"),
    (r".* END_TXN\((\w+)\) of \d+: it (?:had ended|is ending)", r"end \1: ended before"),
    (r".* END_TXN\((\w+)\) of .*: no answer.*", r"end \1: another error, or no answer"),
    (r".* looks for the mark: no answer.*", "mark: no answer"),
    (r".* looks for the mark: (.*)", r"mark: \1"),
    (r".* asks the witness: no answer.*", "witness: no answer"),
    (r".* asks the witness: (.*)", r"witness: \1"),
    (r".* reads the data: (.*)", r"data: \1"),
    (r".* stays in doubt", "doubt"),
)


def event_of(step: str) -> str | None:
    """The call that a step of the model represents; None if a committer does not see the step."""
    for pattern, event in _EVENTS:
        if re.fullmatch(pattern, step):
            return re.sub(pattern, event, step)
    return None


def accepts(events: list[str], faults: Faults) -> int:
    """The number of leading events that the model can do in this order."""
    rules = Rules()
    states = silent(rules, {initial(faults)})
    for done, event in enumerate(events):
        states = {
            after
            for system in states
            for step, after in successors(system, rules)
            if event_of(step) == event
        }
        if not states:
            return done
        states = silent(rules, states)
    return len(events)


def silent(rules: Rules, states: set[System]) -> set[System]:
    """The states, and all states reachable from them without a call."""
    todo, seen = list(states), set(states)
    while todo:
        for step, after in successors(todo.pop(), rules):
            if event_of(step) is None and after not in seen:
                seen.add(after)
                todo.append(after)
    return seen


class MemoryLog:
    """A commit log in a list that several handles share; fenced like the table."""

    uri = "memory"
    sink_id = "s"
    log_table_id = "t"

    def __init__(self, records: list[LogRecord], events: list[str]) -> None:
        self._records = records
        self._events = events
        self.history = History.of("s", records)

    is_fenced = False

    def refresh(self) -> None:
        """Do nothing: the list is always current."""

    refresh_if_moved = refresh

    def resync(self) -> None:
        """Do nothing: appends are never half done."""

    def append(self, draft: LogRecord) -> LogRecord:
        if len(self._records) != self.history.last_seq:
            self._events.append(f"fenced {draft.state.value}")
            raise Fenced("somebody else has appended")
        seq = len(self._records) + 1
        record = replace(draft, seq=seq, written_at=datetime.now(UTC))
        self.history.append(record)
        self._records.append(record)
        self._events.append(f"append {record.state.value}")
        return record


class Died(BaseException):
    """The process is gone."""


@dataclass
class Script:
    """The cluster's answers, by default ``fine``; ``dies_before`` names a call to die in."""

    events: list[str]
    ends: list[EndAnswer] = field(default_factory=list)
    witnesses: list[WitnessAnswer] = field(default_factory=list)
    marks: list[MarkAnswer] = field(default_factory=list)
    dies_before: str = ""
    data_is_readable: bool = False
    begun: int = 0


class ScriptedWitness:
    """A receipt topic with scripted answers."""

    obstacle = ""

    def __init__(self, script: Script) -> None:
        self._script = script

    def find_mark(self, part: PulsarPart, *, timeout_s: float) -> MarkAnswer:
        marks = self._script.marks
        answer = marks.pop(0) if marks else MarkAnswer.FOUND
        self._script.events.append(f"mark: {answer.value}")
        return answer

    def ask(self, part: PulsarPart, *, timeout_s: float) -> WitnessAnswer:
        witnesses = self._script.witnesses
        answer = witnesses.pop(0) if witnesses else WitnessAnswer.READABLE
        self._script.events.append(f"witness: {answer.value}")
        return answer

    def ask_data(self, part: PulsarPart, *, timeout_s: float) -> DataAnswer:
        is_readable = self._script.data_is_readable
        answer = DataAnswer.READABLE if is_readable else DataAnswer.UNPROVED
        self._script.events.append(f"data: {answer.value}")
        return answer


def _nothing(*_: object, **__: object) -> None:
    """Do nothing: the call makes no difference here."""


class ScriptedPulsar(PulsarParticipant):
    """The real participant; a script answers all its requests to the cluster."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._timeout_s = 1.0
        self._committed = deque[TxnId]()
        self._limit_hit = False

    check = missing = make = attach = newer_commit = ready = _nothing
    suspect = after_end = rest = close = _nothing

    def claimed(self, history: History, log_table_id: str) -> PulsarPart:
        return PulsarPart(service_url="pulsar://b:1", receipt_topic=TOPIC)

    def diagnose(self, part: Part) -> str:
        return ""

    def begin(self, attempt: Attempt) -> PulsarPart:
        script = self._script
        script.events.append("begin")
        script.begun += 1
        mark = f"00000000-0000-4000-8000-{script.begun:012x}"
        return PulsarPart(
            service_url="pulsar://b:1",
            receipt_topic=TOPIC,
            txn=TxnId(0, script.begun),
            ttl_ms=1000,
            mark_id=MessageId(5, script.begun),
            mark_uuid=mark,
        )

    def _close_roll_call(self, part: PulsarPart, *, with_receipt: bool) -> tuple[Answer, ...]:
        return tuple(Answer(task, str(task)) for task in range(TASKS))

    def prepare(self, record: LogRecord, part: Part) -> PulsarPart:
        self._script.events.append("receipt")
        assert isinstance(part, PulsarPart)
        return replace(part, receipt_id=MessageId(5, 900))

    @property
    def _witness(self) -> Any:
        return ScriptedWitness(self._script)

    def _send_end_txn(self, part: PulsarPart, *, commit: bool, timeout_s: float) -> EndAnswer:
        if self._script.dies_before == "end":
            raise Died
        answer = self._script.ends.pop(0) if self._script.ends else EndAnswer.OK
        self._script.events.append(f"end {'commit' if commit else 'abort'}: {answer.value}")
        return answer


class World:
    """Drivers on one log, and their calls."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.events: list[str] = []
        self.script = Script(self.events)

    def driver(self) -> Committer:
        self.events.append("start")
        log: Any = MemoryLog(self.records, self.events)
        return Committer(log, [ScriptedPulsar(self.script)])

    def die(self, committer: Committer) -> None:
        self.events.append("die")


def written(*, poisoned: bool = False) -> Reports:
    """The reports of two tasks."""
    summaries = [
        TaskSummary(
            task,
            str(task),
            (f"t-{task}",),
            (PartitionFigures(f"t-{task}", ("p",), 1, 1, 1, MessageId(1, 1), MessageId(1, 1)),),
            TaskError("TransactionPoisoned", "in doubt", "") if poisoned and not task else None,
        )
        for task in range(TASKS)
    ]
    return [summaries]


def run(committer: Committer, *epochs: str, poisoned: int = 0) -> None:
    """Write epochs; the first ``poisoned`` attempts are in doubt."""
    left = poisoned
    for epoch in epochs:

        def write() -> Reports:
            nonlocal left
            left -= 1
            return written(poisoned=left >= 0)

        committer.run_epoch(QUERY, epoch, lambda _: write)


def all_is_well(world: World) -> None:
    run(world.driver(), "0", "1")


def a_restart_skips(world: World) -> None:
    first = world.driver()
    run(first, "0")
    world.die(first)
    run(world.driver(), "0", "1")


def a_poisoned_attempt(world: World) -> None:
    run(world.driver(), "0", poisoned=1)


def a_lost_answer_of_a_commit(world: World) -> None:
    world.script.ends = [EndAnswer.OTHER, EndAnswer.ENDED]
    run(world.driver(), "0")


def expiry_after_prepared(world: World) -> None:
    world.script.ends = [EndAnswer.ENDED]
    world.script.witnesses = [WitnessAnswer.PROVED_ABSENT]
    run(world.driver(), "0")


def a_silent_witness(world: World) -> None:
    world.script.ends = [EndAnswer.OTHER, EndAnswer.ENDED]
    world.script.witnesses = [WitnessAnswer.UNKNOWN, WitnessAnswer.READABLE]
    run(world.driver(), "0")


def die_before_end(world: World) -> None:
    """Stop the first driver right after it has appended PREPARED."""
    first = world.driver()
    world.script.dies_before = "end"
    with pytest.raises(Died):
        run(first, "0")
    world.script.dies_before = ""
    world.die(first)


def death_before_end_txn(world: World) -> None:
    die_before_end(world)
    run(world.driver(), "0")


def a_missing_mark(world: World) -> None:
    die_before_end(world)
    world.script.marks = [MarkAnswer.ABSENT]
    with pytest.raises(EosError):
        run(world.driver(), "0")
    world.events.append("doubt")


def a_missing_mark_and_readable_data(world: World) -> None:
    first = world.driver()
    world.script.ends = [EndAnswer.OTHER]
    world.script.marks = [MarkAnswer.ABSENT]
    world.script.data_is_readable = True
    run(first, "0")


def a_mark_that_is_not_answered_at_first(world: World) -> None:
    die_before_end(world)
    world.script.marks = [MarkAnswer.UNKNOWN, MarkAnswer.FOUND]
    run(world.driver(), "0")


def a_second_driver(world: World) -> None:
    first = world.driver()
    run(first, "0")
    run(world.driver(), "0", "1")
    with pytest.raises(Fenced):
        run(first, "1")


SCENARIOS = [
    all_is_well,
    a_restart_skips,
    a_poisoned_attempt,
    a_lost_answer_of_a_commit,
    expiry_after_prepared,
    a_silent_witness,
    death_before_end_txn,
    a_missing_mark,
    a_missing_mark_and_readable_data,
    a_mark_that_is_not_answered_at_first,
    a_second_driver,
]
FAULTS = {
    a_poisoned_attempt: Faults(lives=1, replies=1),
    a_lost_answer_of_a_commit: Faults(lives=1, replies=1),
    expiry_after_prepared: Faults(lives=1, expiries=1),
    a_silent_witness: Faults(lives=1, replies=2),
    a_missing_mark: Faults(lives=2, crashes=1, trims=1),
    a_missing_mark_and_readable_data: Faults(lives=1, replies=1, trims=1),
    a_mark_that_is_not_answered_at_first: Faults(lives=2, crashes=1, replies=1),
    a_second_driver: Faults(lives=2),
}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_what_the_committer_does_the_model_can_do(scenario):
    world = World()
    scenario(world)
    faults = FAULTS.get(scenario, Faults(lives=2, crashes=1))
    done = accepts(world.events, faults)
    assert world.events[:done] == world.events  # the model can't do the others


def test_the_model_refuses_what_the_committer_would_not_do():
    world = World()
    all_is_well(world)
    assert accepts(world.events, Faults(lives=1)) == len(world.events)
    for at, event in enumerate(world.events):
        if event == "append PREPARED":
            broken = [*world.events[:at], *world.events[at + 1 :]]
            assert accepts(broken, Faults(lives=1)) < len(broken)


def test_a_retriable_error_of_the_writing_half_is_an_attempt_of_its_own():
    world, failures = World(), [Retriable("an executor was lost")]

    def write() -> Reports:
        if failures:
            raise failures.pop()
        return written()

    world.driver().run_epoch(QUERY, "0", lambda _: write)
    assert accepts(world.events, Faults(lives=1, tasks=1)) == len(world.events)
