"""The ten steps on a real broker and log: epochs are committed, skipped, ended or refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.committer import OpenAttempt
from eos.errors import (
    ConfigurationError,
    DuplicateEpochCall,
    Fenced,
    InputError,
    NewLineage,
    Retriable,
    RewoundCheckpoint,
    TransactionPoisoned,
)
from eos.protocol import BATCH, UNNAMED
from eos.pulsar.part import pulsar_part
from eos.pulsar.roll_call import AnsweredBefore, RollCall
from eos.steps import Step
from eos.task_report import TaskError, TaskSummary
from tests.support.admin import create_partitioned
from tests.support.judge import drain
from tests.support.plain_driver import QUERY, rows_of


class Interrupted(BaseException):
    """Like KeyboardInterrupt: cleanup code runs (for SIGKILL see test_failpoints.py)."""


def interrupt() -> None:
    raise Interrupted


def values(pulsar_standalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(pulsar_standalone.service_url, topic)]


def test_an_epoch_is_written_once_and_readable_whole(pulsar_standalone, make_driver, topic):
    driver = make_driver()
    result = driver.run("0")
    assert (result.status, result.records, result.bytes) == ("written", 10, 30)
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert [r.state for r in driver.records()] == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]


def test_a_later_run_skips_committed_epochs(pulsar_standalone, make_driver, topic):
    first = make_driver().run("0")
    again = make_driver().run("0")
    assert (again.status, again.records, pulsar_part(again).txn) == (
        "skipped",
        10,
        pulsar_part(first).txn,
    )
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_an_older_epoch_of_a_stream_that_has_no_record_is_never_written(make_driver):
    driver = make_driver()
    driver.run("5")
    with pytest.raises(RewoundCheckpoint, match="Epoch 4 comes before epoch 5"):
        driver.run("4")
    assert make_driver(on_rewind="skip").run("4").status == "skipped"
    assert driver.states("4") == []


def test_an_epoch_that_was_planned_again_leaves_the_log_unchanged(make_driver):
    make_driver().run("0")
    driver = make_driver()
    driver.committer.claim()
    before = len(driver.records())
    with pytest.raises(RewoundCheckpoint, match="planned it again since"):
        driver.run("0", planned_at=datetime.now(UTC))
    assert len(driver.records()) == before
    assert driver.run("0").status == "skipped"  # by its old plan
    assert driver.run("1", planned_at=datetime.now(UTC)).status == "written"


def test_batch_keys_are_not_compared_as_numbers(make_driver):
    driver = make_driver()
    driver.run("5", query_id=BATCH)
    assert driver.run("4", query_id=BATCH).status == "written"


def test_an_epoch_without_records_ends_as_empty_and_counts_as_done(
    pulsar_standalone, make_driver, topic
):
    driver = make_driver()
    assert driver.run("0", count=0).records == 0
    assert driver.states("0") == ["OPEN", "ABORTING", "EMPTY"]
    assert make_driver().run("0").status == "skipped"
    assert values(pulsar_standalone, topic) == []


def test_the_same_epoch_twice_in_one_run_is_an_error_and_loses_nothing(
    pulsar_standalone, make_driver, topic
):
    driver = make_driver()
    driver.run("0")
    with pytest.raises(DuplicateEpochCall, match="called twice"):
        driver.run("0")
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert driver.run("1").status == "written"


def test_an_epoch_that_failed_may_be_called_again_in_the_same_run(make_driver):
    driver = make_driver()

    def refuse(_):
        raise ValueError("the user's query failed")

    driver.during_write = refuse
    with pytest.raises(ValueError, match="user's query"):
        driver.run("0")
    driver.during_write = lambda _: None
    assert driver.run("0").status == "written"
    assert driver.states("0") == ["OPEN", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    reason = str(driver.records()[2].reason)
    assert reason == "FAILED: ValueError; its text is in the driver's log"


@pytest.mark.parametrize("step", list(Step), ids=lambda step: step.name.lower())
def test_a_run_interrupted_after_any_step_is_finished_by_the_next(
    pulsar_standalone, make_driver, topic, step
):
    first = make_driver()
    with failpoints.armed(step, interrupt), pytest.raises(Interrupted):
        first.run("0")
    second = make_driver()
    second.run("0")
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert second.states("0")[-1] == "COMMITTED"
    assert second.states("0").count("COMMITTED") == 1
    third = make_driver()
    third.committer.claim()
    assert third.states("0") == second.states("0")


def test_recovery_changes_nothing_when_it_runs_again(pulsar_standalone, make_driver, topic):
    with failpoints.armed(Step.PREPARE, interrupt), pytest.raises(Interrupted):
        make_driver().run("0")
    make_driver().committer.claim()
    once = make_driver().states("0")
    make_driver().committer.claim()
    assert make_driver().states("0") == once == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_recovery_ends_every_unfinished_transaction(pulsar_standalone, make_driver, topic):
    with failpoints.armed(Step.PREPARE, interrupt), pytest.raises(Interrupted):
        make_driver().run("a", query_id=BATCH)
    driver = make_driver()
    driver.run("b", query_id=BATCH)
    assert driver.states("a") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("a") + rows_of("b")


def test_a_second_driver_fences_the_first(pulsar_standalone, make_driver, topic):
    first = make_driver()
    first.run("0")
    second = make_driver()
    second.run("1")
    with pytest.raises(Fenced):
        first.run("2")
    with pytest.raises(Fenced):
        first.run("3")
    assert second.run("2").status == "written"
    assert values(pulsar_standalone, topic) == rows_of("0") + rows_of("1") + rows_of("2")


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE, Step.CHECK, Step.RECEIPT])
def test_a_driver_overtaken_before_its_decision_can_not_commit(
    pulsar_standalone, make_driver, topic, step
):
    first, second = make_driver(), make_driver()
    first.committer.claim()

    def overtake() -> None:
        second.log.refresh()
        second.committer.claim()

    with failpoints.armed(step, overtake), pytest.raises(Fenced):
        first.run("0")
    assert second.states("0") == ["OPEN", "ABORTING", "ABORTED"]
    second.run("0")
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_a_driver_overtaken_after_its_decision_changes_nothing_more(
    pulsar_standalone, make_driver, topic
):
    first, second = make_driver(), make_driver()
    first.committer.claim()

    def overtake() -> None:
        second.log.refresh()
        second.committer.claim()

    with failpoints.armed(Step.PREPARE, overtake), pytest.raises(Fenced):
        first.run("0")
    assert second.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert second.run("0").status == "skipped"
    assert values(pulsar_standalone, topic) == rows_of("0")


def summary(index: int = 0, **changes) -> TaskSummary:
    parts = {"spark_partition": index, "run_id": "", "registered": (), "partitions": ()}
    return TaskSummary(**{**parts, **changes})


def answered_twice(client, begun):
    """A run that Spark has forgotten, and the one whose result it took."""
    RollCall.of(begun).answer(client, 0, timeout_s=20)
    try:
        RollCall.of(begun).answer(client, 0, timeout_s=20)
    except AnsweredBefore as error:
        return [summary(error=TaskError("TransactionPoisoned", error.message, ""))]
    raise AssertionError


@pytest.mark.parametrize(
    "write",
    [
        lambda client, begun: [summary(run_id="of nobody")],
        lambda client, begun: [RollCall.of(begun).answer(client, 0, timeout_s=20) and summary()],
        lambda client, begun: RollCall.of(begun).answer(client, 0, timeout_s=20) and [],
        answered_twice,
        lambda client, begun: [summary(registered=("x",))],
    ],
    ids=["answer missing", "answer without rows", "summary missing", "ran twice", "not sent"],
)
def test_rows_of_a_run_without_a_summary_are_never_committed(
    pulsar_standalone, make_driver, topic, client: PulsarClient, write
):
    driver = make_driver(max_attempts=2)

    def send_and_write(parts):
        (begun,) = parts
        producer = client.entry_producer(topic)
        producer.send(b"never readable", txn=client.join(begun.txn))
        producer.close()
        return [write(client, begun)]

    with pytest.raises(TransactionPoisoned):
        driver.committer.run_epoch(QUERY, "0", lambda begun: lambda: send_and_write(begun()))
    assert driver.states("0") == ["OPEN", "ABORTING", "ABORTED"] * 2
    assert str(driver.records()[-1].reason).startswith("POISONED: ")
    assert values(pulsar_standalone, topic) == []


def test_a_tasks_error_is_raised_in_its_own_class_and_logged(make_driver):
    driver = make_driver()
    error = TaskError("InputError", "column 'value' is null in row 3", "Filter it out.")
    written = [[summary(error=error)]]
    with pytest.raises(InputError, match=r"row 3.*Filter it out"):
        driver.committer.run_epoch(QUERY, "0", lambda _: lambda: written)
    assert driver.states("0") == ["OPEN", "ABORTING", "ABORTED"]
    assert "row 3" in str(driver.records()[-1].reason)


def test_a_poisoned_epoch_runs_again_in_a_new_transaction(pulsar_standalone, make_driver, topic):
    driver = make_driver()
    calls = []

    def fail_once(txn_id) -> None:
        calls.append(txn_id)
        if len(calls) == 1:
            raise TransactionPoisoned("a send was in doubt")

    driver.during_write = fail_once
    result = driver.run("0")
    assert result.txn == calls[1] != calls[0]
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_an_aborted_job_without_a_key_is_looked_at_by_the_next_claim(make_driver):
    """Its late sends may block readers; nobody can run it again."""
    driver = make_driver()

    def fail(_) -> None:
        raise ValueError("the job failed")

    driver.during_write = fail
    with pytest.raises(ValueError, match="failed"):
        driver.run(f"{UNNAMED}1", query_id=BATCH)
    looked_at = []
    successor = make_driver()
    successor.participant.suspect = lambda record, _: looked_at.append(record.epoch)
    successor.committer.claim()
    assert looked_at == [f"{UNNAMED}1"]


@pytest.mark.parametrize("state", ["COMMITTED", "ABORTED", "PREPARED"])
def test_a_log_that_does_not_answer_once_costs_an_attempt_at_most(
    pulsar_standalone, make_driver, topic, monkeypatch, state
):
    driver = make_driver()
    append, left = CommitLog.append, [state]

    def away(self, record):
        if [record.state] == left:
            left.clear()
            raise Retriable("503 Slow Down")
        return append(self, record)

    def poison_once(_) -> None:
        if state == "ABORTED" and left:
            raise TransactionPoisoned("a send was in doubt")

    driver.during_write = poison_once
    monkeypatch.setattr(CommitLog, "append", away)
    driver.run("0")
    assert left == []
    assert values(pulsar_standalone, topic) == rows_of("0")


def test_a_new_query_on_a_known_sink_is_refused_before_the_claim(make_driver):
    driver = make_driver()
    driver.run("0")
    other = make_driver()
    with pytest.raises(NewLineage, match="on_new_query"):
        other.committer.check_lineage("another-query", "0")
    make_driver(on_new_query="continue").committer.check_lineage("another-query", "0")
    other.committer.check_lineage(BATCH, "a key")
    assert driver.run("1").status == "written"


@pytest.mark.parametrize(("query_id", "epoch"), [(QUERY, "01"), (QUERY, "x"), (BATCH, "")])
def test_a_malformed_epoch_is_refused(make_driver, query_id, epoch):
    with pytest.raises(ConfigurationError, match="epoch"):
        make_driver().run(epoch, query_id=query_id)


@pytest.mark.parametrize(
    ("step", "newest"),
    [
        (Step.CLAIM, "CLAIMED"),
        (Step.DECIDE, "CLAIMED"),
        (Step.BEGIN, "CLAIMED"),
        (Step.OPEN, "OPEN"),
        (Step.WRITE, "OPEN"),
        (Step.CHECK, "OPEN"),
        (Step.RECEIPT, "OPEN"),
        (Step.PREPARE, "PREPARED"),
        (Step.END, "PREPARED"),
        (Step.FINISH, "COMMITTED"),
    ],
    ids=lambda value: getattr(value, "name", value).lower(),
)
def test_after_each_step_the_log_has_the_record_of_the_protocol(make_driver, step, newest):
    driver = make_driver()
    seen = []
    with failpoints.armed(step, lambda: seen.append(driver.records()[-1].state)):
        driver.run("0")
    assert seen == [newest]


def test_a_partitioned_topic_is_written_under_exact_names(pulsar_standalone, make_driver, name):
    create_partitioned(pulsar_standalone.admin_url, f"{name}-p", 3)
    driver = make_driver()
    driver.topic = f"persistent://public/default/{name}-p"
    driver.run("0")
    assert sorted(values(pulsar_standalone, driver.topic)) == rows_of("0")
    figures = pulsar_part(driver.records()[-1]).partitions
    assert [part.topic for part in figures] == [f"{driver.topic}-partition-{n}" for n in range(3)]
    by_producer = {seen.producer for seen in drain(pulsar_standalone.service_url, driver.topic)}
    assert by_producer == {producer for part in figures for producer in part.producers}


def test_an_empty_epoch_whose_driver_died_is_finished_as_empty_or_run_again(make_driver):
    first = make_driver()
    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        with failpoints.armed(Step.END, interrupt), pytest.raises(Interrupted):
            first.run("0", count=0)
    assert first.states("0") == ["OPEN", "ABORTING"]
    second = make_driver()
    second.run("0", count=0)
    assert second.states("0")[-1] == "EMPTY"
