"""Stateful queries whose epochs are skipped, or run twice in one call: the state stays correct.

These are facts about Spark, on which the sink depends, tested with plain foreachBatch functions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupStateTimeout

from eos.sinks._spark_jvm import is_stateful, may_rerun, run_without_writing
from tests.sinks.conftest import STORES, store_settings
from tests.sinks.source import Source
from tests.support.spark_releases import needs_commit_validation, needs_state_format_2

KEYS = [f"key {n}" for n in range(6)]  # some in each of the two state stores
FORMAT_1 = [name for name, (_, number, _) in STORES.items() if number == 1]
FORMAT_2 = [name for name, (_, number, _) in STORES.items() if number == 2]


def counts(rows):
    return rows.groupBy("value").count()


class Job:
    """A query that counts; like an exactly-once sink it skips epochs that were written."""

    def __init__(self, source, checkpoint, skip) -> None:
        self.source = source
        self.checkpoint = checkpoint
        self.skip = skip
        self.written: dict[int, dict[str, int]] = {}

    def write(self, df, epoch) -> None:
        if epoch in self.written:
            self.skip(df)
        else:
            self.written[epoch] = {row["value"]: row["count"] for row in df.collect()}

    def write_then_fail(self, df, epoch) -> None:
        self.write(df, epoch)
        raise RuntimeError("after the commit, before the checkpoint")

    def run(self, write=None) -> None:
        self.source.add(*KEYS)
        self.source.run(write or self.write, self.checkpoint, counts, "update")


@pytest.fixture
def skipped_job(source, tmp_path, stores):
    """Runs a job until an epoch is written that is not in Spark's checkpoint."""

    def make(name, skip) -> Job:
        stores(name)
        job = Job(source, tmp_path / "checkpoint", skip)
        job.run()
        with pytest.raises(StreamingQueryException, match="before the checkpoint"):
            job.run(job.write_then_fail)
        return job

    return make


# DataFrames derived from the epoch's.
GIVEN = {
    "all": lambda df: df,
    "no-column": lambda df: df.select(sf.lit("x").alias("value")),
    "no-row": lambda df: df.filter("1 = 0"),
    "first-row": lambda df: df.limit(1),
    "empty-join": lambda df: df.join(df.sparkSession.range(0), df["count"] == sf.col("id")),
    "twice": lambda df: df.union(df),
    "persisted": lambda df: df.persist().select("value"),
}


@pytest.mark.parametrize("name", STORES)
def test_a_query_continues_after_a_skipped_epoch_was_computed(skipped_job, name):
    job = skipped_job(name, run_without_writing)
    job.run()
    job.run()
    assert job.written == {n: dict.fromkeys(KEYS, n + 1) for n in range(4)}


@pytest.mark.parametrize("name", ["hdfs-1", "rocksdb-2"])
def test_the_state_is_written_for_any_derived_dataframe(source, tmp_path, stores, name):
    stores(name)
    given = list(GIVEN.values())
    last: list[int] = []

    def call(df, epoch) -> None:
        if epoch < len(given):
            assert is_stateful(given[epoch](df))
            run_without_writing(given[epoch](df))
        else:
            last.extend(row["count"] for row in df.collect())

    for _ in range(len(given) + 1):
        source.add(*KEYS)
    source.run(call, tmp_path / "checkpoint", counts, "update")
    source.spark.catalog.clearCache()
    assert last == [len(given) + 1] * len(KEYS)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        pytest.param(
            "hdfs-1", "STATE_STORE_COMMIT_VALIDATION_FAILED", marks=needs_commit_validation
        ),
        # Not the whole word, which 4.0 spells "ChekpointInfo".
        pytest.param("rocksdb-2", "pointInfo length: 0", marks=needs_state_format_2),
    ],
)
def test_a_skipped_epoch_that_is_not_computed_ends_the_query(skipped_job, name, error):
    job = skipped_job(name, lambda df: None)
    with pytest.raises(StreamingQueryException) as caught:
        job.run()
    causes, cause = [], caught.value._origin
    while cause is not None:
        causes.append(cause.toString())
        cause = cause.getCause()
    assert error in "".join(causes)


