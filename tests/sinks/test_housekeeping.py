"""A sink's log is compacted in the background, and before the sink is closed."""

from __future__ import annotations

import threading

import pytest
from deltalake import DeltaTable

from eos.commit_log import _commit_log as log_module


@pytest.fixture
def slow_compaction(monkeypatch):
    """Make compaction due immediately, and block it; return the threads that started it."""
    monkeypatch.setattr(log_module, "COMPACTION_INTERVAL", 8)
    compact, goes_on, begun = log_module.compact, threading.Event(), []

    def wait_and_compact(*args, **options):
        begun.append(threading.current_thread())
        assert threading.current_thread() is not threading.main_thread()  # the epochs'
        assert goes_on.wait(60)
        return compact(*args, **options)

    monkeypatch.setattr(log_module, "compact", wait_and_compact)
    yield goes_on, begun
    goes_on.set()


def test_close_waits_for_compaction_and_epochs_do_not(
    spark, make_sink, tmp_path, name, slow_compaction
):
    goes_on, begun = slow_compaction
    sink = make_sink()
    for number in range(5):
        sink.write(spark.createDataFrame([(str(number),)], "value string"), epoch=f"e{number}")
    assert len(begun) == 1
    assert begun[0] is not threading.main_thread()
    threading.Timer(1.0, goes_on.set).start()
    sink.close()
    assert len(DeltaTable(tmp_path / "log" / name).file_uris()) == 1
