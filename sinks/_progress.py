"""Log lines about epochs, on the driver: Spark's progress events do not count a sink's rows."""

from __future__ import annotations

import logging
from typing import Final

from eos.committer import EpochResult
from eos.ids import TopicName
from eos.protocol import BATCH, History, recovery_command
from eos.pulsar.part import pulsar_part

logger = logging.getLogger(__name__)

_NAMED: Final = 5


def log_written(result: EpochResult, sink_id: str, query_id: str, epoch: str) -> None:
    """Log the rows, bytes and time of an epoch that was written by this call."""
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


def log_job(records: int, sink_id: str, key: str | None) -> None:
    """Log the rows that a job of the Data Source writer has written; warn if it had no key."""
    # Spark runs the commit in a process without a logging configuration, where Python shows only
    # warnings, and only their text. From 4.1 on it may have a handler, which gets no more.
    if key is None:
        logger.warning(
            "%s rows are written by sink %s, without a key: a rerun writes them again. Set the "
            "option epoch, or use INSERT INTO t WITH (epoch='...'), to prevent that",
            f"{records:,}",
            sink_id,
        )
        return
    is_shown = logger.hasHandlers() and logger.isEnabledFor(logging.INFO)
    level = logging.INFO if is_shown else logging.WARNING
    logger.log(level, "%s rows are written by sink %s, epoch %s", f"{records:,}", sink_id, key)


def warn_of_skipped_key(records: int | None, sink_id: str, key: str) -> None:
    """Warn that a batch key was written before, with ``records`` rows."""
    logger.warning(
        "epoch %s of sink %s was written before (rows: %s): nothing is written now. Only the key "
        "counts, rows are not compared. Write other rows under another key",
        key,
        sink_id,
        "unknown" if records is None else f"{records:,}",
        extra={"sink": sink_id, "query": BATCH, "epoch": key, "rows": records},
    )


def warn_of_other_rows(records: int | None, sink_id: str, key: str, skipped: int) -> None:
    """Warn if a job that was skipped had a different number of rows than its key."""
    if records not in (None, skipped):
        logger.warning(
            "epoch %s of sink %s has %s rows, but this job had %s: its rows are different, and "
            "none of them is written. Write them under another key",
            key,
            sink_id,
            f"{records:,}",
            f"{skipped:,}",
        )


def warn_of_new_topic(history: History, topic: TopicName) -> None:
    """Warn if the sink's newest rows went to another topic than ``topic``."""
    before = pulsar_part(history.last_written).topics if history.last_written else ()
    if before and before != (str(topic.base),):
        logger.warning(
            "sink %s wrote to %s until now, and continues with %s: epochs that were committed "
            "there are not written again",
            history.sink_id,
            ", ".join(before[:_NAMED]) + (", ..." if len(before) > _NAMED else ""),
            topic,
        )


def wrote_to(history: History, topic: TopicName) -> bool:
    """Whether the sink's newest rows are in ``topic``."""
    written = history.last_written
    return written is not None and str(topic.base) in pulsar_part(written).topics


def warn_of_lost_topic(sink_id: str, topic: TopicName) -> None:
    """Warn that a topic that the sink has written to is about to be recreated."""
    logger.warning(
        "Topic %s, to which sink %s has written, no longer exists. It is recreated "
        "(create_topics) without the rows of committed epochs, which are not written again; "
        "`%s` shows them.",
        topic,
        sink_id,
        recovery_command("verify", sink_id),
    )
