"""Finds where a table's history of topics ends; later messages are read from the topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from eos.errors import ConfigurationError, InputError
from eos.ids import MessageId, TopicName
from eos.wire.decoding import MessageIds, decode_message_ids

ID_COLUMN: Final = "__messageId"
TOPIC_COLUMN: Final = "__topic"

IsRead = Callable[[TopicName], bool]
"""Whether a query reads this topic."""


def last_messages(
    batches: Iterable[pa.RecordBatch], is_read: IsRead, only: TopicName | None
) -> dict[str, MessageId]:
    """Return the last message of each exact partition, by ids alone: rows may be in any order.

    Args:
        batches: with the columns ``__messageId`` and, if ``only`` is None, ``__topic``.
        only: the topic of all rows.

    Raises:
        InputError: a row has no id, or no topic's name.
    """
    found: dict[str, MessageId] = {}
    for batch in batches:
        for name, last in _of_batch(batch, is_read, only):
            found[name] = max(last, found.get(name, last), key=_order)
    return found


def _of_batch(
    batch: pa.RecordBatch, is_read: IsRead, only: TopicName | None
) -> Iterator[tuple[str, MessageId]]:
    ids = _decoded(batch.column(ID_COLUMN))
    codes = np.zeros(batch.num_rows, np.int64)
    topics = [only]
    if only is None:
        codes, topics = _topics(batch.column(TOPIC_COLUMN))
    # Sorted by topic, partition and place: a partition's last message is before a change of it.
    order = np.lexsort((ids.batch_index, ids.entry, ids.ledger, ids.partition, codes))
    changes = (np.diff(codes[order]) != 0) | (np.diff(ids.partition[order]) != 0)
    for row in order[np.append(np.flatnonzero(changes), len(order) - 1)] if len(order) else ():
        topic = topics[codes[row]]
        if topic is not None and is_read(topic):
            last = _id_at(ids, row)
            yield _exact(topic, last.partition), last


def _exact(topic: TopicName, partition: int) -> str:
    """Return the exact name of the partition; some clients write it as the topic."""
    return str(topic if partition < 0 else topic.base.partition(partition))


def _topics(column: pa.Array) -> tuple[np.ndarray, list[TopicName | None]]:
    """Return an index for each row, and the topics; None: a topic that no query can read."""
    named = column.cast(pa.string()).dictionary_encode()
    if named.null_count:
        raise InputError(f"The history has a row without a {TOPIC_COLUMN}.")
    codes = named.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [maybe_topic(name) for name in named.dictionary.to_pylist()]


def maybe_topic(name: str) -> TopicName | None:
    """Parse a name; None if no query can read such a topic, which other clients can create."""
    try:
        return TopicName.parse(name)
    except ConfigurationError:
        return None


def _decoded(column: pa.Array) -> MessageIds:
    try:
        return decode_message_ids(column)
    except ValueError:
        raise InputError(
            f"The history has a row with an invalid {ID_COLUMN}.",
            hint=f"Archive the topic with this source's column {ID_COLUMN}, of option metadata.",
        ) from None


def _id_at(ids: MessageIds, row: int) -> MessageId:
    columns = (ids.ledger, ids.entry, ids.partition, ids.batch_index)
    return MessageId(*(int(column[row]) for column in columns))


def _order(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger, message_id.entry, message_id.batch_index
