"""What speaks against a decision: every rule, on evidence made by hand."""

from __future__ import annotations

import pytest

from eos.protocol import Known, LogRecord, State
from eos.pulsar.end_queries import MarkAnswer, WitnessAnswer
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
    """Nothing proves anything."""
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
def test_where_nothing_proves_anything_nothing_speaks_against_it(verdict):
    assert objections(PREPARED, verdict, evidence()) == []
    stranger = evidence(at_coordinator=AtCoordinator.STRANGER)
    assert objections(PREPARED, verdict, stranger) == []
    not_asked = evidence(at_coordinator=AtCoordinator.NOT_ASKED)
    assert objections(PREPARED, verdict, not_asked) == []


FOUND = {"mark": MarkAnswer.FOUND}


@pytest.mark.parametrize(
    ("changes", "committed", "aborted"),
    [
        ({"ttl_left_s": 5.0}, "time to live", "time to live"),
        ({"at_coordinator": AtCoordinator.OPEN}, "open still", "open still"),
        ({"at_coordinator": AtCoordinator.COMMITTING}, None, "about to commit"),
        ({"at_coordinator": AtCoordinator.ABORTING}, "about to abort", None),
        ({"partitions": [part(1), part(0)]}, None, "1 messages of its transaction are readable"),
        ({"partitions": [part(3, is_whole=True)]}, "`resolve` proves by them", "are readable"),
        (FOUND, "`resolve` ends it", "`resolve` ends it"),
        ({**FOUND, "witness": WitnessAnswer.PROVED_ABSENT}, "proved absent", "`resolve` ends it"),
        ({**FOUND, "witness": WitnessAnswer.READABLE}, None, "receipt is readable"),
        (
            {
                **FOUND,
                "witness": WitnessAnswer.READABLE,
                "partitions": [part(3, is_whole=True)],
            },
            "`resolve` ends it",
            "receipt is readable",
        ),
    ],
)
def test_what_the_evidence_contradicts_or_proves_is_refused(changes, committed, aborted):
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
def test_an_answer_that_is_missing_is_no_evidence(changes, verdict):
    (one,) = objections(PREPARED, verdict, evidence(**changes))
    assert one.is_unknown


@pytest.mark.parametrize("verdict", [COMMITTED, ABORTED])
def test_an_output_that_gives_no_answer_is_waited_for_unless_it_is_given_up(verdict):
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
def test_each_state_has_its_verdicts(record, allowed):
    assert [v for v in Verdict if not objections(record, v, evidence())] == allowed
