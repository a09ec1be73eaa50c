"""The time of a micro-batch, until its rows are visible, of a first epoch; a nearly idle stream."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pulsar
from pyspark.sql import DataFrame, SparkSession

from bench import plain
from bench.environment import CORES, Environment, Spread, interleaved_seconds, percentile
from bench.peers import stream_by_pulsar_spark
from bench.spark_writers import (
    EosSink,
    FileStream,
    WriteStream,
    drop,
    pass_through_python,
    write_by_pulsar_client,
)
from eos import PulsarSink

DRIVER: Final = "first-epoch-driver"  # the command that calls ``first_epoch_driver``
ROWS: Final = (10, 1_000, 100_000)
# Counted epochs of each start; a first one is not counted. Not nine: Delta writes a checkpoint at
# every tenth commit, which could always be the uncounted one.
_AT_A_TIME: Final = 10
_WARM_UP: Final = 11
# After few earlier epochs: the cost of a transaction fell from 75 ms to 30 after some 90 epochs
# (measured).
WARM_UP_COLD: Final = 22
_SHOWN_WITHIN_S: Final = 60.0


def measure(
    env: Environment,
    epochs: int,
    tell: Callable[[str], None],
    *,
    sizes: tuple[int, ...] = ROWS,
    delta: bool = True,
    warm_up: int = _WARM_UP,
) -> dict[str, Any]:
    """Return ``{rows: {path: spread in ms, with p99}}``, and the cost of the two-phase commit.

    At least ``epochs`` of each path are counted.
    """
    found: dict[str, Any] = {}
    for rows in sizes:
        tell(f"epochs of {rows:,} rows")
        found[str(rows)] = _measure_size(env, rows, epochs, delta=delta, warm_up=warm_up)
    return found


def _measure_size(
    env: Environment, rows: int, epochs: int, *, delta: bool, warm_up: int
) -> dict[str, Any]:
    text = "".join(f"{row:09} the quick brown fox\n" for row in range(rows))
    with ExitStack() as stack:
        topic, plain_topic, peers_topic = (stack.enter_context(env.topic(CORES)) for _ in range(3))
        with EosSink(env, topic) as sink:
            streams = {
                "eos": FileStream(env, text, lambda df: df.writeStream.foreachBatch(sink.sink)),
                "no_transaction": FileStream(env, text, _plain(env, plain_topic)),
                "collect": FileStream(env, text, _action(DataFrame.collect)),
                "spark_python": FileStream(env, text, _action(pass_through_python)),
            }
            written = {"eos": topic, "no_transaction": plain_topic}
            if env.has_pulsar_spark:
                url = env.broker.service_url
                streams["pulsar_spark"] = FileStream(
                    env, text, lambda df: stream_by_pulsar_spark(df, url, peers_topic)
                )
                written["pulsar_spark"] = peers_topic
            if delta:
                streams["delta"] = FileStream(env, text, _delta(env))
            for stream in streams.values():
                stream.run(warm_up)
            took_ms: dict[str, list[float]] = {name: [] for name in streams}
            order = np.random.default_rng(0)
            for _ in range(-(-epochs // _AT_A_TIME)):
                # Paths alternate: other load of the machine affects all of them alike.
                for name in order.permutation(list(streams)):
                    took_ms[name] += streams[name].run(_AT_A_TIME)
            for name, where in written.items():
                env.await_count(where, streams[name].epochs * rows)
    result: dict[str, Any] = {name: _with_p99(times_ms) for name, times_ms in took_ms.items()}
    with_it, without = result["eos"]["median"], result["no_transaction"]["median"]
    result["overhead_ms"] = round(with_it - without, 1)
    result["overhead_ratio"] = round(with_it / without, 3)
    return result


def _with_p99(times_ms: list[float]) -> dict[str, Any]:
    return {**vars(Spread.of(times_ms)), "p99": round(percentile(times_ms, 0.99), 1)}


def _plain(env: Environment, topic: str) -> WriteStream:
    task = plain.PlainTask.of(env.broker.service_url, topic, CORES)

    def write(df: DataFrame, _: int) -> None:
        plain.write(df, task)

    return lambda df: df.writeStream.foreachBatch(write)


def _action(action: Callable[[DataFrame], object]) -> WriteStream:

    def write(df: DataFrame, _: int) -> None:
        action(df)

    return lambda df: df.writeStream.foreachBatch(write)


def _delta(env: Environment) -> WriteStream:
    path = str(env.folder / f"delta-{uuid.uuid4().hex[:8]}")

    def write(df: DataFrame, _: int) -> None:
        df.write.format("delta").mode("append").save(path)

    return lambda df: df.writeStream.foreachBatch(write)


def measure_visible(env: Environment, epochs: int) -> dict[str, Any]:
    """Return the milliseconds from a row's entry into the source until a plain reader has it."""
    folder = env.folder / f"visible-{uuid.uuid4().hex[:8]}"
    (folder / "input").mkdir(parents=True)
    with env.topic(1) as topic, ExitStack() as stack:
        client = pulsar.Client(
            env.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        stack.callback(client.close)
        reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
        sink = stack.enter_context(EosSink(env, topic))
        query = (
            env.spark.readStream.schema("value string")
            .text(str(folder / "input"))
            .writeStream.foreachBatch(sink.sink)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        stack.callback(query.stop)
        latencies_ms: list[float] = []
        for number in range(epochs + _WARM_UP):
            drop(folder / "input", f"{number:06}", f"{number} {time.time()}\n")
            message = reader.read_next(timeout_millis=int(_SHOWN_WITHIN_S * 1000))
            _, entered = message.data().split()
            latencies_ms.append((time.time() - float(entered)) * 1000)
            time.sleep(0.2 + 0.05 * (number % 7))  # out of step with the query
    return _with_p99(latencies_ms[_WARM_UP:])


# --- the first epoch of a fresh driver ---------------------------------------------------------

_WAYS: Final = ("eos", "pulsar_client")
_COLD_ROWS: Final = 10
_COLD_WITHIN_S: Final = 120.0


def measure_first_epoch(
    env: Environment, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return ``{way: spread of seconds}`` of a fresh driver's first epoch.

    Timed from the creation of the sink until a reader has its rows, each time in a new process with
    a new Spark session.
    """
    tell("fresh drivers")
    ways = {way: partial(_first_epoch_s, env, way) for way in _WAYS}
    return interleaved_seconds(env, ways, rounds, tell)


def _first_epoch_s(env: Environment, way: str) -> float:
    url = env.broker.service_url
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        with env.topic(1) as topic:
            reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
            folder = env.folder / f"cold-{topic.rsplit('-', 1)[1]}"
            command = [sys.executable, "-m", "bench", DRIVER, way, url, topic, str(folder)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
                try:
                    _await_rows(reader, driver)
                    shown_at = time.time()
                    assert driver.stdout is not None
                    return shown_at - float(driver.stdout.read())
                finally:
                    driver.kill()  # it has ended, or it hangs
    finally:
        client.close()


def _await_rows(reader: pulsar.Reader, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + _COLD_WITHIN_S
    rows = 0
    while rows < _COLD_ROWS:
        try:
            reader.read_next(timeout_millis=1000)
            rows += 1
        except pulsar.Timeout:
            if driver.poll() or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{rows} of {_COLD_ROWS} rows arrived; exit code of the driver: {driver.poll()}"
                ) from None


def first_epoch_driver(way: str, service_url: str, topic: str, folder: Path) -> None:
    """Write one epoch with a new Spark session, and print when it began."""
    (folder / "input").mkdir(parents=True)
    (folder / "input" / "rows").write_text(
        "".join(f"row {number}\n" for number in range(_COLD_ROWS))
    )
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def by_pulsar_client(df: DataFrame, _: int) -> None:
        write_by_pulsar_client(df, service_url, topic)

    began = time.time()  # imports and the start of Spark do not count
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


# --- a stream with few rows --------------------------------------------------------------------

_IDLE_ROWS_PER_S: Final = 10
_IDLE_WARM_UP_S: Final = 20


def measure_idle(env: Environment, seconds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the cores used by a stream of ten rows each second: ``{"cores": {process: share},
    "seconds": measured time}``."""
    tell(f"ten rows each second, for {seconds} s")
    with env.topic(1) as topic, EosSink(env, topic) as sink:
        query = (
            env.spark.readStream.format("rate")
            .option("rowsPerSecond", _IDLE_ROWS_PER_S)
            .load()
            .selectExpr("string(value) AS value")
            .writeStream.foreachBatch(sink.sink)
            .option("checkpointLocation", str(env.folder / "idle"))
            .start()
        )
        try:
            query.awaitTermination(_IDLE_WARM_UP_S)  # raises the query's error
            before, rows, began = env.processor_s(), _message_count(env, topic), time.monotonic()
            query.awaitTermination(seconds)
            after, took_s = env.processor_s(), time.monotonic() - began
            written = _message_count(env, topic) - rows
        finally:
            query.stop()
    if written < _IDLE_ROWS_PER_S * took_s / 2:
        raise RuntimeError(f"Only {written} rows in {took_s:.0f} s: the stream does not keep up")
    cores = {who: round((used - before[who]) / took_s, 3) for who, used in after.items()}
    return {"cores": cores, "seconds": round(took_s)}


def _message_count(env: Environment, topic: str) -> int:
    counted: int = env.stats(topic)["msgInCounter"]
    return counted
