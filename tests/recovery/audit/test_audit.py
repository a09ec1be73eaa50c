"""The counting of ``verify``, on constructed entries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.ids import MessageId, TxnId
from eos.protocol import State
from eos.pulsar.part import pulsar_part
from eos.recovery.audit.partition import Attempts, PartitionAudit
from eos.task_report import PartitionFigures
from eos.wire.batch import Entry, Message, encode_batches, rows_from_messages
from eos.wire.checksum import crc32c
from eos.wire.commands import MessageMetadata
from tests.protocol.epochs import EMPTY, FAILED, changed, claim, opened, step

TOPIC = "persistent://public/default/t"
OURS = TxnId(3, 7)
"""As returned by ``opened``."""


def entry(
    at: tuple[int, int], *messages: Message, producer: str = "p1", txn: TxnId | None = OURS
) -> Entry:
    (batch,) = encode_batches(rows_from_messages(messages))
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=0,
        publish_time=0,
        num_messages_in_batch=len(messages),
        compression=int(batch.compression),
        uncompressed_size=batch.uncompressed_bytes,
        txnid_most=txn.most if txn else None,
        txnid_least=txn.least if txn else None,
    )
    return Entry(MessageId(*at), metadata, bytes(batch.payload))


A, BC, DEF = Message(b"a", key="k"), Message(b"bc"), Message(b"def", key="x")
ENTRIES = [entry((5, 1), A, BC), entry((5, 3), DEF)]


def record(producer: str = "p1", state: State = State.COMMITTED, *, least: int = 7, **changes):
    figures = PartitionFigures(
        topic=TOPIC,
        producers=(producer,),
        records=3,
        bytes=8,
        checksum=crc32c(b"abck") + crc32c(b"defx"),
        first_id=MessageId(5, 1),
        last_id=MessageId(5, 3),
    )
    return changed(
        opened(claim(), least=least), state=state, partitions=(replace(figures, **changes),)
    )


def audited(entries, committed=None, others=(), oldest=5):
    """The audit of ``committed``; ``others`` are earlier attempts in the log."""
    committed = committed or record()
    mark = MessageId(17, 4)
    log = [changed(one, mark_id=mark._replace(entry=n)) for n, one in enumerate(others)]
    log.append(changed(committed, mark_id=MessageId(17, 99)))
    attempts = Attempts(log)
    named = [one for one in log[:-1] if pulsar_part(one).partitions]
    audit = PartitionAudit(TOPIC, log[-1:], named, attempts)
    for one in sorted(entries, key=lambda one: one.id):
        audit.take(one)
    return audit, audit.close(oldest)


def test_complete_entries_are_clean():
    audit, trimmed = audited(ENTRIES)
    assert (audit.findings, audit.strays, trimmed) == ([], [], [])
    assert (audit.records, audit.bytes, audit.others, audit.seen) == (3, 8, 0, {0})


def test_order_of_entries_does_not_matter_but_grouping_does():
    assert audited([entry((5, 1), DEF), entry((5, 3), A, BC)])[0].findings == []
    regrouped = [entry((5, 1), A), entry((5, 2), BC), entry((5, 3), DEF)]
    assert "another checksum" in audited(regrouped)[0].findings[0].what


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        (ENTRIES[:1], "2 of its 3 messages"),
        ([*ENTRIES, entry((5, 2), Message(b"a"))], "4 of its 3 messages"),
        ([ENTRIES[0], entry((5, 3), Message(b"defg", key="x"))], "hold 9 bytes, not 8"),
        ([ENTRIES[0], entry((5, 3), Message(b"dex", key="f"))], "another checksum"),
    ],
    ids=["lost", "twice", "longer", "other value"],
)
def test_any_difference_is_found(entries, what):
    audit, trimmed = audited(entries)
    assert [what in finding.what for finding in audit.findings] == [True]
    assert trimmed == []
    assert audit.findings[0].message_id is not None


@pytest.mark.parametrize(
    "stray",
    [
        entry((5, 0), BC),
        entry((6, 0), BC),
        entry((5, 2), BC, producer="p2"),
        entry((4, 0), BC, producer="p2"),
        entry((9, 0), BC, producer="p2"),
    ],
    ids=["before", "behind", "another producer", "another before", "another behind"],
)
def test_uncounted_message_of_the_transaction_is_a_stray(stray):
    audit, _ = audited([*ENTRIES, stray])
    assert audit.findings == []
    (found,) = audit.strays
    assert found.finding().message_id == str(stray.id)
    assert (
        "1 messages of its transaction (3,7) were not counted by any task" in found.finding().what
    )


@pytest.mark.parametrize("reading", ["from", "of the ledger"])
def test_reading_starts_where_a_repeated_task_may_have_written(reading):
    before = record("p0", least=6, first_id=MessageId(4, 8), last_id=MessageId(4, 9))
    others = [before] if reading == "from" else []
    expected = MessageId(4, 9) if others else MessageId(5, 0)
    assert audited([], others=others)[0].start == expected


def test_message_of_an_aborted_attempt_is_a_finding():
    dead = record("dead", State.ABORTED, least=6)
    audit, _ = audited(
        [*ENTRIES, entry((5, 2), BC, producer="dead", txn=pulsar_part(dead).txn)], others=[dead]
    )
    (stray,) = audit.strays
    assert (stray.first, stray.is_certain) == (MessageId(5, 2), True)
    assert "attempt 1, which is aborted, are readable" in stray.finding().what


def test_an_aborted_attempt_is_known_by_its_transaction_alone():
    aborting = step(opened(claim(), least=6), State.ABORTING, claim(), FAILED)
    for dead in (aborting, step(aborting, State.ABORTED, claim())):
        audit, _ = audited([*ENTRIES, entry((5, 2), BC, txn=pulsar_part(dead).txn)], others=[dead])
        (stray,) = audit.strays
        assert (pulsar_part(stray.record).txn, stray.is_certain, audit.seen) == (
            pulsar_part(dead).txn,
            False,
            {0},
        )


def test_messages_of_open_attempts_are_ignored():
    waiting = opened(claim(), least=6)
    audit, _ = audited(
        [*ENTRIES, entry((5, 2), BC, txn=pulsar_part(waiting).txn)], others=[waiting]
    )
    assert (audit.strays, audit.others) == ([], 0)


@pytest.mark.parametrize("txn", [None, TxnId(3, 99)])
def test_messages_of_other_producers_are_counted_without_a_finding(txn):
    theirs = [
        entry((5, 2), BC, BC, producer="q", txn=txn),
        entry((6, 0), BC, producer="q", txn=txn),
    ]
    audit, _ = audited([*ENTRIES, *theirs])
    assert (audit.findings, audit.strays, audit.others) == ([], [], 2)


def test_reused_ids_belong_to_another_cluster():
    old, new = record("p0", least=6), record("p1", least=7)
    again = record("p2", least=6, first_id=MessageId(7, 0), last_id=MessageId(7, 1))
    places = [MessageId(17, n) for n in range(3)]
    log = [changed(one, mark_id=at) for one, at in zip((old, new, again), places, strict=True)]
    attempts = Attempts(log)
    assert [attempts.generation(one) for one in log] == [0, 0, 1]
    assert attempts.of(pulsar_part(old).txn) == log[2]
    assert [attempts.is_newest_cluster(one) for one in log] == [False, False, True]
    marks_again = [changed(old, mark_id=MessageId(9, 9)), changed(new, mark_id=MessageId(2, 0))]
    assert [Attempts(marks_again).generation(one) for one in marks_again] == [0, 1]


def test_messages_removed_by_retention_are_trimmed():
    whole, trimmed = audited([], oldest=6)
    assert (whole.findings, len(trimmed)) == ([], 1)
    lost, trimmed = audited([], oldest=5)
    assert (len(lost.findings), trimmed) == (1, [])
    unknown, trimmed = audited([], oldest=None)
    assert (unknown.findings, len(trimmed)) == ([], 1)


def test_an_empty_epoch_s_transaction_has_no_messages():
    aborting = step(opened(claim(), least=6), State.ABORTING, claim(), EMPTY)
    empty = step(aborting, State.EMPTY, claim())
    audit, _ = audited([*ENTRIES, entry((5, 2), BC, txn=pulsar_part(empty).txn)], others=[empty])
    assert len(audit.strays) == 1
