"""What every participant has to do, as a pytest suite; see docs/writing-a-sink.md.

::

    class TestFolder(SinkContract):
        @pytest.fixture
        def output(self, tmp_path):
            return MyOutput(tmp_path)      # an ``OutputUnderTest``
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Claim, Committer, OpenAttempt, Participants, PartsBegun
from eos.participant import Access, Kind, Participant, kind_of
from eos.protocol import BATCH, History, Known, LogRecord, Part, Run, Stage, State
from eos.steps import AnyStep, EndingStep, Step

ROWS: Final = ["one", "two", "three"]
MORE: Final = ["four", "five"]
_STEPS: Final[tuple[AnyStep, ...]] = (
    Step.CLAIM, Step.DECIDE, Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.PREPARE,
    EndingStep.PART, EndingStep.OUTCOME, Step.FINISH,
)  # fmt: skip


class OutputUnderTest(Protocol):
    """The output of one test: an empty one, and how to write to it and to read it."""

    kind: Kind
    """What the entry point refers to."""
    access: Access
    """What recovery is given to reach it."""

    def participant(self) -> Participant:
        """The participant as a driver makes it: another one for each life of a driver."""

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        """Write ``rows`` in the attempt of ``part``, as tasks do; what ``count`` takes."""

    def read(self) -> list[str]:
        """The rows that a plain reader finds, in any order."""


class _Died(BaseException):
    """The process is gone."""


@dataclass
class _Life:
    """One life of a driver."""

    log: CommitLog
    participant: Participant
    output: OutputUnderTest

    def __post_init__(self) -> None:
        self.claim = Claim(self.log, Participants(self.log, [self.participant]), deadline_s=20)

    def begin(self, epoch: str = "a", run: Run | None = None) -> OpenAttempt:
        with ThreadPoolExecutor(1) as executor:
            opened, _ = OpenAttempt.begin(
                self.log,
                self.claim,
                BATCH,
                epoch,
                run or Run(1, None),
                executor=executor,
                meanwhile=lambda _: None,
                deadline_s=20,
            )
        return opened

    def prepared(self, epoch: str = "a", rows: Sequence[str] = tuple(ROWS)) -> LogRecord:
        opened = self.begin(epoch)
        opened.prepare([self.output.write(part_of(opened.record), rows)])
        return opened.record

    def commit(self, record: LogRecord) -> Any:
        return self.participant.commit(part_of(record), deadline_s=20, is_own=False)

    def abort(self, record: LogRecord) -> Any:
        return self.participant.abort(part_of(record), deadline_s=20, is_own=False)

    def outcome(self, record: LogRecord) -> Known:
        return self.participant.outcome(part_of(record), timeout_s=20).known


def part_of(record: LogRecord) -> Part:
    """The only participant's part."""
    (part,) = record.participants
    return part


