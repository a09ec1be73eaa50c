"""A query that continues with another sink id: rows committed under the old one stay written."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from tests.support.judge import drain
from tests.support.spark_releases import needs_data_sources


@pytest.fixture
def values(pulsar_standalone, name):
    url = pulsar_standalone.service_url
    return lambda: [m.value.decode() for m in drain(url, f"persistent://public/default/{name}")]


def forget_the_commit(checkpoint: Path, epoch: int) -> None:
    """Make the checkpoint that of a driver which died between the sink's commit and Spark's."""
    (checkpoint / "commits" / str(epoch)).unlink()
    (checkpoint / "commits" / f".{epoch}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_committed_under_the_old_sink_id_is_refused(
    source, make_sink, values, tmp_path, name, epoch
):
    checkpoint = tmp_path / "checkpoint"
    for number in range(epoch + 1):
        source.add(f"{number}a", f"{number}b")
    source.run(make_sink(), checkpoint)
    before = values()
    forget_the_commit(checkpoint, epoch)
    for choice in ("refuse", "continue"):
        renamed = make_sink(sink_id=f"{name}-new", on_new_query=choice)
        with pytest.raises(StreamingQueryException, match=rf'NewLineage.*Use sink_id="{name}"'):
            source.run(renamed, checkpoint)
    assert values() == before
    # As the error suggests: once with the old id, then with the new one.
    source.run(make_sink(), checkpoint)
    source.add("new")
    with pytest.raises(StreamingQueryException, match=rf"last epoch there is {epoch}"):
        source.run(make_sink(sink_id=f"{name}-new"), checkpoint)
    source.run(make_sink(sink_id=f"{name}-new", on_new_query="continue"), checkpoint)
    source.add("newer")
    source.run(make_sink(sink_id=f"{name}-new"), checkpoint)
    assert values() == [*before, "new", "newer"]


@needs_data_sources
def test_the_datasource_writer_is_refused_too(
    spark, source, writer_options, values, tmp_path, name
):
    checkpoint = tmp_path / "checkpoint"

    def run(**more: str) -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(source.folder))
        options = writer_options | {"checkpointLocation": str(checkpoint)} | more
        query = rows.writeStream.format("pulsar").options(**options).trigger(availableNow=True)
        query.start().awaitTermination(120)

    source.add("a")
    run()
    forget_the_commit(checkpoint, 0)
    with pytest.raises(StreamingQueryException, match=rf'Use sink_id="{name}"'):
        run(sinkId=f"{name}-new", onNewQuery="continue")
    run()
    assert values() == ["a"]


def test_two_sinks_of_one_function_may_write_to_one_topic(
    source, make_sink, values, tmp_path, name
):
    source.add("a", "b")
    fails = [True]

    def both(df, epoch) -> None:
        make_sink()(df.where("value = 'a'"), epoch)
        if fails:
            raise RuntimeError("between the two")
        make_sink(sink_id=f"{name}-second")(df.where("value = 'b'"), epoch)

    with contextlib.suppress(StreamingQueryException):
        source.run(both, tmp_path / "checkpoint")
    fails.clear()
    source.run(both, tmp_path / "checkpoint")
    assert sorted(values()) == ["a", "b"]