def test_a_persisted_dataframe_is_not_computed_twice(source, tmp_path, stores, spark):
    stores("rocksdb-2")
    computed = spark.sparkContext.accumulator(0)

    def rows_seen(pdfs):
        for pdf in pdfs:
            computed.add(len(pdf))
            yield pdf

    def call(df, epoch) -> None:
        df.persist()
        run_without_writing(df.select("value"))
        assert len(df.collect()) == len(KEYS)
        df.unpersist()

    def query(rows):
        counted = counts(rows)
        return counted.mapInPandas(rows_seen, counted.schema)

    source.add(*KEYS)
    source.run(call, tmp_path / "checkpoint", query, "update")
    assert computed.value == len(KEYS)


def a_new_token(key, pdfs, state) -> Iterator[pd.DataFrame]:
    """Return random state, which a second run does not repeat: the old and the new one."""
    old = state.get[0] if state.exists else ""
    state.update((uuid.uuid4().hex,))
    yield pd.DataFrame({"key": [key[0]], "old": [old], "new": [state.get[0]]})


def tokens(rows):
    return rows.groupBy("value").applyInPandasWithState(
        a_new_token, "key string, old string, new string", "token string", "update",
        GroupStateTimeout.NoTimeout,
    )  # fmt: skip


def run_half(df, marker) -> None:
    """Fail in partition 1 after Spark knows that partition 0 is done and its state written."""

    def fail_in_partition_1(batches):
        yield from batches
        if TaskContext.get().partitionId() == 1:
            while not marker.exists():
                time.sleep(0.02)
            raise RuntimeError("half-way")

    tracker = df.sparkSession.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(df.mapInArrow(fail_in_partition_1, df.schema).collect)
        stages = []
        while not any(info and info.numTasks == 2 and info.numCompletedTasks for info in stages):
            assert not running.done()
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        marker.touch()
        assert "half-way" in str(running.exception())


@pytest.fixture
def broken_links(source, tmp_path, stores):
    """Counts the groups of each epoch that continued from another state than the previous rows had.

    Epoch 1 was computed in part before it was computed, epoch 3 completely.
    """
    first_runs = {
        1: lambda df: run_half(df, tmp_path / "partition 0 is done"),
        3: lambda df: df.collect(),
    }

    def run(name: str) -> list[int]:
        stores(name)
        seen: dict[int, dict[str, tuple[str, str]]] = {}

        def call(df, epoch) -> None:
            first_runs.get(epoch, lambda df: None)(df)
            seen[epoch] = {row.key: (row.old, row.new) for row in df.collect()}

        for epochs in (2, 3):  # the second time in a new run of the query
            for _ in range(epochs):
                source.add(*KEYS)
            source.run(call, tmp_path / "checkpoint", tokens, "update")
        return [sum(seen[n + 1][key][0] != seen[n][key][1] for key in KEYS) for n in range(4)]

    return run


@pytest.mark.parametrize("name", FORMAT_1)
def test_in_format_1_the_state_is_that_of_the_last_run(broken_links, name):
    assert broken_links(name) == [0, 0, 0, 0]


@needs_state_format_2
@pytest.mark.parametrize("name", FORMAT_2)
def test_in_format_2_the_state_is_that_of_the_first_run(broken_links, name):
    before, half, between, whole = broken_links(name)
    assert (before, between, whole) == (0, 0, len(KEYS))
    assert 0 < half < len(KEYS)


@pytest.mark.parametrize(
    ("name", "query", "mode", "answer"),
    [
        ("hdfs-1", counts, "update", True),
        ("rocksdb-1-changelog", counts, "update", True),
        ("rocksdb-2", counts, "update", False),
        ("rocksdb-2", lambda rows: rows, "append", True),
    ],
    ids=["hdfs-1", "rocksdb-1", "rocksdb-2", "stateless"],
)
def test_only_state_of_format_2_forbids_a_second_run(
    source, tmp_path, stores, name, query, mode, answer
):
    stores(name)
    answers: list[bool] = []

    def call(df, epoch) -> None:
        answers.append(may_rerun(df))
        df.collect()

    source.add(*KEYS)
    source.run(call, tmp_path / "checkpoint", query, mode)
    assert answers == [answer]


def test_the_format_is_that_of_the_querys_session(spark, tmp_path):
    """A DataFrame joined to one of another session has the other one's settings."""
    session = spark.newSession()
    for name, value in store_settings("rocksdb-2").items():
        session.conf.set(name, value)
    source = Source(session, tmp_path)
    answers: list[bool] = []

    def call(df, epoch) -> None:
        rows = spark.range(0).selectExpr("'' AS value", "0L AS count").union(df)
        answers.append(may_rerun(rows))
        rows.collect()

    source.add(*KEYS)
    source.run(call, tmp_path / "checkpoint", counts, "update")
    assert answers == [False]