class SinkContract:
    """Subclass it in a test module, and give it the fixture ``output``."""

    @pytest.fixture
    def output(self) -> OutputUnderTest:
        """An empty output.

        Raises:
            NotImplementedError: until the subclass has one.
        """
        raise NotImplementedError("a subclass of SinkContract has a fixture `output`")

    @pytest.fixture
    def lives(self, output: OutputUnderTest, tmp_path: Path) -> Any:
        """Makes lives of a driver, each with a participant of its own."""
        made: list[_Life] = []

        def live() -> _Life:
            log = CommitLog.open(tmp_path / "contract-log", "contract")
            made.append(_Life(log, output.participant(), output))
            return made[-1]

        yield live
        for life in made:
            life.participant.close()

    @pytest.fixture(autouse=True)
    def _installed(self, output: OutputUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        """As if its package were installed."""
        name = part_of_claim(output).kind
        find = lambda kind: output.kind if kind == name else kind_of(kind)  # noqa: E731
        monkeypatch.setattr("eos.commit_log.schema.kind_of", find)
        monkeypatch.setattr("eos.committer.participants.kind_of", find)

    def test_nothing_is_readable_before_the_commit_and_everything_behind_it(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        record = life.prepared()
        assert output.read() == []
        assert life.commit(record).known is Known.COMMITTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_to_commit_twice_changes_nothing_more(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        record = life.prepared()
        for _ in range(3):
            assert life.commit(record).known is Known.COMMITTED
            assert sorted(output.read()) == sorted(ROWS)

    def test_another_process_commits_by_what_the_log_says(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        record = lives().prepared()
        log = lives().log
        (stored,) = log.history.unfinished
        other = output.kind.open("contract", part_of(stored), output.access)
        other.attach(part_of(stored), log.history)
        assert part_of(stored) == part_of(record)
        fate = other.commit(part_of(stored), deadline_s=20, is_own=False)
        other.close()
        assert fate.known is Known.COMMITTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_an_abort_leaves_nothing_to_read_and_may_be_repeated(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        nothing_written = life.begin("a")
        written = life.begin("b")
        output.write(part_of(written.record), ROWS)
        for opened in (nothing_written, written):
            for _ in range(2):
                assert life.abort(opened.record).known is Known.ABORTED
        assert output.read() == []

    def test_an_abort_never_undoes_a_commit_nor_denies_it(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        if output.participant().can_expire:
            pytest.skip("what can expire is asked for its outcome by a witness")
        life = lives()
        record = life.prepared()
        life.commit(record)
        assert life.abort(record).known is not Known.ABORTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_the_outcome_is_told_and_not_made(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        record = life.prepared()
        if not life.participant.can_expire:  # a witness proves what is over
            assert life.outcome(record) is not Known.COMMITTED
        assert output.read() == []
        life.commit(record)
        assert life.outcome(record) is Known.COMMITTED

    def test_an_attempt_that_was_given_up_is_not_committed_with_the_next_one(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        first = life.begin()
        output.write(part_of(first.record), ROWS)
        first.abort(ValueError("the job failed"))
        second = life.begin(run=Run(2, life.log.history.newest(BATCH, "a")))
        second.prepare([output.write(part_of(second.record), MORE)])
        second.finish(second.commit())
        assert sorted(output.read()) == sorted(MORE)
        assert life.log.history.newest(BATCH, "a").state is State.COMMITTED  # type: ignore[union-attr]

    def test_it_counts_what_was_written(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        record = lives().prepared()
        part = part_of(record)
        assert part.records == len(ROWS)
        assert part.bytes is not None
        assert part.bytes > 0

    def test_a_part_goes_through_the_log_and_comes_back(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        record = lives().prepared()
        part = part_of(record)
        through = json.loads(json.dumps(part.payload()))
        assert output.kind.part.parse(through, {**part.columns()}) == part
        assert part.label
        assert part.output

    def test_a_part_is_checked_for_its_stage(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        begun = life.begin()
        claimed = part_of(life.claim.complete())
        parts = {
            Stage.CLAIMED: claimed,
            Stage.BEGUN: part_of(begun.record),
            Stage.PREPARED: part_of(self._prepare(output, begun)),
        }
        for stage, part in parts.items():
            part.check(stage)
            for other in set(Stage) - {stage}:
                with pytest.raises(ValueError, match=r"."):
                    part.check(other)

    def _prepare(self, output: OutputUnderTest, begun: OpenAttempt) -> LogRecord:
        begun.prepare([output.write(part_of(begun.record), ROWS)])
        return begun.record

    def test_a_part_of_another_attempt_does_not_follow(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        first, second = part_of(life.begin("a").record), part_of(life.begin("b").record)
        with pytest.raises(ValueError, match=r"."):
            second.check_follows(first)
        first.check_follows(first)

    def test_attempts_are_in_order_over_restarts(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        begun = []
        for epoch in "abc":
            life = lives()
            opened = life.begin(epoch)
            begun.append(part_of(opened.record).begun_at)
            opened.abort(ValueError("the job failed"))
        assert None not in begun
        assert begun == sorted(set(begun))  # type: ignore[type-var]

    def test_an_attempt_without_rows_may_be_committed_beside_others(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        opened = life.begin()
        part = part_of(opened.record)
        counted = life.participant.count(part, output.write(part, []))
        assert not counted.records
        ready = life.participant.prepare(opened.record, counted)
        fate = life.participant.commit(ready, deadline_s=20, is_own=True)
        assert fate.known is Known.COMMITTED
        assert output.read() == []

    def test_housekeeping_never_raises(
        self, output: OutputUnderTest, lives: Callable[[], _Life]
    ) -> None:
        life = lives()
        record = life.prepared()
        life.commit(record)
        for state in (State.COMMITTED, State.ABORTED):
            ended = replace(record, state=state)
            life.participant.after_end(ended, part_of(ended), is_last=True)
            life.participant.suspect(ended, part_of(ended))
        assert isinstance(life.participant.diagnose(part_of(record)), str)
        life.participant.rest()
        life.participant.close()

    @pytest.mark.parametrize("place", _STEPS, ids=lambda place: place.label)
    def test_wherever_a_driver_dies_the_next_one_leaves_each_row_once(
        self, output: OutputUnderTest, lives: Callable[[], _Life], place: AnyStep
    ) -> None:
        self._run(lives(), "a", ROWS)
        with pytest.MonkeyPatch.context() as dead:
            dead.setattr(OpenAttempt, "abort", lambda *_: None)
            with failpoints.armed(place, _die), pytest.raises(_Died):
                self._run(lives(), "b", MORE)
        assert sorted(output.read()) in (sorted(ROWS), sorted([*ROWS, *MORE]))
        self._run(lives(), "b", MORE)
        assert sorted(output.read()) == sorted([*ROWS, *MORE])

    def _run(self, life: _Life, epoch: str, rows: Sequence[str]) -> None:
        def plan(begun: PartsBegun) -> Callable[[], list[Sequence[Any]]]:
            return lambda: [life.output.write(begun()[0], rows)]

        Committer(life.log, [life.participant]).run_epoch(BATCH, epoch, plan)


def _die() -> None:
    raise _Died


def part_of_claim(output: OutputUnderTest) -> Part:
    """The part that a first claim would have."""
    return output.participant().claimed(History("contract"), "00000000")
