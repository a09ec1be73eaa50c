"""The counting of ``verify``, on messages made by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from eos.ids import MessageId
from eos.summary import PartitionFigures
from eos.transaction import State
from eos.wire.checksum import crc32c
from recovery.audit import PartitionAudit
from tests.transaction.epochs import claim, opened

TOPIC = "persistent://public/default/t"


@dataclass(frozen=True)
class Message:
    """What the audit uses of ``pulsar.Message``."""

    value: bytes
    producer: str = "p1"
    key: str = ""

    def data(self) -> bytes:
        return self.value

    def partition_key(self) -> str:
        return self.key

    def producer_name(self) -> str:
        return self.producer


ENTRIES = {
    MessageId(5, 1): [Message(b"a", key="k"), Message(b"bc")],
    MessageId(5, 3): [Message(b"def", key="x")],
}


def record(producer: str = "p1", state: State = State.COMMITTED, **changes):
    figures = PartitionFigures(
        topic=TOPIC,
        producers=(producer,),
        records=3,
        bytes=8,
        checksum=crc32c(b"abck") + crc32c(b"defx"),
        first_id=MessageId(5, 1),
        last_id=MessageId(5, 3),
    )
    return replace(opened(claim()), state=state, partitions=(replace(figures, **changes),))


def audited(entries, committed=None, never=(), oldest=5):
    audit = PartitionAudit(TOPIC, [committed or record()], never)
    for at, messages in sorted(entries.items()):
        for index, message in enumerate(messages):
            audit.take(message, at._replace(batch_index=index))
    return audit, audit.close(oldest)


def test_what_was_sent_is_clean():
    audit, trimmed = audited(ENTRIES)
    assert (audit.findings, trimmed, audit.records, audit.bytes, audit.others) == ([], [], 3, 8, 0)


def test_the_order_of_entries_does_not_matter_but_their_grouping_does():
    (one, two) = ENTRIES.values()
    swapped = {MessageId(5, 1): two, MessageId(5, 3): one}
    assert audited(swapped)[0].findings == []
    regrouped = {MessageId(5, 1): one[:1], MessageId(5, 2): one[1:], MessageId(5, 3): two}
    assert "another checksum" in audited(regrouped)[0].findings[0].what


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({MessageId(5, 1): ENTRIES[MessageId(5, 1)]}, "2 of its 3 messages"),
        ({**ENTRIES, MessageId(5, 2): [Message(b"a")]}, "4 of its 3 messages"),
        ({**ENTRIES, MessageId(5, 3): [Message(b"defg", key="x")]}, "hold 9 bytes, not 8"),
        ({**ENTRIES, MessageId(5, 3): [Message(b"dex", key="f")]}, "another checksum"),
    ],
    ids=["lost", "twice", "longer", "other value"],
)
def test_any_difference_is_found(entries, what):
    audit, trimmed = audited(entries)
    assert [what in finding.what for finding in audit.findings] == [True]
    assert trimmed == []
    assert audit.findings[0].message_id is not None


def test_a_message_outside_of_what_was_sent_is_named():
    late = MessageId(6, 0)
    audit, _ = audited({**ENTRIES, late: [Message(b"again")]})
    assert audit.findings[0].message_id == str(late._replace(batch_index=0))
    assert "outside of what the epoch sent" in audit.findings[0].what


def test_a_message_of_an_aborted_attempt_is_named():
    never = record("dead", State.ABORTED)
    audit, _ = audited({**ENTRIES, MessageId(5, 2): [Message(b"x", "dead")]}, never=[never])
    (finding,) = audit.findings
    assert finding.message_id == "5:2:-1:0"
    assert "aborted" in finding.what


def test_messages_of_others_are_counted_and_are_no_finding():
    audit, _ = audited({**ENTRIES, MessageId(5, 2): [Message(b"x", "somebody")] * 2})
    assert (audit.findings, audit.others) == ([], 2)


def test_what_retention_took_away_is_trimmed_and_not_wrong():
    whole, trimmed = audited({}, oldest=6)
    assert (whole.findings, len(trimmed)) == ([], 1)
    lost, trimmed = audited({}, oldest=5)
    assert (len(lost.findings), trimmed) == (1, [])
    unknown, trimmed = audited({}, oldest=None)
    assert (unknown.findings, len(trimmed)) == ([], 1)
