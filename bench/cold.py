"""The first epoch of a fresh driver: from making the sink until a reader has its rows.

Each time a new process with a new Spark, eos and ``foreachPartition`` with ``pulsar-client`` in
turn. What a program does before, from its imports to Spark's session, does not count.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pulsar
from pyspark.sql import DataFrame, SparkSession

from bench.environment import CORES, Setting
from bench.interleaved import seconds_by_turns
from bench.paths import write_by_pulsar_client
from eos import PulsarSink

WAYS: Final = ("eos", "pulsar_client")
_ROWS: Final = 10
_SHOWN_WITHIN_S: Final = 120.0


def measure(setting: Setting, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """``{way: spread of seconds}``."""
    tell("fresh drivers")
    ways = {way: partial(_first_epoch_s, setting, way) for way in WAYS}
    return seconds_by_turns(setting, ways, rounds, tell)


def _first_epoch_s(setting: Setting, way: str) -> float:
    url = setting.broker.service_url
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        with setting.topic(1) as topic:
            reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
            folder = setting.folder / f"cold-{topic.rsplit('-', 1)[1]}"
            command = [sys.executable, "-m", "bench.cold", way, url, topic, str(folder)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
                try:
                    _await_rows(reader, driver)
                    shown_at = time.time()
                    assert driver.stdout is not None
                    return shown_at - float(driver.stdout.read())
                finally:
                    driver.kill()  # it has ended, or something is wrong
    finally:
        client.close()


def _await_rows(reader: pulsar.Reader, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _SHOWN_WITHIN_S
    rows = 0
    while rows < _ROWS:
        try:
            reader.read_next(timeout_millis=1000)
            rows += 1
        except pulsar.Timeout:
            if driver.poll() or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{rows} rows of {_ROWS} came; the driver's exit code: {driver.poll()}"
                ) from None


def drive(way: str, service_url: str, topic: str, folder: Path) -> None:
    """A driver that writes one epoch, and says when it began."""
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "rows").write_text("".join(f"row {number}\n" for number in range(_ROWS)))
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def by_pulsar_client(df: DataFrame, _: int) -> None:
        write_by_pulsar_client(df, service_url, topic)

    began = time.time()
    write: Callable[[DataFrame, int], None] = by_pulsar_client
    if way == "eos":
        write = PulsarSink(
            service_url=service_url,
            topic=topic,
            sink_id=topic.rsplit("/", 1)[1],
            commit_log=str(folder / "commit-log"),
        )
    query = (
        spark.readStream.schema("value string")
        .text(str(folder / "input"))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(began)
    spark.stop()


if __name__ == "__main__":
    way, service_url, topic, folder = sys.argv[1:]
    drive(way, service_url, topic, Path(folder))
