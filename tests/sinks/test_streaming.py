"""The query of a foreachBatch call, and whether it has state."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest
from pyspark.sql import functions as sf
from pyspark.sql import streaming
from pyspark.sql.streaming.state import GroupStateTimeout

from eos.errors import ConfigurationError
from eos.sinks._spark_jvm import RunningQuery, is_stateful, may_rerun, running_query
from tests.support.spark_releases import needs_stateful_processor

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def keys_as_they_are(key, pdfs, state):
    yield pd.DataFrame({"value": [key[0]]})


class KeysAsTheyAre(getattr(streaming, "StatefulProcessor", object)):
    def init(self, handle) -> None:
        pass

    def handleInputRows(self, key, rows, timers):  # noqa: N802 - Spark's name
        yield pd.DataFrame({"value": [key[0]]})

    def close(self) -> None:
        pass


def at_now(rows):
    return rows.withColumn("at", sf.current_timestamp()).withWatermark("at", "1 minute")


STATELESS = {
    "select": lambda rows: rows.select(sf.upper("value").alias("value")),
    "watermark": lambda rows: at_now(rows).drop("at"),
    "udf": lambda rows: rows.mapInPandas(lambda pdfs: pdfs, rows.schema),
}
STATEFUL = {
    "aggregation": lambda rows: rows.groupBy("value").count(),
    "window": lambda rows: at_now(rows).groupBy(sf.window("at", "1 minute"), "value").count(),
    "session": lambda rows: (
        at_now(rows).groupBy(sf.session_window("at", "1 minute"), "value").count()
    ),
    "deduplication": lambda rows: rows.dropDuplicates(["value"]),
    "deduplication-in-watermark": lambda rows: at_now(rows).dropDuplicatesWithinWatermark(
        ["value"]
    ),
    "join": lambda rows: at_now(rows).alias("a").join(at_now(rows).alias("b"), "value"),
    "limit": lambda rows: rows.limit(3),
    "map-groups": lambda rows: rows.groupBy("value").applyInPandasWithState(
        keys_as_they_are, "value string", "n int", "append", GroupStateTimeout.NoTimeout
    ),
    "transform": lambda rows: rows.groupBy("value").transformWithStateInPandas(
        KeysAsTheyAre(), "value string", "append", "none"
    ),
}
# DataFrames that users derive from the epoch's before the sink gets them.
DERIVED = {
    "as-it-is": lambda df: df,
    "pruned": lambda df: df.select(sf.lit("x").alias("value")),
    "shuffled": lambda df: df.repartition(3).groupBy("value").count(),
    "filtered-away": lambda df: df.filter("1 = 0"),
    "first-row": lambda df: df.limit(1),
    "joined": lambda df: df.sparkSession.range(1).crossJoin(df),
    "twice": lambda df: df.union(df),
    "subquery": lambda df: subquery(df),
    "persisted": lambda df: df.persist().select("value"),
    "through-python": lambda df: df.sparkSession.createDataFrame(df.rdd, df.schema),
}


def subquery(df):
    df.createOrReplaceTempView("batch")
    return df.sparkSession.sql(
        "select value from values ('a') as t(value) where value in (select value from batch)"
    )


def counts(rows):
    return rows.groupBy("value").count()


def in_a_call(source, tmp_path, function, of=lambda rows: rows, mode="append"):
    """Return the result of ``function`` for the DataFrame of one epoch, in a foreachBatch call."""
    answers = []

    def call(df, epoch) -> None:
        if not answers:
            answers.append(function(df))
        df.collect()

    # Each value once: with a new pyarrow, 3.5 fails on groups of several rows that have state.
    source.add("a", "b")
    source.run(call, tmp_path / "checkpoint", of, mode)
    return answers[0]


@pytest.mark.parametrize("operator", STATELESS)
def test_a_stateless_query_is_recognised(source, tmp_path, operator):
    assert not in_a_call(source, tmp_path, is_stateful, STATELESS[operator])


@pytest.mark.parametrize(
    "operator",
    [
        pytest.param(one, marks=needs_stateful_processor if one == "transform" else ())
        for one in STATEFUL
    ],
)
def test_each_stateful_operator_is_recognised(source, tmp_path, operator, spark_conf):
    if operator == "transform":
        spark_conf("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    mode = "update" if operator == "aggregation" else "append"
    assert in_a_call(source, tmp_path, is_stateful, STATEFUL[operator], mode)


@pytest.mark.parametrize("derived", DERIVED)
def test_state_is_found_in_derived_dataframes(source, tmp_path, derived):
    make = DERIVED[derived]
    assert in_a_call(source, tmp_path, lambda df: is_stateful(make(df)), counts, "update")


def test_rows_that_were_computed_before_have_no_state_to_write(source, tmp_path):
    def collected(df):
        return is_stateful(df.sparkSession.createDataFrame(df.collect(), df.schema))

    assert not in_a_call(source, tmp_path, collected, counts, "update")


def test_the_check_for_state_runs_no_job(source, tmp_path, spark):
    context = spark.sparkContext

    def ask(df) -> list[int]:
        context.setJobGroup("asked", "")
        joined = df.join(df.groupBy("value").agg(sf.max("count")), "value").orderBy("value")
        assert is_stateful(joined)
        assert may_rerun(joined)
        context._jsc.sc().listenerBus().waitUntilEmpty(10_000)
        return context.statusTracker().getJobIdsForGroup("asked")

    assert in_a_call(source, tmp_path, ask, counts, "update") == []


@pytest.fixture
def seen(source, tmp_path):
    """Run a query of two epochs in two runs; return the results of ``function`` and of PySpark."""

    def run(function):
        answers, truth = [], []
        for _ in range(2):
            source.add("a")
            query = source.run(lambda df, _: answers.append(function(df)), tmp_path / "checkpoint")
            truth.append(RunningQuery(query.id, query.runId))
        assert truth[0].query_id == truth[1].query_id
        assert truth[0].run_id != truth[1].run_id
        return answers, truth

    return run


@pytest.fixture
def another_query(spark):
    """A query that runs concurrently with the test's."""
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    yield query
    query.stop()


def test_a_query_is_found_by_the_session_of_its_dataframe(seen, another_query):
    answers, truth = seen(lambda df: running_query(df.select("value").filter("value is not null")))
    assert answers == truth


def test_the_users_job_group_has_no_effect(seen):
    def ask(df):
        df.sparkSession.sparkContext.setJobGroup("mine", "the user's own")
        return running_query(df)

    answers, truth = seen(ask)
    assert answers == truth


def test_the_users_thread_finds_its_query(seen, another_query):
    with ThreadPoolExecutor(1) as pool:  # the same thread for both runs
        answers, truth = seen(lambda df: pool.submit(running_query, df).result())
    assert answers == truth


def test_a_dataframe_of_another_session_belongs_to_the_query_of_its_thread(seen, spark):
    answers, truth = seen(lambda df: running_query(spark.range(1)))
    assert answers == truth


def test_without_a_query_there_is_a_clear_error(source, tmp_path, spark, another_query):
    with pytest.raises(ConfigurationError, match="outside of a streaming query") as error:
        running_query(spark.range(1))
    assert "sink.write(df, epoch=key)" in str(error.value)

    def elsewhere(df) -> str:
        with ThreadPoolExecutor(1) as pool:
            return str(pool.submit(running_query, spark.range(1)).exception())

    assert "In your own thread" in in_a_call(source, tmp_path, elsewhere)
