"""A driver on ``local-cluster`` whose tasks and executors die: run by test_reruns.py.

    python -m tests.sinks.rerun_driver SERVICE_URL ADMIN_URL FOLDER SCENARIO...

Prints a line of JSON for each scenario; its sink, topic and epoch have the scenario's name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from eos import PulsarSink
from eos.chaos.cluster.processes import executors, kill_all

ROWS = 160_000
FIRST_SENT_BY_THEN = 1
SENT_BY_THEN = 3  # Arrow batches of 1 MB: by then the sink has sent an entry
Batches = Iterable[pa.RecordBatch]


def once(marker: Path) -> bool:
    """True for the first caller of all processes."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def await_rows(admin_url: str, topic: str) -> None:
    """Wait until the broker has rows of ``topic``, inside or outside of the transaction."""
    assert has_rows(admin_url, topic, within_s=60), "no rows were sent"


def has_rows(admin_url: str, topic: str, *, within_s: float) -> bool:
    """Whether the broker has rows of ``topic`` in time."""
    url = f"{admin_url}/admin/v2/persistent/public/default/{topic}/stats"
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        # The topic may not exist yet.
        with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(url) as response:
            if json.load(response)["msgInCounter"] > 0:
                return True
        time.sleep(0.05)
    return False


def own_executor() -> psutil.Process:
    """Return the executor's JVM of this Python worker."""
    return next(p for p in psutil.Process().parents() if "java" in p.name())


def fail_once(marker: Path, admin_url: str, topic: str) -> Callable[[Batches], Iterator]:
    """Fail in the first task after it has sent rows."""

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == SENT_BY_THEN and TaskContext.get().partitionId() == 0 and once(marker):
                await_rows(admin_url, topic)
                raise RuntimeError("the user's code fails once")

    return function


def fail_always(_: Path, admin_url: str, topic: str) -> Callable[[Batches], Iterator]:
    """Fail in each run at the same row, after earlier rows were sent."""

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == SENT_BY_THEN:
                await_rows(admin_url, topic)
                raise ValueError("order 7 has no customer")

    return function


def kill_executor_once(marker: Path, admin_url: str, topic: str) -> Callable[[Batches], Iterator]:
    """Kill the executor after its task has sent rows."""

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == SENT_BY_THEN and TaskContext.get().partitionId() == 0 and once(marker):
                await_rows(admin_url, topic)
                os.kill(own_executor().pid, signal.SIGKILL)

    return function


def kill_others_once(
    marker: Path, admin_url: str, topic: str, driver_pid: int
) -> Callable[[Batches], Iterator]:
    """Kill the executors with the rest of the shuffle while the sink's task reads it."""

    def function(batches: Batches) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number < FIRST_SENT_BY_THEN or marker.exists():
                continue
            # As early as possible: most of the shuffle must be unread. Each release keeps some
            # batches on the way to the sink: it had sent rows after three with 4.2, four with 3.5.
            if has_rows(admin_url, topic, within_s=10) and once(marker):
                own = own_executor()
                kill_all([other for other in executors(driver_pid) if other != own])

    return function


def source(spark: SparkSession, partitions: int) -> DataFrame:
    """Return rows of about 100 bytes, each with its own number."""
    df = spark.range(0, ROWS, 1, partitions)
    return df.selectExpr("concat(lpad(id, 8, '0'), repeat('x', 92)) AS value")


def run(spark: SparkSession, scenario: str, folder: Path, admin_url: str, sink: PulsarSink) -> dict:
    """Write one epoch under the scenario's fault."""
    args = (folder / f"{scenario}.marker", admin_url, scenario)
    match scenario.split("-")[0]:
        case "task":
            df = source(spark, 1).mapInArrow(fail_once(*args), "value string")
        case "error":
            df = source(spark, 1).mapInArrow(fail_always(*args), "value string")
        case "executor":
            df = source(spark, 1).mapInArrow(kill_executor_once(*args), "value string")
        case "fetch":
            shuffled = source(spark, 16).repartition(1)
            df = shuffled.mapInArrow(kill_others_once(*args, os.getpid()), "value string")
        case other:
            raise ValueError(other)
    try:
        result = sink.write(df, epoch=scenario)
    except Exception as error:
        return {"scenario": scenario, "status": "raised", "records": 0, "error": str(error)}
    return {"scenario": scenario, "status": result.status, "records": result.records}


def session() -> SparkSession:
    """Start Spark with two executors, few events for listeners, and little history."""
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.adaptive.enabled", "false")
        # This checkout, not an installed package.
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[2]))
        # The sink must not depend on Spark's events or history.
        .config("spark.scheduler.listenerbus.eventqueue.capacity", "1")
        .config("spark.ui.retainedStages", "0")
        .config("spark.ui.retainedJobs", "0")
        # One block at a time, so that the sink is still reading when the others die.
        .config("spark.reducer.maxReqsInFlight", "1")
        .config("spark.reducer.maxBlocksInFlightPerAddress", "1")
        .config("spark.shuffle.io.maxRetries", "1")
        .config("spark.shuffle.io.retryWait", "200ms")
        .config("spark.locality.wait", "0s")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def main() -> None:
    """Run the scenarios in one session."""
    service_url, admin_url, where, *scenarios = sys.argv[1:]
    folder = Path(where)
    spark = session()
    for scenario in scenarios:
        sink = PulsarSink(
            sink_id=scenario,
            service_url=service_url,
            admin_url=admin_url,
            topic=scenario,
            commit_log=str(folder / "log"),
            create_topics=True,
        )
        print(json.dumps(run(spark, scenario, folder, admin_url, sink)), flush=True)
        sink.close()
    spark.stop()


if __name__ == "__main__":
    main()
