"""Objections to a decision: every rule, on constructed evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.protocol import Known, LogRecord, State
from eos.pulsar.end_rules import MarkAnswer, WitnessAnswer
from eos.recovery._decision_checks import Verdict, objections
from eos.recovery._evidence import AtCoordinator, Evidence, OutputEvidence, PartitionEvidence
from tests.protocol.epochs import FAILED, claim, opened, step
from tests.support.logs import abandoned_epoch, aborted_epoch, failed_epoch

PREPARED = step(opened(claim()), State.PREPARED, claim())
ABORTED = Verdict.ABORTED
COMMITTED = Verdict.COMMITTED
ABANDONED = Verdict.ABANDONED


def part(readable: int | None, *, is_whole: bool = False) -> PartitionEvidence:
    return PartitionEvidence(
        topic="t", first_id="", last_id="", records=3, readable=readable, is_whole=is_whole, says=""
    )


def evidence(**changes) -> Evidence:
    """Evidence that proves nothing."""
    facts = {
        "sink_id": "orders",
        "moments": [],
        "txn": "(3,7)",
        "age_s": 700.0,
        "ttl_left_s": -100.0,
        "receipt_topic": "r",
        "has_receipt_topic": False,
        "mark": MarkAnswer.ABSENT,
        "witness": WitnessAnswer.NOT_ASKED,
        "outputs": [],
        "partitions": [part(0)],
        "at_coordinator": AtCoordinator.GONE,
    }
    return Evidence(**{**facts, **changes})


@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
def test_without_evidence_there_is_no_objection(verdict):
    assert objections(PREPARED, verdict, evidence()) == []


@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
@pytest.mark.parametrize("said", [AtCoordinator.NOT_ASKED, AtCoordinator.OTHER_TRANSACTION])
def test_without_the_coordinator_clocks_may_differ(verdict, said):
    """Else a driver whose clock is late, and which sleeps after PREPARED, commits afterwards."""
    (one,) = objections(PREPARED, verdict, evidence(at_coordinator=said))
    assert "for another 8 min (time to live, and 10 min for clocks that differ)" in one.text
    over = evidence(at_coordinator=said, ttl_left_s=-601.0)
    assert objections(PREPARED, verdict, over) == []


FOUND = {"mark": MarkAnswer.FOUND}


@pytest.mark.parametrize(
    ("changes", "committed", "aborted"),
    [
        ({"ttl_left_s": 5.0}, "time to live", "time to live"),
        ({"at_coordinator": AtCoordinator.OPEN}, "still open", "still open"),
        ({"at_coordinator": AtCoordinator.COMMITTING}, None, "is committing"),
        ({"at_coordinator": AtCoordinator.ABORTING}, "is aborting", None),
        ({"partitions": [part(1), part(0)]}, None, "1 messages of its transaction are readable"),
        (
            {"partitions": [part(3, is_whole=True)]},
            "`resolve` proves the outcome by them",
            "are readable",
        ),
        (FOUND, "`resolve` ends the epoch", "`resolve` ends the epoch"),
        (
            {**FOUND, "witness": WitnessAnswer.PROVED_ABSENT},
            "proved absent",
            "`resolve` ends the epoch",
        ),
        ({**FOUND, "witness": WitnessAnswer.READABLE}, None, "receipt is readable"),
        (
            {
                **FOUND,
                "witness": WitnessAnswer.READABLE,
                "partitions": [part(3, is_whole=True)],
            },
            "`resolve` ends the epoch",
            "receipt is readable",
        ),
    ],
)
def test_contradicted_and_provable_decisions_are_refused(changes, committed, aborted):
    for verdict, text in ((COMMITTED, committed), (ABORTED, aborted)):
        found = objections(PREPARED, verdict, evidence(**changes))
        assert bool(found) == (text is not None)
        assert text is None or any(text in one.text for one in found)
        assert not any(one.is_unknown for one in found)


@pytest.mark.parametrize(
    "changes",
    [
        {"mark": MarkAnswer.UNKNOWN},
        {"partitions": [part(None)]},
        {"at_coordinator": AtCoordinator.UNKNOWN},
    ],
)
@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
def test_missing_answers_are_unknown(changes, verdict):
    (one,) = objections(PREPARED, verdict, evidence(**changes))
    assert one.is_unknown


@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
def test_silent_output_is_an_objection_unless_given_up(verdict):
    silent = OutputEvidence(
        kind="delta",
        output="/t",
        says="",
        known=Known.UNKNOWN,
        is_provable=False,
        has_answered=False,
    )
    seen = evidence(outputs=[silent], witness=WitnessAnswer.READABLE, mark=MarkAnswer.FOUND)
    (one,) = objections(PREPARED, verdict, seen)
    assert one.is_unknown
    assert "--give-up /t" in one.text
    assert not any(one.is_unknown for one in objections(PREPARED, verdict, seen, ["/t"]))


def output(known: Known) -> OutputEvidence:
    return OutputEvidence(
        kind="delta", output="/t", says="", known=known, is_provable=True, has_answered=True
    )


@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
def test_an_output_with_later_commits_forbids_all_decisions(verdict):
    (one,) = objections(PREPARED, verdict, evidence(outputs=[output(Known.OVERTAKEN)]))
    assert "older copy" in one.text


def test_a_topic_that_is_proved_by_its_messages_lets_a_lost_output_be_given_up():
    """`resolve` sends to this decision."""
    several = replace(PREPARED, participants=(*PREPARED.participants, PREPARED.participants[0]))
    seen = evidence(outputs=[output(Known.ABORTED)], partitions=[part(3, is_whole=True)])
    assert objections(several, COMMITTED, seen) == []
    assert objections(several, ABORTED, seen) != []


@pytest.mark.parametrize(
    ("record", "allowed"),
    [
        (opened(claim()), []),
        (step(opened(claim()), State.ABORTING, claim(), FAILED), []),
        (PREPARED, [COMMITTED, ABORTED]),
        (step(PREPARED, State.COMMITTED, claim()), []),
        (aborted_epoch(claim(), "0")[-1], [ABANDONED]),
        (failed_epoch(claim(), "1"), [ABANDONED]),
        (abandoned_epoch(claim(), "0")[-1], []),
    ],
    ids=lambda value: value.state if isinstance(value, LogRecord) else "",
)
def test_allowed_verdicts_of_each_state(record, allowed):
    assert [v for v in Verdict if not objections(record, v, evidence())] == allowed
