"""Streams by ``df.writeStream.format("pulsar")``: each epoch is a transaction, over restarts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from tests.sinks.rerun_driver import SENT_BY_THEN, await_rows, fail_always
from tests.support.judge import drain

Run = Callable[..., None]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(source, writer_options, tmp_path) -> Run:
    """Write all files of the source, one in each epoch, and stop; further options by name."""

    def run(
        of: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        *,
        mode: str = "append",
        checkpoint: Path = tmp_path / "checkpoint",
        **more: Any,
    ) -> None:
        stream = source.spark.readStream.option("maxFilesPerTrigger", 1).text(str(source.folder))
        query = (
            of(stream)
            .writeStream.format("pulsar")
            .queryName("orders")  # Spark passes it on
            .outputMode(mode)
            .options(**writer_options | more)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination(120)
        finally:
            query.stop()

    return run


@pytest.fixture
def seen(pulsar_standalone, name) -> Callable[[], list[str]]:
    """The values that a plain client reads."""
    return lambda: sorted(one.value.decode() for one in drain(pulsar_standalone.service_url, name))


def states(log, epoch: int) -> list[str]:
    return [record.state.value for record in log() if record.epoch == str(epoch)]


def forget_commit(checkpoint: Path, epoch: int) -> None:
    """Make Spark run the epoch again, as after a death before its own commit."""
    for path in (checkpoint / "commits").glob(f"*{epoch}*"):
        path.unlink()


def test_each_epoch_is_one_transaction(source, run, seen, log):
    source.add("a", "b")
    source.add("c")
    run()
    assert seen() == ["a", "b", "c"]
    assert states(log, 0) == states(log, 1) == ["OPEN", "PREPARED", "COMMITTED"]
    source.add("d")
    run()
    assert seen() == ["a", "b", "c", "d"]
    claims = [record for record in log() if record.state == "CLAIMED"]
    assert len(claims) == 2  # one for each run of the query


def test_a_rerun_of_a_committed_epoch_is_skipped(source, run, seen, log, tmp_path):
    source.add("a")
    run()
    forget_commit(tmp_path / "checkpoint", 0)
    before = log()
    source.add("b")
    run()
    assert seen() == ["a", "b"]
    assert states(log, 0) == [r.state.value for r in before if r.epoch == "0"]


def test_a_checkpoint_that_was_set_back_is_refused(source, run, seen, tmp_path):
    source.add("a")
    run()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    source.add("b")
    run()
    source.add("c")
    with pytest.raises(StreamingQueryException, match="RewoundCheckpoint"):
        run(checkpoint=tmp_path / "older")
    assert seen() == ["a", "b"]


def test_a_new_checkpoint_is_refused(source, run, seen, tmp_path):
    source.add("a")
    run()
    with pytest.raises(StreamingQueryException, match="NewLineage"):
        run(checkpoint=tmp_path / "another")
    assert seen() == ["a"]


def test_an_epoch_without_rows_is_in_the_log(source, run, seen, log):
    source.add("a")
    source.add("b")
    run(lambda rows: rows.where("value = 'b'"))
    assert states(log, 0) == ["OPEN", "ABORTING", "EMPTY"]
    assert states(log, 1) == ["OPEN", "PREPARED", "COMMITTED"]
    assert seen() == ["b"]


def large(rows: DataFrame) -> DataFrame:
    """40 rows of 200 kB for each row: some are sent while others are computed."""
    numbers = rows.selectExpr("explode(sequence(0, 39)) AS n")
    return numbers.selectExpr("concat(lpad(n, 8, '0'), repeat('x', 200000)) AS value")


def test_the_attempt_is_found_in_the_log_if_all_tasks_fail(
    source, run, seen, log, spark_conf, tmp_path, pulsar_standalone, name
):
    """Spark has no messages of failed tasks."""
    spark_conf("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    source.add("a")
    fail = fail_always(tmp_path / "unused", pulsar_standalone.admin_url, name)
    with pytest.raises(StreamingQueryException, match="order 7 has no customer"):
        run(lambda rows: large(rows).mapInArrow(fail, "value string"))
    assert states(log, 0) == ["OPEN", "ABORTING", "ABORTED"]
    run(large)
    assert [int(value[:8]) for value in seen()] == list(range(40))


def test_an_invalid_row_ends_the_query_and_is_named(source, run, log):
    source.add("a")
    with pytest.raises(StreamingQueryException, match="InputError"):
        run(lambda rows: rows.selectExpr("CAST(NULL AS STRING) AS value"))
    assert states(log, 0) == ["OPEN", "ABORTING", "ABORTED"]


def test_an_epoch_ended_by_recovery_ends_the_query_and_is_written_by_its_restart(
    source, run, seen, log, name, tmp_path, pulsar_standalone, spark_conf
):
    spark_conf("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    command = [sys.executable, "-m", "eos", "recovery", "resolve", name, "--apply", "--yes"]
    command += ["--commit-log", str(tmp_path / "log")]
    command += ["--service-url", pulsar_standalone.service_url]
    admin_url = pulsar_standalone.admin_url

    def interrupted(batches):
        for number, batch in enumerate(batches):
            yield batch
            if number == SENT_BY_THEN:
                await_rows(admin_url, name)
                subprocess.run(command, check=True, cwd=ROOT)

    source.add("a")
    with pytest.raises(StreamingQueryException, match="Fenced"):
        run(lambda rows: large(rows).mapInArrow(interrupted, "value string"))
    assert states(log, 0) == ["OPEN", "ABORTING", "ABORTED"]
    run(large)
    assert [int(value[:8]) for value in seen()] == list(range(40))


@pytest.mark.release
def test_the_restart_loop_of_the_docs_works(source, run, seen, tmp_path, monkeypatch):
    page = (ROOT / "docs" / "writer.md").read_text()
    (code,) = (
        one for one in re.findall("```python\n(.+?)```", page, re.DOTALL) if "def run" in one
    )
    loop: dict[str, Any] = {}
    exec(code, loop)
    monkeypatch.setattr(loop["time"], "sleep", lambda _: None)
    failed = tmp_path / "failed"

    def fail_twice(batches):
        if len(list(tmp_path.glob("failed*"))) < 2:
            Path(f"{failed}-{uuid.uuid4()}").touch()
            raise ValueError("order 7 has no customer")
        yield from batches

    def failing() -> None:
        run(lambda rows: rows.mapInArrow(fail_twice, "value string"))

    source.add("a")
    loop["run"](lambda: SimpleNamespace(awaitTermination=failing))
    assert seen() == ["a"]
    starts = []

    def hopeless() -> None:
        starts.append(True)
        raise StreamingQueryException("no")

    with pytest.raises(StreamingQueryException):
        loop["run"](lambda: SimpleNamespace(awaitTermination=hopeless))
    assert len(starts) == loop["FAILURES"]


def test_a_stateful_query_continues_after_a_skipped_epoch(source, run, seen, tmp_path, spark_conf):
    spark_conf("spark.sql.shuffle.partitions", "2")

    def distinct(rows: DataFrame) -> DataFrame:
        return rows.dropDuplicates(["value"])

    source.add("a", "b")
    run(distinct)
    forget_commit(tmp_path / "checkpoint", 0)
    source.add("b", "c")
    run(distinct)
    assert seen() == ["a", "b", "c"]


def test_modes_that_replace_are_refused(source, run):
    source.add("a")
    with pytest.raises(StreamingQueryException, match=r'outputMode\("append"\)'):
        run(lambda rows: rows.groupBy("value").count().select("value"), mode="complete")
    with pytest.raises(Exception, match=r"[Uu]pdate"):
        run(lambda rows: rows.groupBy("value").count().select("value"), mode="update")


def test_the_checkpoints_location_is_required(source, writer_options, spark, tmp_path, spark_conf):
    spark_conf("spark.sql.streaming.checkpointLocation", str(tmp_path / "default"))
    source.add("a")
    stream = spark.readStream.text(str(source.folder))
    query = stream.writeStream.format("pulsar").options(**writer_options).start()
    with pytest.raises(StreamingQueryException, match="option\\('checkpointLocation'"):
        query.processAllAvailable()


def test_keys_properties_and_times_are_written(source, run, pulsar_standalone, name):
    source.add("a", "b")
    run(
        lambda rows: rows.selectExpr(
            "value",
            "upper(value) AS key",
            "map('p', value) AS properties",
            "TIMESTAMP'2026-11-23 10:00:00' AS event_time",
        )
    )
    found = drain(pulsar_standalone.service_url, name)
    assert {(one.value, one.key, one.properties["p"]) for one in found} == {
        (b"a", "A", "a"),
        (b"b", "B", "b"),
    }
    assert {one.event_time_ms for one in found} == {1_795_428_000_000}


def test_rows_may_name_their_topics(source, run, pulsar_standalone, name, writer_options):
    del writer_options["topic"]
    source.add("a", "b", "c")
    run(
        lambda rows: rows.selectExpr("value", f"concat('{name}-', value) AS topic"),
        receiptNamespace="public/default",
    )
    for value in "abc":
        (one,) = drain(pulsar_standalone.service_url, f"{name}-{value}")
        assert one.value == value.encode()


@pytest.mark.parametrize("schema", ["json", "avro"])
def test_whole_rows_are_encoded_by_a_schema(source, run, pulsar_standalone, name, schema, spark):
    source.add("a", "b")
    run(lambda rows: rows.selectExpr("value AS text", "1.5D AS n"), schema=schema)
    read = (
        spark.read.format("pulsar")
        .options(serviceUrl=pulsar_standalone.service_url, topic=name, schema="auto")
        .load()
    )
    assert sorted((row.text, row.n) for row in read.collect()) == [("a", 1.5), ("b", 1.5)]
