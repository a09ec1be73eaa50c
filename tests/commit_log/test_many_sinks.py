"""Many sinks below one root do not affect each other."""

from __future__ import annotations

import shutil
import threading

import pytest

from eos.commit_log import CommitLog, list_sinks
from tests.protocol.epochs import claim, committed_epoch

SINKS = 50


@pytest.mark.slow
def test_fifty_sinks_that_append_concurrently_lose_nothing(root):
    start, failures = threading.Barrier(SINKS), []

    def work(sink_id: str) -> None:
        try:
            log = CommitLog.open(root, sink_id)
            claimed = log.append(claim(sink_id=sink_id))
            start.wait(timeout=120)
            for epoch in range(3):
                for record in committed_epoch(claimed, str(epoch)):
                    log.append(record)
        except Exception as error:
            failures.append(error)

    names = [f"sink-{number}" for number in range(SINKS)]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list_sinks(root) == sorted(names)
    for name in names:
        records = CommitLog.open_read_only(root, name).records()
        assert [record.seq for record in records] == list(range(1, 11))


def test_a_thousand_sinks_are_listed_and_other_folders_are_not(root, log):
    for number in range(1000):
        (root / f"s{number}" / "_delta_log").mkdir(parents=True)
        shutil.copy(
            root / "orders" / "_delta_log" / f"{0:020}.json", root / f"s{number}" / "_delta_log"
        )
    (root / "empty" / "_delta_log").mkdir(parents=True)
    (root / ".hidden" / "_delta_log").mkdir(parents=True)
    (root / "notes.txt").touch()
    assert list_sinks(root) == sorted(["orders", *(f"s{number}" for number in range(1000))])
