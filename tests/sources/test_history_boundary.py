"""The last message of each partition, by ids alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eos.errors import InputError
from eos.ids import MessageId, TopicName
from eos.sources._history_files import last_messages
from eos.wire.commands import MessageIdData

ORDERS, OTHERS = TopicName.parse("orders"), TopicName.parse("others")

_number = st.integers(0, 3)
_ids = st.builds(MessageId, _number, _number, st.integers(-1, 2), st.integers(-1, 2))
_rows = st.lists(st.tuples(st.sampled_from([ORDERS, OTHERS]), _ids), max_size=20)


def batch(rows: list[tuple[TopicName, MessageId]]) -> pa.RecordBatch:
    ids = [
        MessageIdData(ledger=a, entry=b, partition=c, batch_index=d).encode()
        for _, (a, b, c, d) in rows
    ]
    topics = pa.array([str(topic) for topic, _ in rows], pa.string())
    return pa.RecordBatch.from_arrays(
        [topics, pa.array(ids, pa.binary())], names=["__topic", "__messageId"]
    )


@given(st.lists(_rows, max_size=4))
def test_each_partition_has_its_greatest_id(batches):
    expected: dict[str, MessageId] = {}
    for topic, one in (row for rows in batches for row in rows):
        name = str(topic if one.partition < 0 else topic.partition(one.partition))
        known = expected.get(name, one)
        expected[name] = max(one, known, key=lambda i: (i.ledger, i.entry, i.batch_index))
    found = last_messages(map(batch, batches), lambda _: True, None)
    assert found == expected


def test_other_topics_have_no_boundary():
    rows = [(ORDERS, MessageId(1, 1)), (OTHERS, MessageId(2, 1))]
    found = last_messages([batch(rows)], lambda topic: topic == ORDERS, None)
    assert found == {str(ORDERS): MessageId(1, 1)}


def test_a_row_without_a_topic_is_refused():
    rows = batch([(ORDERS, MessageId(1, 1))])
    nameless = rows.set_column(0, "__topic", pa.nulls(1, pa.string()))
    with pytest.raises(InputError, match="without a __topic"):
        last_messages([nameless], lambda _: True, None)
    assert last_messages([nameless], lambda _: True, ORDERS) == {str(ORDERS): MessageId(1, 1)}
