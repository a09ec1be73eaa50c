"""Assertions on single records and on two records of one epoch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from eos.errors import CommitLogError
from eos.ids import MessageId, TxnId
from eos.protocol import LogRecord, Reason, ReasonKind, State, check_record, check_successor
from eos.pulsar.part import pulsar_part
from tests.protocol import epochs
from tests.protocol.epochs import (
    EMPTY,
    EXPIRED,
    FAILED,
    FIGURES,
    MARK_ID,
    NOW,
    at,
    changed,
    claim,
    opened,
    step,
)

CLAIM = claim()
OPEN = opened(CLAIM)
PREPARED = step(OPEN, State.PREPARED, CLAIM)
COMMITTED = step(PREPARED, State.COMMITTED, CLAIM)
EXPIRED_LATE = step(PREPARED, State.ABORTED, CLAIM, EXPIRED)
ABORTING = step(OPEN, State.ABORTING, CLAIM, FAILED)
ABORTED = step(ABORTING, State.ABORTED, CLAIM)
ABORTING_EMPTY = step(OPEN, State.ABORTING, CLAIM, EMPTY)
DONE_EMPTY = step(ABORTING_EMPTY, State.EMPTY, CLAIM)
AGAIN = opened(CLAIM, attempt=2, least=8)

DECIDED = Reason(ReasonKind.DECIDED, "ada: the topic was restored from a backup")
NO_TXN = LogRecord.failed(CLAIM, query_id=epochs.QUERY, epoch="0", reason=FAILED)
GIVEN_UP = step(ABORTED, State.ABANDONED, CLAIM, DECIDED)
GIVEN_UP_WITHOUT_TXN = step(NO_TXN, State.ABANDONED, CLAIM, DECIDED)
COMMITTED_BY_A_PERSON = step(PREPARED, State.COMMITTED, CLAIM, DECIDED)
ABORTED_BY_A_PERSON = step(PREPARED, State.ABORTED, CLAIM, DECIDED)

GOOD = [
    CLAIM, OPEN, PREPARED, COMMITTED, EXPIRED_LATE, ABORTING, ABORTED, DONE_EMPTY, AGAIN,
    NO_TXN, GIVEN_UP, GIVEN_UP_WITHOUT_TXN, COMMITTED_BY_A_PERSON, ABORTED_BY_A_PERSON,
]  # fmt: skip
PARTITION = FIGURES[0]


def ids(records):
    return [record.state.value for record in records]


@pytest.mark.parametrize("record", GOOD, ids=ids(GOOD))
def test_a_good_record_of_each_state_passes(record):
    check_record(at(record, 1))


@pytest.mark.parametrize("record", [OPEN, PREPARED, COMMITTED, ABORTING, ABORTED, DONE_EMPTY])
@pytest.mark.parametrize(
    "column",
    ["query_id", "epoch", "attempt", "txn", "ttl_ms", "opened_at", "mark_id", "mark_uuid"],
)
def test_every_record_of_an_epoch_carries_the_fields_of_its_attempt(record, column):
    with pytest.raises(CommitLogError, match=f"{column} is missing"):
        check_record(at(changed(record, **{column: None}), 1))


@pytest.mark.parametrize(
    "column",
    ["query_id", "epoch", "attempt", "txn", "ttl_ms", "opened_at", "mark_id", "mark_uuid"],
)
def test_a_claim_carries_nothing_of_an_epoch(column):
    with pytest.raises(CommitLogError, match=f"{column} does not belong there"):
        check_record(
            at(
                changed(
                    CLAIM,
                    **{column: getattr(OPEN, column, None) or getattr(pulsar_part(OPEN), column)},
                ),
                1,
            )
        )


@pytest.mark.parametrize(
    ("record", "change", "why"),
    [
        (OPEN, {"receipt_id": epochs.RECEIPT_ID}, "receipt_id does not belong"),
        (OPEN, {"records": 0}, "records does not belong"),
        (OPEN, {"partitions": FIGURES}, "partitions do not belong"),
        (OPEN, {"reason": FAILED}, "reason does not belong"),
        (PREPARED, {"receipt_id": None}, "receipt_id is missing"),
        (PREPARED, {"partitions": ()}, "not the sum"),
        (PREPARED, {"checksum": None}, "checksum is missing"),
        (PREPARED, {"reason": FAILED}, "reason does not belong"),
        (COMMITTED, {"reason": FAILED}, "reason does not belong"),
        (NO_TXN, {"txn": TxnId(3, 7)}, "txn does not belong"),
        (NO_TXN, {"reason": None}, "reason is missing"),
        (GIVEN_UP, {"reason": FAILED}, "ABANDONED without a person"),
        (COMMITTED, {"receipt_id": None}, "receipt_id is missing"),
        (ABORTING, {"reason": None}, "reason is missing"),
        (ABORTING, {"receipt_id": epochs.RECEIPT_ID}, "receipt_id does not belong"),
        (EXPIRED_LATE, {"records": None}, "bytes does not belong"),
        (ABORTED, {"records": 0}, "bytes is missing"),
        (DONE_EMPTY, {"records": None}, "records is missing"),
        (DONE_EMPTY, {"receipt_id": epochs.RECEIPT_ID}, "receipt_id does not belong"),
    ],
)
def test_each_state_has_its_own_columns_and_no_others(record, change, why):
    with pytest.raises(CommitLogError, match=why):
        check_record(at(changed(record, **change), 1))


@pytest.mark.parametrize(
    ("record", "change", "why"),
    [
        (PREPARED, {"records": 5}, "not the sum"),
        (PREPARED, {"bytes": 299}, "not the sum"),
        (PREPARED, {"checksum": 3}, "not the sum"),
        (DONE_EMPTY, {"records": 1}, "not the sum"),
        (PREPARED, {"partitions": (PARTITION, PARTITION)}, "twice"),
        (PREPARED, {"partitions": (replace(PARTITION, records=0),)}, "0 records"),
        (PREPARED, {"partitions": (replace(PARTITION, bytes=-1),)}, "-1 bytes"),
        (PREPARED, {"partitions": (replace(PARTITION, checksum=2**64),)}, "uint64"),
        (PREPARED, {"partitions": (replace(PARTITION, producers=()),)}, "producers are missing"),
        (
            PREPARED,
            {"partitions": (replace(PARTITION, first_id=MessageId(22, 0)),)},
            "first_id is after",
        ),
        (PREPARED, {"partitions": (replace(PARTITION, last_id=MessageId(-1, -1)),)}, "last_id"),
        (PREPARED, {"receipt_id": MARK_ID}, "not after mark"),
        (PREPARED, {"receipt_id": MessageId(16, 99)}, "not after mark"),
        (OPEN, {"mark_id": MessageId(-1, -1)}, "mark_id"),
        (OPEN, {"mark_uuid": "mark"}, "hexadecimal|uuid"),
        (OPEN, {"attempt": 0}, "attempt is 0"),
        (OPEN, {"ttl_ms": 0}, "24 hours"),
        (OPEN, {"ttl_ms": 24 * 3600 * 1000 + 1}, "24 hours"),
        (OPEN, {"txn": TxnId(-1, 0)}, "out of range"),
        (OPEN, {"txn": TxnId(0, 2**63)}, "out of range"),
        (OPEN, {"opened_at": datetime(2026, 1, 1)}, "opened_at is not in UTC"),
        (DONE_EMPTY, {"reason": FAILED}, "EMPTY has the reason FAILED"),
        (CLAIM, {"run_id": ""}, "run_id is empty"),
        (CLAIM, {"receipt_topic": ""}, "receipt_topic is empty"),
        (CLAIM, {"sink_id": "../orders"}, "sink_id"),
        (CLAIM, {"record_version": 3}, "newer release"),
        (CLAIM, {"record_version": 0}, "record_version 0"),
    ],
)
def test_an_impossible_value_is_refused(record, change, why):
    with pytest.raises(CommitLogError, match=why):
        check_record(at(changed(record, **change), 1))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"seq": 0}, "seq is 0"),
        ({"written_at": None}, "written_at is missing"),
        ({"written_at": datetime(2026, 1, 1)}, "written_at is not in UTC"),
        (
            {"written_at": NOW.astimezone(timezone(timedelta(hours=1)))},
            "written_at is not in UTC",
        ),
    ],
)
def test_a_record_has_a_seq_and_a_time(change, why):
    with pytest.raises(CommitLogError, match=why):
        check_record(changed(at(CLAIM, 1), **change))


@pytest.mark.parametrize(
    "url",
    [
        "pulsar://user:hunter2@localhost:6650",
        "pulsar://hunter2@localhost:6650",
        "pulsar://localhost:6650?token=hunter2",
        "pulsar://localhost:6650#hunter2",
        "hunter2",
    ],
)
def test_a_service_url_with_credentials_is_refused_and_not_repeated(url):
    with pytest.raises(CommitLogError, match="service_url") as caught:
        check_record(at(changed(CLAIM, service_url=url), 1))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "epoch", ["", "07", "+7", "-1", "7.0", " 7", "seven", "\u0667", "7\n", "9" * 19]
)
def test_an_epoch_of_a_streaming_query_is_a_plain_number(epoch):
    with pytest.raises(CommitLogError, match="epoch"):
        check_record(at(changed(OPEN, epoch=epoch), 1))


@pytest.mark.parametrize("key", ["2026-11-20", "07", "été 🌊", "a/b c", "x" * 1024])
def test_a_batch_key_may_be_any_text(key):
    check_record(at(changed(OPEN, query_id="batch", epoch=key), 1))


@pytest.mark.parametrize("key", ["", "x" * 1025, "a\nb", "a\0", "\x7f", "\x85", "\ud800"])
def test_a_batch_key_is_not_empty_bounded_and_printable(key):
    with pytest.raises(CommitLogError, match="epoch"):
        check_record(at(changed(OPEN, query_id="batch", epoch=key), 1))


@pytest.mark.parametrize(
    ("previous", "record"),
    [
        (None, OPEN),
        (OPEN, PREPARED),
        (PREPARED, COMMITTED),
        (PREPARED, EXPIRED_LATE),
        (EXPIRED_LATE, AGAIN),
        (OPEN, ABORTING),
        (ABORTING, ABORTED),
        (ABORTED, AGAIN),
        (ABORTING_EMPTY, DONE_EMPTY),
        # Recovery that finds an epoch being aborted as empty may end it either way.
        (ABORTING_EMPTY, step(ABORTING_EMPTY, State.ABORTED, claim("run-2"))),
        (OPEN, step(OPEN, State.ABORTING, claim("run-2"), FAILED)),
        (PREPARED, step(PREPARED, State.COMMITTED, claim("run-2"))),
    ],
)
def test_a_record_may_follow_where_the_table_allows_it(previous, record):
    check_successor(previous, record)


@pytest.mark.parametrize(
    ("previous", "record", "why"),
    [
        (None, PREPARED, "after no record comes FAILED, OPEN"),
        (None, AGAIN, "first attempt is number 1"),
        (None, CLAIM, "belongs to a sink"),
        (OPEN, COMMITTED, "after OPEN comes ABORTING, PREPARED"),
        (OPEN, AGAIN, "after OPEN comes"),
        (ABORTING, PREPARED, "after ABORTING comes"),
        (ABORTED, PREPARED, "after ABORTED comes ABANDONED, OPEN"),
        (COMMITTED, AGAIN, "nothing: the epoch is done"),
        (DONE_EMPTY, AGAIN, "nothing: the epoch is done"),
        (ABORTED, changed(AGAIN, attempt=3), "attempt is 3, not 2"),
        (ABORTED, changed(AGAIN, attempt=1), "attempt is 1, not 2"),
        (ABORTED, changed(AGAIN, mark_uuid=pulsar_part(OPEN).mark_uuid), "mark_uuid"),
        (ABORTED, changed(AGAIN, epoch="1"), "another epoch"),
        (OPEN, changed(PREPARED, attempt=2), "attempt is 2"),
        (OPEN, changed(PREPARED, txn=TxnId(3, 8)), "txn is not that"),
        (OPEN, changed(PREPARED, mark_id=MessageId(17, 5)), "mark_id is not that"),
        (OPEN, changed(PREPARED, mark_uuid=pulsar_part(AGAIN).mark_uuid), "mark_uuid is not that"),
        (OPEN, changed(PREPARED, ttl_ms=1), "ttl_ms is not that"),
        (PREPARED, changed(COMMITTED, receipt_id=MessageId(17, 10)), "receipt_id is not that"),
        (PREPARED, changed(COMMITTED, records=9), "records is not that"),
        (PREPARED, changed(COMMITTED, partitions=FIGURES[:1]), "partitions is not that"),
        (PREPARED, changed(EXPIRED_LATE, reason=FAILED), "only EXPIRED"),
        (ABORTING, changed(ABORTED, reason=EXPIRED), "the reason was FAILED"),
        (ABORTING, DONE_EMPTY, "the reason was FAILED"),
        (ABORTING, changed(EXPIRED_LATE, reason=FAILED), "figures without PREPARED"),
        (OPEN, step(OPEN, State.PREPARED, claim("run-2")), "did not open the transaction"),
        (OPEN, step(OPEN, State.ABORTING, claim("run-2"), EMPTY), "did not open the transaction"),
    ],
)
def test_a_record_that_contradicts_the_one_before_is_refused(previous, record, why):
    with pytest.raises(CommitLogError, match=why):
        check_successor(previous, record)


def test_totals_are_sums_and_the_checksum_wraps_at_two_to_the_64():
    assert (PREPARED.records, PREPARED.bytes, PREPARED.checksum) == (4, 300, 2)


def test_an_error_names_the_epoch_and_its_transaction():
    with pytest.raises(CommitLogError) as caught:
        check_successor(None, PREPARED)
    assert caught.value.context == {
        "sink_id": "orders",
        "query_id": epochs.QUERY,
        "epoch": "0",
        "txn_id": "(3,7)",
    }


@pytest.mark.parametrize("kind", ReasonKind)
def test_a_reason_survives_its_text(kind):
    reason = Reason(kind, "what: happened")
    assert str(reason) == f"{kind}: what: happened"
    assert Reason.parse(str(reason)) == reason
    assert Reason.parse(str(Reason(kind, ""))) == Reason(kind, "")


@pytest.mark.parametrize("text", ["", "FAILED", "OOPS: what", "failed: what"])
def test_a_text_without_a_known_kind_is_refused_as_a_reason(text):
    with pytest.raises(ValueError, match=r"reason|ReasonKind"):
        Reason.parse(text)


def test_any_text_of_an_error_makes_a_reason_of_one_bounded_line():
    reason = Reason(ReasonKind.FAILED, " a\n\tb\0c \ud800 " + "x" * 1000)
    assert reason.detail.startswith("a b c xxx")
    assert reason.detail.endswith("...")
    assert len(reason.detail) == 500
    assert Reason.parse(str(reason)) == reason


def test_a_reason_keeps_what_is_added_to_it():
    added = "; without table /t (the disk is full)"
    long = Reason(ReasonKind.DECIDED, "Ada: " + "x" * 600).ending_in(added)
    assert long.detail.startswith("Ada: xxx")
    assert long.detail.endswith(f"xxx...{added}")
    assert len(long.detail) == 500
    assert Reason(ReasonKind.DECIDED, "Ada: x").ending_in(added).detail == f"Ada: x{added}"


@pytest.mark.parametrize("length", [1, 400, 470, 480, 483, 484])
def test_what_an_output_answers_takes_no_room_of_a_person_s_reason(length):
    said = "Ada: " + "x" * length
    kept = Reason(ReasonKind.DECIDED, said).ending_in("; without t", answers=" (" + "y" * 600 + ")")
    assert kept.detail.startswith(f"{said}; without t")
    assert len(kept.detail) <= 500
