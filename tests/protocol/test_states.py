"""The transition table: the states that may follow each state."""

from __future__ import annotations

import itertools

import pytest

from eos.protocol import FINAL, TRANSITIONS, UNFINISHED, State, diagram, is_allowed, targets

ALLOWED = {
    (None, State.OPEN),
    (State.OPEN, State.PREPARED),
    (State.OPEN, State.ABORTING),
    (State.PREPARED, State.COMMITTED),
    (State.PREPARED, State.ABORTED),
    (State.PREPARED, State.ABORTING),
    (State.ABORTING, State.ABORTED),
    (State.ABORTING, State.EMPTY),
    (State.ABORTED, State.OPEN),
    (None, State.FAILED),
    (State.FAILED, State.OPEN),
    (State.ABORTED, State.ABANDONED),
    (State.FAILED, State.ABANDONED),
    (State.ABANDONED, State.OPEN),
}


@pytest.mark.parametrize(("source", "target"), list(itertools.product([None, *State], State)))
def test_exactly_the_designed_steps_are_allowed(source, target):
    assert is_allowed(source, target) == ((source, target) in ALLOWED)


def test_only_final_states_have_no_successor():
    for state in set(State) - {State.CLAIMED}:
        assert bool(targets(state)) == (state not in FINAL)


def test_no_transaction_commits_without_having_been_prepared():
    assert [step.source for step in TRANSITIONS if step.target is State.COMMITTED] == [
        State.PREPARED
    ]


def test_every_unfinished_state_leads_to_an_end_without_a_new_transaction():
    for state in UNFINISHED:
        ends, reached = {state}, set()
        while ends:
            reached |= ends
            ends = {t for s in ends - {State.ABORTED} for t in targets(s)} - reached
        assert reached & (FINAL | {State.ABORTED})
        assert reached <= UNFINISHED - {State.OPEN} | {state} | FINAL | {State.ABORTED}


def test_a_claim_does_not_belong_to_an_epoch():
    assert targets(State.CLAIMED) == frozenset()
    assert all(State.CLAIMED not in (step.source, step.target) for step in TRANSITIONS)


def test_the_diagram_draws_each_step_of_the_table_once_and_nothing_else():
    lines = diagram().splitlines()
    assert lines[0] == "stateDiagram-v2"
    drawn = [line.strip().split(":")[0] for line in lines[1:]]
    expected = [f"{step.source or '[*]'} --> {step.target}" for step in TRANSITIONS]
    assert drawn == [*expected, "COMMITTED --> [*]", "EMPTY --> [*]"]
