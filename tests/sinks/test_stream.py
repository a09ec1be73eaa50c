"""foreachBatch on real Spark: epochs, restarts, lineage, and the log."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from eos.errors import DuplicateEpochCall
from eos.recovery.decide import decide
from tests.support.judge import drain
from tests.support.spark_releases import JobFailed


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: [m.value.decode() for m in drain(url, f"persistent://public/default/{name}")]


def states(log):
    return [(r.epoch, r.state.value) for r in log() if r.state in ("COMMITTED", "EMPTY")]


def test_each_epoch_is_written_once_over_restarts(source, make_sink, values, log, tmp_path):
    sink = make_sink()
    source.add("a", "b")
    source.add("c")
    source.run(sink, tmp_path / "checkpoint")
    source.add("d")
    source.run(sink, tmp_path / "checkpoint")  # the same object, a new run of the query
    source.add("e")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert values() == ["a", "b", "c", "d", "e"]
    assert states(log) == [(str(n), "COMMITTED") for n in range(4)]


def test_a_rerun_of_a_committed_epoch_is_skipped(source, make_sink, values, log, tmp_path):
    source.add("a")

    def write_then_fail(df, epoch) -> None:
        make_sink()(df, epoch)
        raise RuntimeError("after the commit, before the checkpoint")

    with pytest.raises(StreamingQueryException, match="before the checkpoint"):
        source.run(write_then_fail, tmp_path / "checkpoint")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert values() == ["a"]
    assert states(log) == [("0", "COMMITTED")]


def test_two_calls_in_one_epoch_are_an_error_without_loss(source, make_sink, values, tmp_path):
    source.add("a")
    sink = make_sink()

    def twice(df, epoch) -> None:
        sink(df, epoch)
        sink(df, epoch)

    with pytest.raises(StreamingQueryException, match="called twice for one epoch"):
        source.run(twice, tmp_path / "checkpoint")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert values() == ["a"]


def test_two_calls_by_new_objects_in_one_epoch_are_an_error_too(
    source, make_sink, values, tmp_path
):
    source.add("a", "b")

    def twice(df, epoch) -> None:
        make_sink()(df.where("value = 'a'"), epoch)
        make_sink()(df.where("value = 'b'"), epoch)

    with pytest.raises(StreamingQueryException, match="second call's are not"):
        source.run(twice, tmp_path / "checkpoint")
    assert values() == ["a"]


def test_a_second_call_whose_error_is_caught_fails_the_next_epoch(
    source, make_sink, values, tmp_path
):
    source.add("a", "b")
    source.add("c")
    sink = make_sink()

    def twice(df, epoch) -> None:
        sink(df.where("value = 'a'"), epoch)
        with contextlib.suppress(DuplicateEpochCall):
            sink(df.where("value = 'b'"), epoch)

    with pytest.raises(StreamingQueryException, match=r"Duplicate.*no restart writes.*sink.write"):
        source.run(twice, tmp_path / "checkpoint")
    assert values() == ["a"]
    missing = source.spark.createDataFrame([("b",)], "value string")
    sink.write(missing, epoch="b, which the second call left out")
    source.run(make_sink(), tmp_path / "checkpoint")
    assert values() == ["a", "b", "c"]


def test_a_refusing_sink_continues_after_the_epoch_was_abandoned(
    source, make_sink, values, tmp_path, name
):
    for value in ("a", "b", "c"):
        source.add(value)
    sink = make_sink(max_attempts=1)

    def swallowing(df, epoch) -> None:
        with contextlib.suppress(JobFailed):
            sink(df.selectExpr("string(raise_error('no')) AS value") if epoch == 1 else df, epoch)

    with pytest.raises(StreamingQueryException, match="Epoch 1 ended in an error"):
        source.run(swallowing, tmp_path / "checkpoint")
    root = sink.options.commit_log
    decide(name, epoch="1", verdict="abandoned", because="a test", commit_log=root)
    with pytest.raises(StreamingQueryException, match=r"Fenced.*close\(\)"):
        source.run(sink, tmp_path / "checkpoint")
    sink.close()
    source.run(sink, tmp_path / "checkpoint")
    assert values() == ["a", "c"]


def test_a_new_checkpoint_is_refused_by_default(source, make_sink, values, log, tmp_path):
    source.add("a")
    source.run(make_sink(), tmp_path / "old")
    with pytest.raises(StreamingQueryException, match=r"NewLineage.*on_new_query"):
        source.run(make_sink(), tmp_path / "new")
    assert values() == ["a"]
    source.run(make_sink(on_new_query="continue"), tmp_path / "new")
    assert values() == ["a", "a"]
    assert len({r.query_id for r in log() if r.epoch}) == 2


def test_a_query_whose_log_is_gone_is_refused(source, make_sink, values, log, tmp_path):
    source.add("a")
    source.run(make_sink(), tmp_path / "checkpoint")
    kept = [record.state for record in log()]
    root = Path(make_sink().options.commit_log)
    root.rename(root.with_name("elsewhere"))
    source.add("b")
    with pytest.raises(StreamingQueryException, match=r"NewLineage.*at epoch 1.*commit_log"):
        source.run(make_sink(), tmp_path / "checkpoint")
    assert not root.exists()
    root.with_name("elsewhere").rename(root)
    source.run(make_sink(), tmp_path / "checkpoint")
    assert values() == ["a", "b"]
    assert [record.state for record in log()][: len(kept)] == kept


def test_a_batch_key_in_a_function_is_skipped_and_the_query_keeps_its_state(
    source, make_sink, values, tmp_path
):
    fails = [True]

    def call(df, epoch) -> None:
        rows = df.selectExpr("concat(value, '=', count) AS value")
        first, again = (make_sink().write(rows, epoch=f"e{epoch}") for _ in range(2))
        assert (first.status == "skipped", again.status) == (epoch == 0 and not fails, "skipped")
        if fails:
            raise RuntimeError("after the commit, before the checkpoint")

    def run() -> None:
        source.add("a", "b")
        counted = lambda rows: rows.groupBy("value").count()  # noqa: E731
        source.run(call, tmp_path / "checkpoint", counted, "update")

    with pytest.raises(StreamingQueryException, match="before the checkpoint"):
        run()
    fails.clear()
    run()
    assert sorted(values()) == ["a=1", "a=2", "b=1", "b=2"]
