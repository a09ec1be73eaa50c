"""A checkpoint that is set back to an older copy: no rows are dropped silently."""

from __future__ import annotations

import contextlib
import shutil
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from eos.commit_log import CommitLog
from eos.errors import ConnectionLost, RewoundCheckpoint, UnfinishedEpoch
from tests.support.judge import drain


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda topic=name: sorted(
        m.value.decode() for m in drain(url, f"persistent://public/default/{topic}")
    )


@pytest.fixture
def rewound(source, make_sink, tmp_path):
    """A checkpoint of epoch 0 under a sink that has written epochs 0 to 2."""
    checkpoint = tmp_path / "checkpoint"
    source.add("0")
    source.run(make_sink(), checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    for value in ("1", "2"):
        source.add(value)
    source.run(make_sink(), checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    return checkpoint


def test_epochs_that_spark_plans_again_are_not_dropped(source, make_sink, rewound, values):
    for value in ("3", "4"):
        source.add(value)
    for _ in range(2):  # the second start runs it by the plan of the first, which is too recent
        with pytest.raises(StreamingQueryException, match=r"RewoundCheckpoint.*Epoch 1.*on_rewind"):
            source.run(make_sink(), rewound, files_per_epoch=100)
    assert values() == ["0", "1", "2"]


def test_on_rewind_skip_skips_committed_epochs(source, make_sink, rewound, values):
    source.add("3")
    source.run(make_sink(on_rewind="skip"), rewound)
    assert values() == ["0", "1", "2", "3"]
    source.add("4")
    source.run(make_sink(), rewound)
    assert values() == ["0", "1", "2", "3", "4"]


def test_after_a_refusal_the_same_sink_takes_the_newest_checkpoint(
    source, make_sink, values, tmp_path, name
):
    """The log no longer has the record of the epoch that was refused."""
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    source.add("0")
    source.run(make_sink(), checkpoint)
    shutil.copytree(checkpoint, copy)
    for value in ("1", "2", "3"):
        source.add(value)
    source.run(make_sink(), checkpoint)
    CommitLog.open(tmp_path / "log", name, keep_epochs=1).compact()
    sink = make_sink()
    with pytest.raises(StreamingQueryException, match=r"RewoundCheckpoint.*Epoch 1 comes before"):
        source.run(sink, copy)
    source.add("4")
    source.run(sink, checkpoint)
    assert values() == ["0", "1", "2", "3", "4"]


def test_an_earlier_epoch_may_follow_one_that_failed(source, make_sink, rewound, values):
    source.add("3")
    sink = make_sink(on_rewind="skip", max_attempts=1)

    def write(df, epoch) -> None:
        sink(df.selectExpr("string(raise_error('no')) AS value") if epoch == 3 else df, epoch)

    shutil.copytree(rewound, f"{rewound}-again")
    with pytest.raises(StreamingQueryException, match="USER_RAISED_EXCEPTION"):
        source.run(write, rewound)
    source.run(sink, f"{rewound}-again")
    assert values() == ["0", "1", "2", "3"]


def test_an_earlier_epoch_that_fails_too_is_the_first_to_be_written(
    source, make_sink, values, tmp_path, monkeypatch
):
    """Both fail before the claim, so no log has them."""
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    source.add("0")
    source.run(make_sink(), checkpoint)
    shutil.copytree(checkpoint, copy)
    for value in ("1", "2"):
        source.add(value)
    sink = make_sink(on_gap="continue")
    with monkeypatch.context() as broken:
        broken.setattr(sink, "outputs", lambda: 1 / 0)
        with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
            source.run(lambda df, epoch: epoch == 2 and sink(df, epoch), checkpoint)

    def swallowing(df, epoch) -> None:
        if epoch == 1:
            with monkeypatch.context() as broken, contextlib.suppress(Exception):
                broken.setattr(sink, "outputs", lambda: 1 / 0)
                sink(df, epoch)
        else:
            sink(df, epoch)

    with pytest.raises(StreamingQueryException, match="Epoch 1 ended in an error"):
        source.run(swallowing, copy)
    assert values() == ["0"]


def test_a_failure_is_remembered_whatever_earlier_epochs_do(make_sink, monkeypatch):
    """No log has it: the store was down. Then older checkpoints are started, and the newest."""
    sink = make_sink()
    history = SimpleNamespace(
        newest=lambda _, epoch: None, must_skip=lambda _, epoch: int(epoch) < 5
    )
    monkeypatch.setattr(sink, "_history", lambda: history)

    def run(epoch: int, error: Exception | None = None) -> None:
        def run_epoch(*_: object, **__: object) -> None:
            if error is not None:
                raise error

        committer = SimpleNamespace(run_epoch=run_epoch)
        monkeypatch.setattr(sink, "_opened", lambda *_: committer)
        sink._run(None, None, "a query", str(epoch))

    with pytest.raises(ConnectionLost):
        run(5, ConnectionLost("the store is down"))
    for _ in range(2):
        with pytest.raises(RewoundCheckpoint):
            run(3, RewoundCheckpoint("an older checkpoint"))
        run(4)
        with pytest.raises(UnfinishedEpoch, match="Epoch 5 ended in an error"):
            run(6)
    run(5)
    run(6)


def test_missing_rows_can_be_written_with_a_key_and_a_new_checkpoint(
    source, spark, make_sink, rewound, values, tmp_path
):
    source.add("3")
    with pytest.raises(StreamingQueryException, match="RewoundCheckpoint"):
        source.run(make_sink(), rewound, files_per_epoch=100)
    missing = spark.createDataFrame([("3",)], "value string")
    assert make_sink().write(missing, epoch="behind the rewind").status == "written"
    assert values() == ["0", "1", "2", "3"]


def test_a_sink_ahead_of_another_drops_no_rows_after_a_rewind(
    source, make_sink, name, values, tmp_path
):
    behind, ahead = f"{name}-behind", f"{name}-ahead"

    def sinks():
        return [make_sink(sink_id=topic, topic=topic) for topic in (behind, ahead)]

    def write(is_broken):
        first, second = sinks()

        def function(df, epoch):
            if not (is_broken and epoch == 1):
                first(df, epoch)
            second(df, epoch)

        return function

    checkpoint = tmp_path / "checkpoint"
    for value in ("0", "1"):
        source.add(value)
    source.run(write(is_broken=True), checkpoint)
    assert (values(behind), values(ahead)) == (["0"], ["0", "1"])
    # The recipe for one sink alone, with new rows that come into the epoch.
    for file in (checkpoint / "commits").glob("*1*"):
        file.unlink()
    source.add("2")
    source.run(write(is_broken=False), checkpoint)  # epoch 1 as it was planned
    assert (values(behind), values(ahead)) == (["0", "1", "2"], ["0", "1", "2"])
    for kind, first in (("commits", 1), ("offsets", 1)):
        for number in (first, first + 1):
            for file in (checkpoint / kind).glob(f"*{number}*"):
                file.unlink()
    source.add("3")
    with pytest.raises(StreamingQueryException, match="RewoundCheckpoint"):
        source.run(write(is_broken=False), checkpoint, files_per_epoch=100)
    assert (values(behind), values(ahead)) == (["0", "1", "2"], ["0", "1", "2"])
