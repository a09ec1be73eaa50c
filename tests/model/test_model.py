"""Search of the protocol, small enough for a test; ``make model`` searches further."""

from __future__ import annotations

import pytest

from tests.model.explorer import search
from tests.model.mutants import MUTANTS
from tests.model.records import history_of
from tests.model.sometimes import SOMETIMES
from tests.model.transcript import SCENARIOS, path_of, transcript
from tests.model.world import Faults

ALL_FAULTS = Faults(
    lives=2, crashes=1, replies=1, expiries=1, tasks=1, reloads=1, trims=1, wipes=1, swallows=1
)
SEARCHES = {
    "all faults together": (ALL_FAULTS, 130_000),
    "crashes, lost replies": (Faults(lives=2, crashes=1, replies=1, reloads=1), 50_000),
    "lost replies, a trimmed topic": (Faults(lives=1, replies=2, trims=1, reloads=1), None),
    "expiry": (Faults(lives=2, crashes=1, expiries=1), 40_000),
    "a topic and a table": (Faults(lives=2, crashes=1, expiries=1, tables=1), 50_000),
}


@pytest.fixture(scope="module")
def found():
    return {
        name: search(faults, max_states=limit, sometimes=SOMETIMES)
        for name, (faults, limit) in SEARCHES.items()
    }


def test_nothing_that_must_never_be_is_found(found):
    for name, one in found.items():
        assert one.wrong == "", "\n".join([name, *one.trace, one.wrong])
    assert found["lost replies, a trimmed topic"].is_complete
    assert sum(one.states for one in found.values()) >= 290_000


def test_every_interesting_state_is_reached(found):
    reached = {label for one in found.values() for label in one.reached}
    assert reached == set(SOMETIMES)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_protocol_without_one_of_its_rules_is_caught_and_its_transcript_is_kept(mutant):
    found = search(mutant.faults, mutant.rules, max_states=100_000)
    assert found.wrong
    assert path_of(mutant).read_text() == transcript(mutant, found)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_same_faults_do_no_harm_to_the_real_protocol(mutant):
    assert search(mutant.faults, max_states=10_000).wrong == ""


def test_no_transcript_is_left_of_a_mutant_that_is_gone():
    assert {path.name for path in SCENARIOS.iterdir()} == {path_of(one).name for one in MUTANTS}


def test_the_logs_of_the_model_are_read_by_production():
    assert history_of.cache_info().currsize > 100
