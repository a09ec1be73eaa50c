"""Where the past of topics in a table ends: what comes behind it is read from the topics."""

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
    """The last message of each exact partition, by ids alone: rows come in any order.

    Args:
        batches: with the columns ``__messageId`` and, where ``only`` is None, ``__topic``.
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
    # By topic and partition, then by place: a partition's last message is where it changes.
    order = np.lexsort((ids.batch_index, ids.entry, ids.ledger, ids.partition, codes))
    changes = (np.diff(codes[order]) != 0) | (np.diff(ids.partition[order]) != 0)
    for row in order[np.append(np.flatnonzero(changes), len(order) - 1)] if len(order) else ():
        topic = topics[codes[row]]
        if topic is not None and is_read(topic):
            last = _id_at(ids, row)
            yield _exact(topic, last.partition), last


def _exact(topic: TopicName, partition: int) -> str:
    """The partition's own name, which some clients call its topic."""
    return str(topic if partition < 0 else topic.base.partition(partition))


def _topics(column: pa.Array) -> tuple[np.ndarray, list[TopicName | None]]:
    """The topic of each row by its place in the list; None: no query can read it."""
    named = column.cast(pa.string()).dictionary_encode()
    if named.null_count:
        raise InputError(f"The history has a row without a {TOPIC_COLUMN}.")
    codes = named.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, [maybe_topic(name) for name in named.dictionary.to_pylist()]


def maybe_topic(name: str) -> TopicName | None:
    """None for a name that no query can read: other clients make such topics."""
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
            hint=f"It has to be as this source gives it with metadata, column {ID_COLUMN}.",
        ) from None


def _id_at(ids: MessageIds, row: int) -> MessageId:
    columns = (ids.ledger, ids.entry, ids.partition, ids.batch_index)
    return MessageId(*(int(column[row]) for column in columns))


def _order(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger, message_id.entry, message_id.batch_index
