"""Skip or run, and as which attempt; and which queries may use a sink."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from eos.errors import NewLineage, RewoundCheckpoint, UnfinishedEpoch
from eos.ids import MessageId, TxnId
from eos.protocol import (
    BATCH,
    UNFINISHED,
    History,
    LogRecord,
    Reason,
    ReasonKind,
    Run,
    Skip,
    State,
    check_lineage,
    check_not_renamed,
    check_replayed,
    decide_epoch,
    unfinished_epoch_error,
)
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.task_report import PartitionFigures
from tests.protocol.epochs import NOW, QUERY

FIGURES = (PartitionFigures("t-partition-0", ("p",), 1, 1, 1, MessageId(1, 1), MessageId(1, 1)),)


class Log:
    """Builds a history record by record."""

    def __init__(self) -> None:
        self.history = History("s")
        self.claim = self._add(
            LogRecord.claimed(
                sink_id="s",
                run_id="r",
                participants=[
                    PulsarPart(
                        service_url="pulsar://b:6650", receipt_topic="persistent://public/default/r"
                    )
                ],
            )
        )

    def _add(self, record: LogRecord) -> LogRecord:
        record = replace(record, seq=self.history.last_seq + 1, written_at=NOW)
        self.history.append(record)
        return record

    def open(
        self,
        epoch: str,
        attempt: int = 1,
        *,
        query: str = QUERY,
        planned_at: datetime | None = None,
    ):
        return self._add(
            LogRecord.opened(
                self.claim,
                query_id=query,
                epoch=epoch,
                attempt=attempt,
                opened_at=NOW,
                planned_at=planned_at,
                participants=[
                    replace(
                        pulsar_part(self.claim),
                        txn=TxnId(0, self.history.last_seq),
                        ttl_ms=1000,
                        mark_id=MessageId(1, 1),
                        mark_uuid=str(uuid.uuid4()),
                    )
                ],
            )
        )

    def abort(self, record: LogRecord, kind: ReasonKind):
        aborting = self._add(
            record.advance(State.ABORTING, claim=self.claim, reason=Reason(kind, "why"))
        )
        return self._add(aborting.advance(State.ABORTED, claim=self.claim))

    def commit(self, record: LogRecord):
        part = replace(pulsar_part(record), receipt_id=MessageId(1, 2), partitions=FIGURES)
        prepared = self._add(record.advance(State.PREPARED, claim=self.claim, participants=[part]))
        return self._add(prepared.advance(State.COMMITTED, claim=self.claim))


def test_the_first_attempt_is_number_one():
    assert decide_epoch(Log().history, QUERY, "0") == Run(1, None)


def test_a_committed_epoch_is_skipped_with_its_record():
    log = Log()
    done = log.commit(log.open("3"))
    assert decide_epoch(log.history, QUERY, "3") == Skip(done)


def test_an_epoch_at_or_below_the_last_committed_one_is_skipped_without_a_record():
    log = Log()
    log.commit(log.open("10"))
    assert decide_epoch(log.history, QUERY, "9") == Skip(None)
    assert decide_epoch(log.history, QUERY, "11") == Run(1, None)


def test_a_committed_epoch_may_be_skipped_when_it_runs_by_its_old_plan():
    log = Log()
    log.commit(log.open("3"))
    for planned_at in (NOW - timedelta(days=1), NOW):
        check_replayed(log.history, QUERY, "3", planned_at)


def test_an_epoch_that_was_planned_after_it_was_written_may_hold_other_rows():
    log = Log()
    log.commit(log.open("3"))
    with pytest.raises(RewoundCheckpoint, match=r"Epoch 3 is committed.*on_rewind") as caught:
        check_replayed(log.history, QUERY, "3", NOW + timedelta(milliseconds=1))
    assert "epoch=3" in str(caught.value)


@pytest.mark.parametrize("behind", [timedelta(hours=-1), timedelta(hours=1)])
def test_a_clock_jump_between_two_drivers_does_not_change_the_decision(behind):
    log = Log()
    log.commit(log.open("3", planned_at=NOW + behind))
    check_replayed(log.history, QUERY, "3", NOW + behind)
    for other in (NOW + behind * 2, NOW, NOW + behind / 2, None):
        with pytest.raises(RewoundCheckpoint, match="planned it again since"):
            check_replayed(log.history, QUERY, "3", other)


def test_an_epoch_before_the_last_one_without_a_record_is_not_skipped():
    log = Log()
    log.commit(log.open("3"))
    with pytest.raises(RewoundCheckpoint, match="Epoch 2 comes before epoch 3"):
        check_replayed(log.history, QUERY, "2", NOW - timedelta(days=1))


def test_an_aborted_epoch_runs_as_the_next_attempt():
    log = Log()
    last = log.abort(log.open("0"), ReasonKind.POISONED)
    assert decide_epoch(log.history, QUERY, "0") == Run(2, last)


def test_an_unfinished_epoch_must_be_ended_first():
    log = Log()
    log.open("0")
    with pytest.raises(ValueError, match="unfinished"):
        decide_epoch(log.history, QUERY, "0")


def test_a_new_streaming_query_is_refused_with_hints():
    log = Log()
    log.commit(log.open("0"))
    with pytest.raises(NewLineage, match=r"old checkpoint.*new sink_id.*continue"):
        check_lineage(log.history, "another", "0", "refuse")
    check_lineage(log.history, "another", "0", "continue")
    check_lineage(log.history, QUERY, "0", "refuse")
    check_lineage(log.history, BATCH, "a key", "refuse")


def test_a_streaming_query_may_follow_batch_writes():
    log = Log()
    log.commit(log.open("a key", query=BATCH))
    check_lineage(log.history, QUERY, "0", "refuse")


def test_a_query_that_failed_before_its_first_transaction_does_not_own_the_sink():
    log = Log()
    reason = Reason(ReasonKind.INPUT, "a column is missing")
    failed = log._add(LogRecord.failed(log.claim, query_id=QUERY, epoch="0", reason=reason))
    check_lineage(log.history, "another", "0", "refuse")
    given_up = Reason(ReasonKind.DECIDED, "Ada: test data")
    check_lineage(log.history, QUERY, "1", "refuse")  # the log is not lost: epoch 0 is missing
    with pytest.raises(UnfinishedEpoch, match="Epoch 0 ended in an error"):
        decide_epoch(log.history, QUERY, "1")
    log._add(failed.advance(State.ABANDONED, claim=log.claim, reason=given_up))
    check_lineage(log.history, "another", "0", "refuse")
    check_lineage(log.history, QUERY, "0", "refuse")
    check_lineage(log.history, QUERY, "1", "refuse")
    with pytest.raises(NewLineage, match="holds nothing of it"):
        check_lineage(log.history, "another", "1", "refuse")


def test_a_renamed_sink_waits_for_an_attempt_that_may_still_be_committed():
    log = Log()
    log.commit(log.open("0"))
    with pytest.raises(NewLineage, match="up to 0 are done there: 0 would be written twice"):
        check_not_renamed(log.history, QUERY, "0", "continue")
    with pytest.raises(NewLineage, match="last epoch there is 0"):
        check_not_renamed(log.history, QUERY, "1", "refuse")
    opened = log.open("1")
    with pytest.raises(NewLineage, match="may still be committed"):
        check_not_renamed(log.history, QUERY, "1", "continue")
    reason = Reason(ReasonKind.FAILED, "the topic is terminated")
    log._add(opened.advance(State.ABORTING, claim=log.claim, reason=reason))
    check_not_renamed(log.history, QUERY, "1", "continue")


@pytest.mark.parametrize("batch_writes", [False, True])
def test_a_query_past_its_first_epoch_without_records_is_refused(batch_writes):
    log = Log()
    if batch_writes:
        log.commit(log.open("a key", query=BATCH))
    with pytest.raises(NewLineage, match=r"at epoch 7, .*right commit_log.*continue"):
        check_lineage(log.history, QUERY, "7", "refuse")
    check_lineage(log.history, QUERY, "7", "continue")
    check_lineage(log.history, BATCH, "7", "refuse")
    log.commit(log.open("0"))
    check_lineage(log.history, QUERY, "7", "refuse")


def aborted(log: Log, epoch: str, query: str = QUERY) -> None:
    opened = log.open(epoch, query=query)
    reason = Reason(ReasonKind.FAILED, "ValueError")
    aborting = log._add(opened.advance(State.ABORTING, claim=log.claim, reason=reason))
    log._add(aborting.advance(State.ABORTED, claim=log.claim))


def failed(log: Log, epoch: str, query: str = QUERY) -> None:
    reason = Reason(ReasonKind.BROKER, "no answer")
    log._add(LogRecord.failed(log.claim, query_id=query, epoch=epoch, reason=reason))


@pytest.mark.parametrize("end", [aborted, failed])
def test_no_epoch_follows_one_that_failed_or_was_aborted(end):
    log = Log()
    end(log, "3")
    for later in ("4", "17"):
        with pytest.raises(UnfinishedEpoch, match=r"Epoch 3 ended.*offsets/4"):
            decide_epoch(log.history, QUERY, later)
    assert isinstance(decide_epoch(log.history, QUERY, "3"), Run)
    assert decide_epoch(log.history, "another query", "4") == Run(1, None)


@pytest.mark.parametrize("end", [aborted, failed])
def test_an_abandoned_epoch_may_be_followed_and_may_still_run(end):
    log = Log()
    end(log, "3")
    newest = log.history.newest(QUERY, "3")
    reason = Reason(ReasonKind.DECIDED, "ada: sent by hand")
    log._add(newest.advance(State.ABANDONED, claim=log.claim, reason=reason))
    assert decide_epoch(log.history, QUERY, "4") == Run(1, None)
    again = decide_epoch(log.history, QUERY, "3")
    assert again.attempt == (newest.attempt or 0) + 1


def test_a_given_up_epoch_that_a_later_one_has_passed_is_skipped():
    """A checkpoint that was set back asks for it; the log takes no attempt of it any more."""
    log = Log()
    aborted = log.abort(log.open("0", planned_at=NOW), ReasonKind.FAILED)
    decided = Reason(ReasonKind.DECIDED, "ada: given up")
    log._add(aborted.advance(State.ABANDONED, claim=log.claim, reason=decided))
    log.commit(log.open("1"))
    assert decide_epoch(log.history, QUERY, "0") == Skip(None)
    for planned_at in (NOW, NOW + timedelta(days=1)):
        with pytest.raises(RewoundCheckpoint, match="has it as ABANDONED"):
            check_replayed(log.history, QUERY, "0", planned_at)


def test_batch_keys_have_no_order():
    log = Log()
    failed_keys = ("2", "b")
    for key in failed_keys:
        aborted(log, key, BATCH)
    assert isinstance(decide_epoch(log.history, BATCH, "3"), Run)


def test_the_command_that_gives_an_epoch_up_can_be_copied():
    error = unfinished_epoch_error(QUERY, "5", "4", "it failed", State.FAILED, sink_id="my orders")
    assert error.hint.splitlines()[-1] == (
        f"eos recovery decide 'my orders' --query {QUERY} --epoch 4 --as abandoned --because TEXT"
    )
    # An epoch that is not in the log can't be decided.
    error = unfinished_epoch_error(QUERY, "5", "4", "why", None, sink_id="s")
    assert "eos recovery" not in error.hint
    assert 'on_gap="continue"' in error.hint


@pytest.mark.parametrize("state", sorted(UNFINISHED))
def test_an_epoch_that_may_be_readable_is_not_to_be_given_up(state: State):
    """The command for that would be refused."""
    error = unfinished_epoch_error(QUERY, "5", "4", "InDoubt", state, sink_id="s")
    assert error.hint.splitlines()[-1] == "eos recovery resolve s --apply"
    assert f"as {state}" in error.hint
    assert "decide" not in error.hint
