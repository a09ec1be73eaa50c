"""The contract of every participant, as a pytest suite; see docs/writing-a-sink.md.

::

    class TestFolder(SinkContract):
        @pytest.fixture
        def output(self, tmp_path):
            return MyOutput(tmp_path)      # an ``OutputUnderTest``
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Committer, OpenAttempt, PartsBegun
from eos.errors import EosError
from eos.participant import Participant, kind_of
from eos.protocol import BATCH, Known, LogRecord, Run, Stage, State
from eos.steps import AnyStep, EndingStep, Step
from eos.testing._contract_driver import (
    ROWS,
    DriverRun,
    OutputUnderTest,
    hidden,
    need_newer_commit,
    part_of,
    part_of_claim,
    recover,
    recover_in_vain,
    watched,
)

MORE: Final = ["four", "five"]
_STEPS: Final[tuple[AnyStep, ...]] = (
    Step.CLAIM, Step.DECIDE, Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.PREPARE,
    EndingStep.PART, EndingStep.OUTCOME, Step.FINISH,
)  # fmt: skip


class _Died(BaseException):  # as a kill: no handler catches it
    """The process was killed."""


_Start = Callable[..., DriverRun]


class SinkContract:
    """Subclass it in a test module and define the fixture ``output``."""

    @pytest.fixture
    def output(self) -> OutputUnderTest:
        """Return an empty output.

        Raises:
            NotImplementedError: the subclass does not define the fixture.
        """
        raise NotImplementedError("A subclass of SinkContract must define the fixture `output`.")

    @pytest.fixture
    def start_driver(self, output: OutputUnderTest, tmp_path: Path) -> Any:
        """Return a function that starts a driver with a new participant."""
        started: list[DriverRun] = []

        def start(log: str = "contract-log", other_sink: Participant | None = None) -> DriverRun:
            opened = CommitLog.open(tmp_path / log, "other" if other_sink else "contract")
            started.append(DriverRun(opened, other_sink or output.participant(), output))
            return started[-1]

        yield start
        for driver in started:
            driver.participant.close()

    @pytest.fixture(autouse=True)
    def _installed(self, output: OutputUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the kind known, as if its package were installed."""
        name = part_of_claim(output).kind
        find = lambda kind: output.kind if kind == name else kind_of(kind)  # noqa: E731
        monkeypatch.setattr("eos.commit_log.schema.kind_of", find)
        monkeypatch.setattr("eos.committer.participants.kind_of", find)

    def test_rows_are_all_or_nothing(self, output: OutputUnderTest, start_driver: _Start) -> None:
        driver = start_driver()
        record = driver.prepared()
        assert output.read() == []
        with watched(output) as seen:
            assert driver.commit(record).known is Known.COMMITTED
        assert set(seen) <= {0, len(ROWS)}
        assert sorted(output.read()) == sorted(ROWS)

    def test_commit_is_idempotent(self, output: OutputUnderTest, start_driver: _Start) -> None:
        driver = start_driver()
        record = driver.prepared()
        for _ in range(3):
            assert driver.commit(record).known is Known.COMMITTED
            assert sorted(output.read()) == sorted(ROWS)

    def test_another_process_commits_from_the_log(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        first = start_driver()
        record = first.prepared()
        log = start_driver().log
        (stored,) = log.history.unfinished
        assert part_of(stored) == part_of(record)
        other = self._opened(output, start_driver(), stored)
        fate = other.commit(part_of(stored), deadline_s=20, is_own=False)
        other.close()
        assert fate.known is Known.COMMITTED
        assert first.outcome(record) is Known.COMMITTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_equal_rows_of_several_tasks_are_all_kept(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        self._run(start_driver(), "a", ["same"] * 2, ["same"])
        assert output.read() == ["same"] * 3

    def test_a_task_run_that_does_not_count_adds_no_rows(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        opened = start_driver().begin()
        part = part_of(opened.record)
        output.write(part, MORE)
        written = output.write(part, ROWS)
        with suppress(EosError):  # An output may refuse such an attempt.
            opened.prepare([written])
            output.write(part, MORE)
            opened.finish(opened.commit())
        assert sorted(output.read()) in ([], sorted(ROWS))

    def test_commits_of_others_are_not_taken_for_ones_own(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        self._run(start_driver(), "a", ROWS)
        other_sink = output.kind.open("other", part_of_claim(output), output.access)
        rows = list(ROWS)
        for options in ({"other_sink": other_sink}, {"log": "new-log"}):
            with suppress(EosError):  # An output may refuse them.
                self._run(start_driver(**options), "a", MORE)
                rows += MORE
        assert sorted(output.read()) == sorted(rows)

    def test_abort_leaves_no_rows_and_is_idempotent(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        nothing_written = driver.begin("a")
        written = driver.begin("b")
        output.write(part_of(written.record), ROWS)
        for opened in (nothing_written, written):
            for _ in range(2):
                assert driver.abort(opened.record).known is Known.ABORTED
        assert output.read() == []

    def test_abort_never_undoes_or_denies_a_commit(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        if output.participant().can_expire:
            pytest.skip("the witness proves the outcome of an output that can expire")
        driver = start_driver()
        record = driver.prepared()
        driver.commit(record)
        assert driver.abort(record).known is not Known.ABORTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_a_driver_that_slept_does_not_commit_an_aborted_attempt(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        record = driver.prepared()
        other = self._opened(output, driver, record)
        # As a person decides, while the driver sleeps between PREPARED and its commit.
        fate = other.abort(part_of(record), deadline_s=20, is_own=False)
        assert fate.known is Known.ABORTED
        late = driver.participant.commit(part_of(record), deadline_s=0, is_own=True)
        assert late.known is not Known.COMMITTED
        other.close()
        assert output.read() == []

    def test_two_processes_that_commit_at_once_commit_once(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        record = driver.prepared()
        other = self._opened(output, driver, record)

        def commit(participant: Participant) -> Known:
            return participant.commit(part_of(record), deadline_s=20, is_own=False).known

        with ThreadPoolExecutor(2) as executor:
            fates = list(executor.map(commit, (driver.participant, other)))
        other.close()
        assert fates == [Known.COMMITTED] * 2
        assert sorted(output.read()) == sorted(ROWS)

    def _opened(self, output: OutputUnderTest, driver: DriverRun, record: LogRecord) -> Participant:
        """Open the participant as recovery does, on another machine."""
        other = output.kind.open("contract", part_of(record), output.access)
        other.attach(part_of(record), driver.log.history)
        return other

    def test_outcome_changes_nothing(self, output: OutputUnderTest, start_driver: _Start) -> None:
        driver = start_driver()
        record = driver.prepared()
        before = driver.outcome(record)
        if not driver.participant.can_expire:  # a witness proves only an ended one
            assert before is not Known.COMMITTED
        assert output.read() == []
        assert driver.commit(record).known is Known.COMMITTED
        assert before is not Known.ABORTED  # which says that it can't be committed any more
        assert driver.outcome(record) is Known.COMMITTED

    @pytest.mark.parametrize("is_committed", [False, True], ids=["prepared", "committed"])
    def test_recovery_calls_nothing_aborted_while_the_output_is_away(
        self, output: OutputUnderTest, start_driver: _Start, is_committed: bool
    ) -> None:
        driver = start_driver()
        record = driver.prepared()
        if is_committed:  # the driver dies before it can append COMMITTED
            driver.commit(record)
        with hidden(output):
            recover_in_vain(output, start_driver())
        assert recover(output, start_driver()).state is State.COMMITTED
        assert sorted(output.read()) == sorted(ROWS)

    def test_a_driver_does_not_start_while_the_output_is_away(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        self._run(start_driver(), "a", ROWS)
        with hidden(output):
            driver = start_driver()
            with pytest.raises(EosError):
                driver.claim.ensure()
        self._run(start_driver(), "b", MORE)
        assert sorted(output.read()) == sorted([*ROWS, *MORE])

    def test_an_older_copy_of_the_log_is_noticed(
        self, output: OutputUnderTest, start_driver: _Start, tmp_path: Path
    ) -> None:
        need_newer_commit(output)
        log, older = tmp_path / "contract-log", tmp_path / "older-log"
        self._run(start_driver(), "a", ROWS)
        shutil.copytree(log, older)
        self._run(start_driver(), "b", MORE)
        shutil.rmtree(log)
        older.rename(log)
        with pytest.raises(EosError):
            start_driver().claim.ensure()

    @pytest.mark.parametrize("is_prepared", [False, True])
    @pytest.mark.parametrize("has_later", [False, True])
    def test_an_older_copy_of_the_log_that_ends_in_an_epoch_changes_nothing(
        self,
        output: OutputUnderTest,
        start_driver: _Start,
        tmp_path: Path,
        is_prepared: bool,
        has_later: bool,
    ) -> None:
        need_newer_commit(output)
        log, older = tmp_path / "contract-log", tmp_path / "older-log"
        driver = start_driver()
        begun = driver.begin()
        if not is_prepared:
            shutil.copytree(log, older)
        begun.prepare([output.write(part_of(begun.record), ROWS)])
        if is_prepared:
            shutil.copytree(log, older)
        begun.finish(begun.commit())
        if has_later:
            self._run(start_driver(), "b", MORE)
        shutil.rmtree(log)
        older.rename(log)
        for _ in range(2):
            with suppress(EosError) if is_prepared and not has_later else pytest.raises(EosError):
                start_driver().claim.ensure()
            assert sorted(output.read()) == sorted([*ROWS, *(MORE if has_later else ())])

    def test_an_aborted_attempt_is_not_committed_with_the_next(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        first = driver.begin()
        output.write(part_of(first.record), ROWS)
        first.abort(ValueError("the job failed"))
        second = driver.begin(run=Run(2, driver.log.history.newest(BATCH, "a")))
        second.prepare([output.write(part_of(second.record), MORE)])
        second.finish(second.commit())
        assert sorted(output.read()) == sorted(MORE)
        assert driver.log.history.newest(BATCH, "a").state is State.COMMITTED  # type: ignore[union-attr]

    def test_written_rows_are_counted(self, start_driver: _Start) -> None:
        record = start_driver().prepared()
        part = part_of(record)
        assert part.records == len(ROWS)
        assert part.bytes is not None
        assert part.bytes > 0

    def test_a_part_survives_the_log(self, output: OutputUnderTest, start_driver: _Start) -> None:
        record = start_driver().prepared()
        part = part_of(record)
        through = json.loads(json.dumps(part.payload()))
        assert output.kind.part.parse(through, {**part.columns()}) == part
        assert part.label
        assert part.output

    def test_a_part_is_checked_for_its_stage(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        begun = driver.begin()
        parts = {
            Stage.CLAIMED: part_of(driver.claim.ensure()),
            Stage.BEGUN: part_of(begun.record),
        }
        begun.prepare([output.write(part_of(begun.record), ROWS)])
        parts[Stage.PREPARED] = part_of(begun.record)
        for stage, part in parts.items():
            part.check(stage)
            for other in set(Stage) - {stage}:
                with pytest.raises(ValueError, match=r"."):
                    part.check(other)

    def test_a_part_of_another_attempt_does_not_follow(self, start_driver: _Start) -> None:
        driver = start_driver()
        first, second = part_of(driver.begin("a").record), part_of(driver.begin("b").record)
        with pytest.raises(ValueError, match=r"."):
            second.check_follows(first)
        first.check_follows(first)

    def test_attempts_are_ordered_across_restarts(self, start_driver: _Start) -> None:
        begun = []
        for epoch in "abc":
            driver = start_driver()
            opened = driver.begin(epoch)
            begun.append(part_of(opened.record).begun_at)
            opened.abort(ValueError("the job failed"))
        assert None not in begun
        assert begun == sorted(set(begun))  # type: ignore[type-var]

    def test_an_attempt_without_rows_can_be_committed(
        self, output: OutputUnderTest, start_driver: _Start
    ) -> None:
        driver = start_driver()
        opened = driver.begin()
        part = part_of(opened.record)
        counted = driver.participant.count(part, output.write(part, []))
        assert not counted.records
        ready = driver.participant.prepare(opened.record, counted)
        fate = driver.participant.commit(ready, deadline_s=20, is_own=True)
        assert fate.known is Known.COMMITTED
        assert output.read() == []

    def test_housekeeping_never_raises(self, output: OutputUnderTest, start_driver: _Start) -> None:
        driver = start_driver()
        record = driver.prepared()
        driver.commit(record)
        for state in (State.COMMITTED, State.ABORTED):
            ended = replace(record, state=state)
            driver.participant.after_end(ended, part_of(ended), is_last=True)
            driver.participant.suspect(ended, part_of(ended))
        assert isinstance(driver.participant.diagnose(part_of(record)), str)
        driver.participant.rest()
        driver.participant.close()

    @pytest.mark.parametrize("place", _STEPS, ids=lambda place: place.label)
    def test_after_a_crash_at_any_step_each_row_is_written_once(
        self, output: OutputUnderTest, start_driver: _Start, place: AnyStep
    ) -> None:
        self._run(start_driver(), "a", ROWS)
        with pytest.MonkeyPatch.context() as dead:
            dead.setattr(OpenAttempt, "abort", lambda *_: None)  # a dead driver aborts nothing
            with failpoints.armed(place, _die), pytest.raises(_Died):
                self._run(start_driver(), "b", MORE)
        assert sorted(output.read()) in (sorted(ROWS), sorted([*ROWS, *MORE]))
        self._run(start_driver(), "b", MORE)
        assert sorted(output.read()) == sorted([*ROWS, *MORE])

    def _run(self, driver: DriverRun, epoch: str, *tasks: Sequence[str]) -> None:
        def plan(begun: PartsBegun) -> Callable[[], list[Sequence[Any]]]:
            write = driver.output.write
            return lambda: [[one for rows in tasks for one in write(begun()[0], rows)]]

        Committer(driver.log, [driver.participant]).run_epoch(BATCH, epoch, plan)


def _die() -> None:
    raise _Died
