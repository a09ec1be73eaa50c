"""The time of a micro-batch, until its rows are visible, of a first epoch; a nearly idle stream."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pulsar
from pyspark.sql import DataFrame, SparkSession

from bench import plain
from bench.environment import (
    CORES,
    Environment,
    Spread,
    chosen,
    interleaved_seconds,
    percentile,
    timed_s,
)
from bench.peers import stream_by_pulsar_spark
from bench.spark_writers import (
    EosSink,
    FileStream,
    RowShape,
    WriteStream,
    drop,
    frame,
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
# Without rounds of other measurements before: the cost of a transaction fell from 75 ms to 30 after
# some 90 epochs (measured).
WARM_UP_COLD: Final = 44
_SHOWN_WITHIN_S: Final = 60.0


def measure(
    env: Environment,
    epochs: int,
    tell: Callable[[str], None],
    *,
    sizes: tuple[int, ...] = ROWS,
    only: Collection[str] = (),
    warm_up: int = _WARM_UP,
) -> dict[str, Any]:
    """Return ``{rows: {path: spread in ms, with p99}}``.

    At least ``epochs`` of each path are counted; of the paths ``only``, if it is not empty.
    """
    found: dict[str, Any] = {}
    for rows in sizes:
        tell(f"epochs of {rows:,} rows")
        found[str(rows)] = _measure_size(env, rows, epochs, only=only, warm_up=warm_up)
    return found


def _measure_size(
    env: Environment, rows: int, epochs: int, *, only: Collection[str], warm_up: int
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
                "delta": FileStream(env, text, _delta(env)),
            }
            written = {"eos": topic, "no_transaction": plain_topic}
            if env.has_pulsar_spark:
                url = env.broker.service_url
                streams["pulsar_spark"] = FileStream(
                    env, text, lambda df: stream_by_pulsar_spark(df, url, peers_topic)
                )
                written["pulsar_spark"] = peers_topic
            streams = chosen(streams, only)
            for stream in streams.values():
                stream.run(warm_up)
            took_ms: dict[str, list[float]] = {name: [] for name in streams}
            order = np.random.default_rng(0)
            for _ in range(-(-epochs // _AT_A_TIME)):
                # Paths alternate: other load of the machine affects all of them alike.
                for name in order.permutation(list(streams)):
                    took_ms[name] += streams[name].run(_AT_A_TIME)
            for name, stream in streams.items():
                if name in written:
                    env.await_count(written[name], stream.epochs * rows)
    return {name: _with_p99(times_ms) for name, times_ms in took_ms.items()}


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


# --- a cluster with many executors --------------------------------------------------------------

CLUSTER_DRIVER: Final = "cluster-driver"  # the command that calls ``cluster_driver``
EXECUTORS: Final = 16
TASKS: Final = (2, 8, 16, 64)
_CLUSTER_WITHIN_S: Final = 400.0
# All executors' JVMs must have compiled what they run.
_CLUSTER_WARM_UP: Final = 6


def measure_cluster(
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None]
) -> dict[int, dict[str, Any]]:
    """Return the rows per second of an epoch on 16 executors, a spread, by the number of tasks."""
    tell(f"{EXECUTORS} executors")
    folder = env.folder / "cluster"
    with env.topic(1) as topic:
        command = [sys.executable, "-m", "bench", CLUSTER_DRIVER]
        command += [env.broker.service_url, topic, str(rows), str(rounds), str(folder)]
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=_CLUSTER_WITHIN_S
        )
        epochs = _CLUSTER_WARM_UP + rounds * len(TASKS)
        env.await_count(topic, epochs * rows)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    spreads = {int(tasks): vars(Spread.of(rates, 0)) for tasks, rates in found.items()}
    for tasks, spread in spreads.items():
        tell(f"{tasks} tasks: {spread['median']:,.0f} rows/s")
    return spreads


def cluster_driver(service_url: str, topic: str, rows: int, rounds: int, folder: Path) -> None:
    """Write epochs by a cluster of 16 executors, and print their rows per second by tasks."""
    folder.mkdir()
    spark = (
        SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,512]")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "512m")
        # The threads of 16 other collectors would take turns on these cores, too.
        .config("spark.executor.extraJavaOptions", "-XX:+UseSerialGC")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sink = PulsarSink(
        service_url=service_url,
        topic=topic,
        sink_id=topic.rsplit("/", 1)[1],
        commit_log=str(folder / "commit-log"),
        compression="none",
    )
    epochs = 0

    def rate(tasks: int) -> float:
        nonlocal epochs
        epochs += 1
        df = frame(spark, RowShape(), rows, tasks=tasks)
        return rows / timed_s(lambda: sink.write(df, epoch=epochs))

    for _ in range(_CLUSTER_WARM_UP):
        rate(max(TASKS))
    order = np.random.default_rng(0)
    found: dict[int, list[float]] = {tasks: [] for tasks in TASKS}
    for _ in range(rounds):
        for tasks in order.permutation(TASKS):
            found[int(tasks)].append(rate(int(tasks)))
    sink.close()
    print(json.dumps(found))
    spark.stop()
