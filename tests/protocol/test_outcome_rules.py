"""The decision about an attempt and its participants, in every state and for every fate."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from eos.protocol import (
    ABORTED,
    COMMITTED,
    WITHOUT_TRANSACTION,
    AppendState,
    EndPart,
    Finished,
    Known,
    LogRecord,
    Reason,
    ReasonKind,
    State,
    StayInDoubt,
    UnknownPart,
    next_action,
    unknown,
)

SILENT = unknown("no answer")
FATES = (COMMITTED, ABORTED, SILENT)


def record(state: State, outputs: int = 1, reason: Reason | None = None) -> LogRecord:
    parts = [
        UnknownPart(kind=f"kind-{n}", can_expire=n == 0, output=f"output-{n}", text="{}")
        for n in range(outputs)
    ]
    return LogRecord(sink_id="s", state=state, run_id="r", participants=tuple(parts), reason=reason)


def every(outputs: int):
    """All combinations of outcomes that may be known of the first ones of so many participants."""
    for known in range(outputs + 1):
        yield from itertools.product(FATES, repeat=known)


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_a_part_is_committed_only_for_prepared_and_aborted_only_for_aborting(outputs):
    for state in set(State) - WITHOUT_TRANSACTION:
        for fates in every(outputs):
            action = next_action(record(state, outputs), fates)
            if isinstance(action, EndPart):
                assert (state, action.commit) in (
                    (State.PREPARED, True),
                    (State.ABORTING, False),
                )


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_no_part_is_committed_before_all_before_it_are(outputs):
    asked = {
        fates: action.index
        for fates in every(outputs)
        if isinstance(action := next_action(record(State.PREPARED, outputs), fates), EndPart)
    }
    assert asked == {(COMMITTED,) * n: n for n in range(outputs)}


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_committed_is_appended_only_when_all_parts_are_committed(outputs):
    for fates in every(outputs):
        action = next_action(record(State.PREPARED, outputs), fates)
        whole = fates == (COMMITTED,) * outputs
        assert (action == AppendState(State.COMMITTED)) is whole


def test_when_the_first_one_has_expired_the_others_are_aborted_by_the_log():
    alone = next_action(record(State.PREPARED, 1), [ABORTED])
    assert alone == AppendState(State.ABORTED, expired=True)
    first = next_action(record(State.PREPARED, 2), [ABORTED])
    assert first == AppendState(State.ABORTING, expired=True)
    assert next_action(record(State.ABORTING, 2), [ABORTED]) == EndPart(1, commit=False)
    assert next_action(record(State.ABORTING, 2), [ABORTED] * 2) == AppendState(State.ABORTED)


def test_nothing_is_aborted_any_more_once_one_is_committed():
    for later in (ABORTED, SILENT):
        action = next_action(record(State.PREPARED, 2), [COMMITTED, later])
        assert isinstance(action, StayInDoubt)


def test_prepared_data_lost_after_a_commit_is_named():
    action = next_action(record(State.PREPARED, 2), [COMMITTED, ABORTED])
    assert "output-0 is committed" in action.why
    assert "output-1 had prepared is gone" in action.why


def test_a_part_that_does_not_answer_does_not_keep_others_from_being_aborted():
    assert next_action(record(State.ABORTING, 2), [SILENT]) == EndPart(1, commit=False)
    assert isinstance(next_action(record(State.ABORTING, 2), [SILENT, ABORTED]), StayInDoubt)


@pytest.mark.parametrize("records", [None, 5])
def test_a_commit_that_the_log_never_decided_is_reported(records):
    ended = replace(record(State.ABORTING, 2), attempt=1, records=records)
    action = next_action(ended, [ABORTED, COMMITTED])
    assert "never decided" in action.why
    assert action.is_rolled_back == (records is None)  # it was never PREPARED


def test_an_open_attempt_is_marked_as_aborting_before_anything_else():
    for fates in every(2):
        assert next_action(record(State.OPEN, 2), fates) == AppendState(State.ABORTING)


@pytest.mark.parametrize("state", [State.COMMITTED, State.ABORTED, State.EMPTY, State.ABANDONED])
def test_a_final_record_needs_nothing(state):
    for fates in every(2):
        assert next_action(record(state, 2), fates) == Finished()


@pytest.mark.parametrize("state", [State.PREPARED, State.ABORTING])
def test_no_answer_stays_in_doubt(state):
    assert next_action(record(state), [SILENT]) == StayInDoubt("no answer")
    assert SILENT.known is Known.UNKNOWN


def test_an_abort_that_is_not_answered_ends_with_the_time_to_live():
    """A terminated topic takes no abort marker: the coordinator never answers."""
    aborted = AppendState(State.ABORTED)
    assert next_action(record(State.ABORTING), [SILENT], is_over=True) == aborted
    several = record(State.ABORTING, 2)
    assert next_action(several, [SILENT], is_over=True) == EndPart(1, commit=False)
    assert next_action(several, [SILENT, ABORTED], is_over=True) == aborted


@pytest.mark.parametrize(
    ("state", "fates"),
    [(State.PREPARED, [SILENT]), (State.ABORTING, [ABORTED, SILENT])],
    ids=["a commit", "an output that can't expire"],
)
def test_nothing_else_ends_with_the_time_to_live(state, fates):
    assert next_action(record(state, len(fates)), fates, is_over=True) == StayInDoubt("no answer")


def test_an_aborted_attempt_without_records_makes_the_epoch_empty():
    empty = Reason(ReasonKind.EMPTY, "no records")
    assert next_action(record(State.ABORTING, reason=empty), [ABORTED]) == AppendState(State.EMPTY)
    assert next_action(record(State.ABORTING), [ABORTED]) == AppendState(State.ABORTED)


@pytest.mark.parametrize("state", sorted(WITHOUT_TRANSACTION))
def test_a_claim_and_an_epoch_without_an_attempt_have_no_next_action(state):
    with pytest.raises(ValueError, match="does not belong to an attempt"):
        next_action(record(state), [])
