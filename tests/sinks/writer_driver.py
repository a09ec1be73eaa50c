"""A driver that writes a stream, or a batch job, by ``format("pulsar")`` while its tasks die.

    python -m tests.sinks.writer_driver SERVICE_URL ADMIN_URL FOLDER SCENARIO...

Run by test_datasource_reruns.py. Prints a line of JSON for each run of a query; its sink, topic and
checkpoint have the scenario's name. Each scenario runs until the query ends without an error,
three times at most.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.sinks.rerun_driver import (
    ROWS,
    fail_once,
    kill_executor_once,
    kill_others_once,
    session,
    source,
)

RUNS = 3


def faulty(rows: DataFrame, scenario: str, folder: Path, admin_url: str) -> DataFrame:
    """Return ``rows`` with the scenario's fault."""
    args = (folder / f"{scenario}.marker", admin_url, scenario)
    match scenario.split("-")[0]:
        case "task" | "batch":
            fault = fail_once(*args)
        case "executor":
            fault = kill_executor_once(*args)
        case "fetch":
            fault = kill_others_once(*args, os.getpid())
        case other:
            raise ValueError(other)
    return rows.mapInArrow(fault, "value string")


def run_stream(spark: SparkSession, scenario: str, folder: Path, options: dict[str, str]) -> None:
    """Run the query once: all ``ROWS`` are one epoch."""
    files = folder / f"{scenario}.rows"
    if not files.exists():
        source(spark, 16).write.parquet(str(files))
    stream = spark.readStream.schema("value string").parquet(str(files))
    # A shuffle before the sink, if the fault hits it.
    one = stream.repartition(1) if scenario.startswith("fetch") else stream.coalesce(1)
    query = (
        faulty(one, scenario, folder, options["adminUrl"])
        .writeStream.format("pulsar")
        .options(**options)
        .option("checkpointLocation", str(folder / f"{scenario}.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def run_batch(spark: SparkSession, scenario: str, folder: Path, options: dict[str, str]) -> None:
    """Run the job once."""
    rows = faulty(source(spark, 1), scenario, folder, options["adminUrl"])
    rows.write.format("pulsar").mode("append").options(**options, epoch="1").save()


def main() -> None:
    """Run the scenarios in one session."""
    service_url, admin_url, where, *scenarios = sys.argv[1:]
    folder = Path(where)
    spark = session()
    for scenario in scenarios:
        options = {
            "serviceUrl": service_url,
            "adminUrl": admin_url,
            "topic": scenario,
            "sinkId": scenario,
            "commitLog": str(folder / "log"),
            "createTopics": "true",
        }
        run = run_batch if scenario.startswith("batch") else run_stream
        for number in range(RUNS):
            line = {"scenario": scenario, "run": number, "rows": ROWS, "error": ""}
            try:
                run(spark, scenario, folder, options)
            except Exception as error:
                line["error"] = str(error)
            print(json.dumps(line), flush=True)
            if not line["error"]:
                break
    spark.stop()


if __name__ == "__main__":
    main()
