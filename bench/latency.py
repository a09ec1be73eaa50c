"""How long a micro-batch takes, and how long a row until a reader has it.

A stream from files, as Spark times it itself (``bench/streams.py``). The same stream into the same
sink without transactions, into nothing (a ``collect``), through Spark's Python into nothing (a
``mapInArrow``, as it comes), into pulsar-spark's sink, and into a Delta table if wanted. Epochs of
them come in turn, a few at a time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import pulsar
from pyspark.sql import DataFrame

from bench import plain, pulsar_spark
from bench.environment import CORES, Setting
from bench.paths import EosSink, pass_through_python
from bench.statistics import Spread, percentile
from bench.streams import FileStream, WriteStream, drop

ROWS: Final = (10, 1_000, 100_000)
_AT_A_TIME: Final = 10
"""Epochs of a start; one more is not counted. Not nine: Delta writes a checkpoint at each tenth
commit, which could always be the one that is not counted."""
_WARM_UP: Final = 11
WARM_UP_COLD: Final = 22
"""Where few epochs were written before: what a transaction costs fell from 75 ms to 30 after some
90 of them (measured)."""
_SHOWN_WITHIN_S: Final = 60.0


def measure(
    setting: Setting,
    epochs: int,
    tell: Callable[[str], None],
    *,
    sizes: tuple[int, ...] = ROWS,
    delta: bool = True,
    warm_up: int = _WARM_UP,
) -> dict[str, Any]:
    """``{rows: {path: spread in ms, with p99}}`` and the two-phase commit's own cost, of no fewer
    than so many ``epochs``."""
    found: dict[str, Any] = {}
    for rows in sizes:
        tell(f"epochs of {rows:,} rows")
        found[str(rows)] = _of(setting, rows, epochs, delta=delta, warm_up=warm_up)
    return found


def _of(setting: Setting, rows: int, epochs: int, *, delta: bool, warm_up: int) -> dict[str, Any]:
    text = "".join(f"{row:09} the quick brown fox\n" for row in range(rows))
    with ExitStack() as stack:
        topic, plain_topic, peers_topic = (
            stack.enter_context(setting.topic(CORES)) for _ in range(3)
        )
        sink = EosSink(setting, topic)
        streams = {
            "eos": FileStream(setting, text, lambda df: df.writeStream.foreachBatch(sink.sink)),
            "no_transaction": FileStream(setting, text, _plain(setting, plain_topic)),
            "collect": FileStream(setting, text, _doing(DataFrame.collect)),
            "spark_python": FileStream(setting, text, _doing(pass_through_python)),
        }
        written = {"eos": topic, "no_transaction": plain_topic}
        if setting.has_pulsar_spark:
            url = setting.broker.service_url
            streams["pulsar_spark"] = FileStream(
                setting, text, lambda df: pulsar_spark.stream(df, url, peers_topic)
            )
            written["pulsar_spark"] = peers_topic
        if delta:
            streams["delta"] = FileStream(setting, text, _delta(setting))
        try:
            for stream in streams.values():
                stream.run(warm_up)
            took_ms: dict[str, list[float]] = {name: [] for name in streams}
            order = np.random.default_rng(0)
            for _ in range(-(-epochs // _AT_A_TIME)):
                for name in order.permutation(list(streams)):
                    took_ms[name] += streams[name].run(_AT_A_TIME)
            for name, where in written.items():
                setting.await_count(where, streams[name].epochs * rows)
        finally:
            sink.close()
    result: dict[str, Any] = {name: _with_p99(times_ms) for name, times_ms in took_ms.items()}
    with_it, without = result["eos"]["median"], result["no_transaction"]["median"]
    result["overhead_ms"] = round(with_it - without, 1)
    result["overhead_ratio"] = round(with_it / without, 3)
    return result


def _with_p99(times_ms: list[float]) -> dict[str, Any]:
    return {**vars(Spread.of(times_ms)), "p99": round(percentile(times_ms, 0.99), 1)}


def _plain(setting: Setting, topic: str) -> WriteStream:
    task = plain.PlainTask.of(setting.broker.service_url, topic, CORES)

    def write(df: DataFrame, _: int) -> None:
        plain.write(df, task)

    return lambda df: df.writeStream.foreachBatch(write)


def _doing(action: Callable[[DataFrame], object]) -> WriteStream:
    """Epochs that do nothing else with their rows."""

    def write(df: DataFrame, _: int) -> None:
        action(df)

    return lambda df: df.writeStream.foreachBatch(write)


def _delta(setting: Setting) -> WriteStream:
    path = str(setting.folder / f"delta-{uuid.uuid4().hex[:8]}")

    def write(df: DataFrame, _: int) -> None:
        df.write.format("delta").mode("append").save(path)

    return lambda df: df.writeStream.foreachBatch(write)


def measure_visible(setting: Setting, epochs: int) -> dict[str, Any]:
    """Milliseconds from a row's entry into the source until a ``pulsar-client`` reader has it."""
    folder = setting.folder / f"visible-{uuid.uuid4().hex[:8]}"
    (folder / "input").mkdir(parents=True)
    with setting.topic(1) as topic, ExitStack() as stack:
        client = pulsar.Client(
            setting.broker.service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
        )
        stack.callback(client.close)
        reader = client.create_reader(f"{topic}-partition-0", pulsar.MessageId.earliest)
        sink = EosSink(setting, topic)
        stack.callback(sink.close)
        query = (
            setting.spark.readStream.schema("value string")
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
            time.sleep(0.2 + 0.05 * (number % 7))  # not in step with the query
    return _with_p99(latencies_ms[_WARM_UP:])
