"""What the driver's log says of an epoch, as Spark's progress events do not count a sink's rows."""

from __future__ import annotations

import logging
from typing import Final

from eos.committer import EpochResult
from eos.ids import TopicName
from eos.protocol import History
from eos.pulsar.part import pulsar_part

logger = logging.getLogger(__name__)

_NAMED: Final = 5


def log_written(result: EpochResult, sink_id: str, query_id: str, epoch: str) -> None:
    """A line for an epoch that was written now: its rows, bytes and time."""
    if result.status != "written" or result.records is None or result.bytes is None:
        return
    size = f"{result.bytes / 1e6:,.1f} MB" if result.bytes >= 100_000 else f"{result.bytes:,} bytes"
    logger.info(
        "epoch %s of sink %s: %s rows, %s, %.2f s, transaction %s",
        epoch,
        sink_id,
        f"{result.records:,}",
        size,
        result.duration_s,
        result.txn,
        extra={
            "sink": sink_id,
            "query": query_id,
            "epoch": epoch,
            "transaction": str(result.txn) if result.txn else None,
            "rows": result.records,
            "bytes": result.bytes,
            "duration_s": result.duration_s,
            "steps_s": result.steps_s,
            "attempts": result.attempts,
        },
    )


def warn_of_new_topic(history: History, topic: TopicName) -> None:
    """A warning, when the sink's newest rows went to another topic than ``topic``."""
    before = pulsar_part(history.last_written).topics if history.last_written else ()
    if before and before != (str(topic.base),):
        logger.warning(
            "sink %s wrote to %s until now, and goes on with %s: epochs that were committed there "
            "are not written again",
            history.sink_id,
            ", ".join(before[:_NAMED]) + (", ..." if len(before) > _NAMED else ""),
            topic,
        )
