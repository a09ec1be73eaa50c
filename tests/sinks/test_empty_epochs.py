"""Epochs without rows, of different plans in Spark: each ends as EMPTY."""

from __future__ import annotations

import pytest

from tests.support.judge import drain

PLANS = {
    "repartition": lambda df: df.repartition(4),
    "distinct": lambda df: df.distinct(),
    "orderBy": lambda df: df.orderBy("value"),
    "groupBy": lambda df: df.groupBy("value").count().select("value"),
    "join": lambda df: df.join(df.withColumnRenamed("value", "v"), df.value == df.value),
    "limit": lambda df: df.limit(0),
    "coalesce": lambda df: df.coalesce(1),
}


@pytest.mark.parametrize("adaptive", ["true", "false"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_without_rows_is_an_empty_epoch(spark, spark_conf, make_sink, log, plan, adaptive):
    spark_conf("spark.sql.adaptive.enabled", adaptive)
    spark_conf("spark.sql.shuffle.partitions", "3")
    df = spark.range(100).where("id < 0").selectExpr("cast(id as string) AS value")
    result = make_sink().write(PLANS[plan](df).select("value"), epoch="a")
    assert (result.status, result.records) == ("written", 0)
    assert [r.state for r in log() if r.epoch] == ["OPEN", "ABORTING", "EMPTY"]


def test_a_stream_continues_after_empty_epochs(
    pulsar_standalone, spark_conf, make_sink, source, log, name, tmp_path
):
    spark_conf("spark.sql.shuffle.partitions", "3")
    sink = make_sink()

    def write(df, batch_id):
        sink(df.where("value LIKE 'row%'").repartition(3).select("value"), batch_id)

    for number in range(4):
        source.add(f"row {number}" if number % 2 else f"other {number}")
        source.run(write, tmp_path / "checkpoint")
    assert [r.state for r in log() if r.state in ("EMPTY", "COMMITTED")] == [
        "EMPTY",
        "COMMITTED",
        "EMPTY",
        "COMMITTED",
    ]
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert [m.value for m in seen] == [b"row 1", b"row 3"]
