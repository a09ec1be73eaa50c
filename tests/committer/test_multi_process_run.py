"""A run whose processes share only the log: each epoch has one attempt with one end."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import pytest

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import MultiProcessRun, OpenAttempt, _attempt
from eos.errors import (
    ConfigurationError,
    Fenced,
    NewLineage,
    RewoundCheckpoint,
    TransactionPoisoned,
)
from eos.protocol import Skip
from eos.pulsar.part import pulsar_part
from eos.pulsar.participant import PulsarParticipant
from eos.steps import Step
from eos.transport.auth import Auth
from tests.support.judge import drain
from tests.support.plain_driver import QUERY, PlainDriver, rows_of, send_rows

RUN, LATER_RUN = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
def make_process(pulsar_standalone, tmp_path, name, make_driver):
    """Makes processes of a run: a log and participants, without any memory."""
    participants = []

    def make(run_id: str = RUN, **options) -> MultiProcessRun:
        log = CommitLog.open(tmp_path / "log", name)
        participant = PulsarParticipant(
            name,
            pulsar_standalone.service_url,
            Auth(),
            receipt_namespace="public/default",
            ttl_ms=60_000,
            timeout_s=20.0,
        )
        participants.append(participant)
        return MultiProcessRun(log, [participant], run_id, **options)

    yield make
    for participant in participants:
        participant.close()


@pytest.fixture
def write(client, topic) -> Callable[[OpenAttempt], list]:
    """Writes one task's rows in a joined attempt; returns its reports."""
    return lambda opened: [[send_rows(client, pulsar_part(opened.record), topic, rows_of("0"))]]


def end(process: MultiProcessRun, written: list, epoch: str = "0") -> None:
    """Commit as the driver's worker does."""
    opened = process.find(QUERY, epoch)
    assert isinstance(opened, OpenAttempt)
    process.end(opened, written)


def test_the_first_process_opens_and_the_others_join(
    make_process, make_driver, write, pulsar_standalone, topic
):
    first, second, third = make_process(), make_process(), make_process()
    opened, joined = first.join(QUERY, "0"), second.join(QUERY, "0")
    assert opened.record == joined.record
    end(third, write(joined))
    assert isinstance(third.join(QUERY, "0"), Skip)
    seen = drain(pulsar_standalone.service_url, topic)
    assert [one.value for one in seen] == rows_of("0")
    assert make_driver().states("0") == ["OPEN", "PREPARED", "COMMITTED"]


def test_concurrent_processes_share_one_transaction(make_process, make_driver):
    """All of them claim, and all that have not seen OPEN begin a transaction."""
    processes = [make_process() for _ in range(4)]
    barrier = threading.Barrier(len(processes))

    def join(process: MultiProcessRun) -> object:
        barrier.wait()
        return process.join(QUERY, "0")

    with ThreadPoolExecutor(len(processes)) as pool:
        joined = list(pool.map(join, processes))
    assert len({pulsar_part(one.record).mark_uuid for one in joined}) == 1
    records = make_driver().records()
    assert [record.state.value for record in records] == ["CLAIMED", "OPEN"]


def test_a_loser_of_the_race_leaves_no_open_transaction(
    make_process, make_driver, monkeypatch, write
):
    loser, winner = make_process(), make_process()
    assert isinstance(winner.join(QUERY, "0"), OpenAttempt)
    end(winner, write(winner.find(QUERY, "0")))
    aborted = []
    participant = loser._claim.participants.own[0]
    abort = participant.abort

    def spy(part, **how):
        aborted.append(part)
        return abort(part, **how)

    monkeypatch.setattr(participant, "abort", spy)
    loser.find(QUERY, "1")
    joined = _join_while_another_is_quicker(loser, winner)
    assert joined.record == winner.find(QUERY, "1").record
    assert len(aborted) == 1
    assert aborted[0].mark_uuid != pulsar_part(joined.record).mark_uuid


def _join_while_another_is_quicker(loser: MultiProcessRun, winner: MultiProcessRun) -> OpenAttempt:
    """The winner opens after the loser has begun its own transaction."""
    done = []

    def quicker() -> None:
        if not done:
            done.append(True)
            winner.join(QUERY, "1")

    with failpoints.armed(Step.BEGIN, quicker):
        joined = loser.join(QUERY, "1")
    assert isinstance(joined, OpenAttempt)
    return joined


def test_a_process_joins_an_attempt_opened_during_its_check(make_process, monkeypatch):
    """After an attempt that failed in an earlier run, as at each restart."""
    make_process().join(QUERY, "0")
    make_process().find(QUERY, "0").abort(TransactionPoisoned("given up"))
    slower, quicker = make_process(LATER_RUN), make_process(LATER_RUN)
    records, joined = slower.log.records, []

    def looking() -> list:
        if not joined:
            joined.append(quicker.join(QUERY, "0"))
        return records()

    monkeypatch.setattr(slower.log, "records", looking)
    assert slower.join(QUERY, "0").record == joined[0].record


@pytest.mark.parametrize("ended", [True, False], ids=["aborted", "left open"])
def test_in_each_run_all_processes_share_one_transaction(make_process, ended):
    for number in range(6):
        run_id = str(uuid.uuid4())
        first, second = make_process(run_id), make_process(run_id)
        with ThreadPoolExecutor(1) as pool:
            joining = pool.submit(first.join, QUERY, "0")
            time.sleep(number * 0.02)  # during its claim, during its OPEN, after it
            joined = second.join(QUERY, "0")
            assert joining.result().record == joined.record
        if ended:
            joined.abort(TransactionPoisoned("given up"))


