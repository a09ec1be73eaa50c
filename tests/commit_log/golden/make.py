"""Made ``v1``: ``python -m tests.commit_log.golden.make FOLDER``. Never run it again for a version
that was released: its old output must stay readable."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from deltalake import DeltaTable

from eos.commit_log import CommitLog
from eos.protocol import BATCH, State
from eos.pulsar.part import pulsar_part
from tests.protocol.epochs import EMPTY, EXPIRED, FAILED, claim, committed_epoch, opened, step

MARK = "0b5c8a52-9c3e-4b5f-8d0a-{:012x}"


def main() -> None:
    """Every state, a restart, a batch key, a retention, and unmerged files after it."""
    (folder,) = sys.argv[1:]
    ticks = itertools.count()
    start = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
    log = CommitLog.open(
        folder, "orders", keep_epochs=2, clock=lambda: start + timedelta(seconds=next(ticks))
    )
    marks = map(MARK.format, itertools.count())

    def add(record):
        marked = record.state is State.OPEN
        return log.append(replace(record, mark_uuid=next(marks)) if marked else record)

    def add_epoch(claimed, epoch, query_id=None):
        extra = {} if query_id is None else {"query_id": query_id}
        last = None
        for record in committed_epoch(claimed, epoch, **extra):
            uuid = pulsar_part(last).mark_uuid if last else pulsar_part(record).mark_uuid
            last = add(replace(record, mark_uuid=uuid))

    claimed = add(claim())
    add_epoch(claimed, "0")
    add_epoch(claimed, "2026-11-20", BATCH)
    for epoch in range(1, 5):
        add_epoch(claimed, str(epoch))
    log.compact()
    first = add(opened(claimed, "5"))
    aborting = add(step(first, State.ABORTING, claimed, FAILED))
    add(step(aborting, State.ABORTED, claimed))
    prepared = add(step(add(opened(claimed, "5", attempt=2, least=8)), State.PREPARED, claimed))
    add(step(prepared, State.ABORTED, claimed, EXPIRED))
    empty = add(step(add(opened(claimed, "5", attempt=3, least=9)), State.ABORTING, claimed, EMPTY))
    add(step(empty, State.EMPTY, claimed))
    claimed = add(claim("run-2"))
    add(step(add(opened(claimed, "6")), State.PREPARED, claimed))
    table = Path(folder) / "orders"
    active = {uri.rsplit("/", 1)[1] for uri in DeltaTable(table).file_uris()}
    for path in table.glob("*.parquet"):
        if path.name not in active:
            path.unlink()


if __name__ == "__main__":
    main()
