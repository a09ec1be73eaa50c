"""Commit logs without a broker: a small one, and one in which every record exists twice."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
from deltalake import DeltaTable

from eos.commit_log import CommitLog
from eos.protocol import LogRecord, Reason, ReasonKind, State
from tests.protocol.epochs import FAILED, QUERY, claim, committed_epoch, opened, step

GIVEN_UP = Reason(ReasonKind.DECIDED, "Ada: test data")


def small_log(root: Path, sink_id: str = "orders") -> CommitLog:
    """A log of one sink with seven records: a claim and two committed epochs."""
    log = CommitLog.open(root, sink_id)
    claimed = log.append(replace(claim(), sink_id=sink_id))
    for epoch in ("0", "1"):
        for record in committed_epoch(claimed, epoch):
            log.append(record)
    return log


def log_of(root: Path, *records: LogRecord) -> CommitLog:
    """A log of sink "orders" that holds ``records``, the first of which is a claim."""
    log = CommitLog.open(root, "orders")
    for record in records:
        log.append(record)
    return log


def failed_epoch(claimed: LogRecord, epoch: str, *, query_id: str = QUERY) -> LogRecord:
    """The FAILED record of an epoch that has no transaction."""
    return LogRecord.failed(claimed, query_id=query_id, epoch=epoch, reason=FAILED)


def aborted_epoch(claimed: LogRecord, epoch: str, *, query_id: str = QUERY) -> list[LogRecord]:
    """OPEN, ABORTING and ABORTED of one epoch."""
    first = opened(claimed, epoch, query_id=query_id)
    aborting = step(first, State.ABORTING, claimed, FAILED)
    return [first, aborting, step(aborting, State.ABORTED, claimed)]


def abandoned_epoch(claimed: LogRecord, epoch: str, *, query_id: str = QUERY) -> list[LogRecord]:
    """The records of an epoch that failed and was abandoned."""
    failed = failed_epoch(claimed, epoch, query_id=query_id)
    return [failed, step(failed, State.ABANDONED, claimed, GIVEN_UP)]


def exported_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that `log export` wrote, in any of its formats."""
    if path.suffix == ".parquet":
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
        return rows
    text = path.read_text()
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(text.splitlines()))


def compact_twice(folder: Path, append: Callable[[], object]) -> None:
    """Run Delta's ``optimize`` from two versions, with an append between: both succeed.

    Compaction was based on it in the past.
    """
    older = DeltaTable(folder)
    append()
    newer = DeltaTable(folder)
    older.optimize.compact()
    newer.optimize.compact()