def test_a_claim_does_not_end_its_own_runs_open_attempt(make_process, write, make_driver):
    first = make_process()
    rows = write(first.join(QUERY, "0"))
    late = make_process()
    assert isinstance(late.find(QUERY, "0"), OpenAttempt)  # it has adopted the claim
    end(make_process(), rows)
    assert make_driver().states("0") == ["OPEN", "PREPARED", "COMMITTED"]


def test_the_first_process_ends_an_earlier_runs_attempt(make_process, make_driver, write):
    write(make_process().join(QUERY, "0"))
    opened = make_process(LATER_RUN).join(QUERY, "0")
    assert opened.record.attempt == 2
    end(make_process(LATER_RUN), write(opened))
    states = ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert make_driver().states("0") == states


def test_an_epoch_that_an_earlier_run_prepared_is_committed_and_not_written_again(
    make_process, write
):
    opened = make_process().join(QUERY, "0")
    opened.prepare(write(opened))
    assert isinstance(make_process(LATER_RUN).join(QUERY, "0"), Skip)


def test_a_process_whose_run_has_lost_its_claim_is_fenced(make_process, write):
    asleep = make_process()
    rows = write(asleep.join(QUERY, "0"))
    make_process(LATER_RUN).join(QUERY, "0")
    for process in (asleep, make_process()):
        with pytest.raises(Fenced):
            process.join(QUERY, "0")
        with pytest.raises(Fenced):
            end(process, rows)


def test_a_task_that_wakes_up_after_the_abort_opens_nothing(make_process, make_driver):
    make_process().join(QUERY, "0")
    make_process().find(QUERY, "0").abort(TransactionPoisoned("given up"))
    before = make_driver().records()
    with pytest.raises(TransactionPoisoned, match="too late"):
        make_process().join(QUERY, "0")
    assert make_process().find(QUERY, "0") is None
    assert make_driver().records() == before


def test_a_task_that_wakes_up_after_prepared_writes_nothing(make_process, write):
    opened = make_process().join(QUERY, "0")
    opened.prepare(write(opened))
    with pytest.raises(TransactionPoisoned, match="too late"):
        make_process().join(QUERY, "0")


def test_an_interrupted_end_is_continued(make_process, write, make_driver):
    opened = make_process().join(QUERY, "0")
    opened.prepare(write(opened))
    again = make_process().find(QUERY, "0")
    again.abort(TransactionPoisoned("its answer was lost"))  # decided already: no effect
    make_process().end(again, [])
    assert make_driver().states("0") == ["OPEN", "PREPARED", "COMMITTED"]


def test_a_new_query_is_refused_before_the_claim(make_process, write, make_driver):
    process = make_process()
    end(process, write(process.join(QUERY, "0")))
    before = make_driver().records()
    with pytest.raises(NewLineage):
        make_process(LATER_RUN).join(str(uuid.uuid4()), "0")
    assert make_driver().records() == before


def test_an_epoch_that_was_planned_again_is_refused(make_process, write):
    process = make_process()
    opened = process.join(QUERY, "0")
    end(process, write(opened))
    process.check_replayed(QUERY, "0", lambda: opened.record.opened_at)
    with pytest.raises(RewoundCheckpoint):
        process.check_replayed(QUERY, "0", lambda: opened.record.opened_at.replace(year=2999))


@pytest.mark.parametrize("behind", [False, True])
def test_a_clock_that_is_ahead_of_the_drivers_would_hide_a_rewind(
    make_process, write, make_driver, monkeypatch, behind
):
    class Elsewhere(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(seconds=-60 if behind else 60)

    process = make_process()
    with monkeypatch.context() as patch:
        patch.setattr(_attempt, "datetime", Elsewhere)
        opened = process.join(QUERY, "0")
    rows = write(opened)
    if behind:
        end(process, rows)
        return
    with pytest.raises(ConfigurationError, match="is 60 s ahead"):
        end(process, rows)
    assert make_driver().states("0") == ["OPEN", "ABORTING", "ABORTED"]


def test_concurrent_processes_may_all_end_an_earlier_runs_attempt(make_process, make_driver, write):
    write(make_process().join(QUERY, "0"))
    processes = [make_process(LATER_RUN) for _ in range(4)]
    barrier = threading.Barrier(len(processes))

    def join(process: MultiProcessRun) -> OpenAttempt:
        barrier.wait()
        return process.join(QUERY, "0")

    with ThreadPoolExecutor(len(processes)) as pool:
        joined = list(pool.map(join, processes))
    assert len({pulsar_part(one.record).mark_uuid for one in joined}) == 1
    end(processes[0], write(joined[1]))
    states = ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert make_driver().states("0") == states


def test_a_sink_can_change_between_foreach_batch_and_the_writer(make_process, make_driver, write):
    driver: PlainDriver = make_driver()
    driver.run("0")
    process = make_process()
    end(process, write(process.join(QUERY, "1")), "1")
    assert make_driver().run("1").status == "skipped"
    assert make_driver().run("2").status == "written"
