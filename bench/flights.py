"""Real rows, as they come: the flights of 2013 as JSON, each way by its own defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow.parquet
from pyspark.sql import DataFrame

from bench import pulsar_spark
from bench.environment import CORES, Setting
from bench.interleaved import WARM_UP, rates_by_turns
from bench.paths import EosSink, pass_through_python
from examples.flights.flight_files import read_flights

_TIMES: Final = 2
"""The flights are written by one run."""


def measure(stage: Setting, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """``rows`` of a run, the mean ``value_bytes``, and ``rows_per_s`` of each path, as a spread.

    eos compresses what is worth it (``compression="auto"``), pulsar-spark nothing: a user who sets
    nothing gets that. All read the same Parquet files, and Spark makes the JSON.

    Raises:
        RuntimeError: the broker has not counted what was written.
    """
    values = _values(stage)
    rows = values.count()
    size = values.selectExpr("avg(length(value))").collect()[0][0]
    url = stage.broker.service_url
    with stage.topic(1) as ours, stage.topic(1) as theirs:
        sink = EosSink(stage, ours, compression="auto")

        def counted(write: Callable[[], None]) -> Callable[[], float]:
            def run() -> float:
                write()
                return rows

            return run

        ways = {
            "eos": counted(lambda: sink.write(values)),
            "spark_empty": counted(lambda: pass_through_python(values)),
        }
        if stage.has_pulsar_spark:
            ways["pulsar_spark"] = counted(lambda: pulsar_spark.write(values, url, theirs))
        try:
            rates = rates_by_turns(stage, ways, rounds, lambda text: tell(f"flights: {text}"))
        finally:
            sink.close()
        for way, topic in (("eos", ours), ("pulsar_spark", theirs)):
            if way in ways:
                stage.await_count(topic, (rounds + WARM_UP) * rows)
    return {"rows": rows, "value_bytes": round(size), "rows_per_s": rates}


def _values(stage: Setting) -> DataFrame:
    folder = stage.folder / "flights"
    folder.mkdir()
    flights = read_flights()
    share = -(-len(flights) // CORES)
    for core in range(CORES):
        part = flights.slice(core * share, share)
        for time in range(_TIMES):
            pyarrow.parquet.write_table(part, folder / f"{core}-{time}.parquet")
    return stage.spark.read.parquet(str(folder)).selectExpr("to_json(struct(*)) AS value")
