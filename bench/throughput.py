"""Rows per second: eos, the usual way, the Java client, pulsar-spark, and two ceilings.

Each round runs every path once, so other load of the machine affects all of them alike. A run
begins when the broker has finished the one before, or two seconds later. It counts only if the
broker has counted no fewer messages than were written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from bench import plain
from bench.environment import WARM_UP, Environment, Spread, interleaved_rates, timed_s
from bench.peers import JavaClient, write_by_pulsar_spark
from bench.row_sources import RowShape, flight_values, frame
from bench.spark_writers import EosSink, pass_through_python, write_by_pulsar_client
from bench.writer_processes import WriterProcesses, start_writers

BASE: Final = RowShape()
SHAPES: Final = tuple(
    RowShape(value_bytes, columns, partitions)
    for value_bytes in (100, 1024)
    for columns in ("value", "keyed", "properties")
    for partitions in ((1, 4, 16) if columns == "value" else (1, 16))
)
_WITH_A_TARGET: Final = {
    RowShape(value_bytes, "value", partitions)
    for value_bytes in (100, 1024)
    for partitions in (1, 4)
}
ROUNDS: Final = {shape: 7 if shape in _WITH_A_TARGET else 3 for shape in SHAPES}
"""Rounds by shape. The medians of three rounds vary by a tenth and more from run to run."""
QUICK_ROUNDS: Final = {BASE: 3}
_WARM_UP: Final = 3
"""Rounds of the first shape that do not count, since all JVMs are new; later shapes have one.
Measured over 45 epochs of two million rows: after the third, Spark's JVM needs hardly less."""
_SLOW_ROWS: Final = {100: 250_000, 1024: 100_000}
"""Most rows that ``pulsar_client`` writes, by bytes of a value. Measured, medians of three: 100
bytes 69 thousand rows/s for 250,000 rows and for a million, 61 thousand for 125,000; 1,024
bytes 42 thousand for 100,000 and for 195,000, 34 thousand for 24,000."""

WriteRows = Callable[[str, int], float]
"""Writes a number of rows to a topic; returns rows per second."""


def measure(
    env: Environment, rows: int, rounds: dict[RowShape, int], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Return an entry for each path and shape: ``path``, ``shape``, the ``rows`` of a run, and
    ``rows_per_s``, a spread over the shape's rounds."""
    results: list[dict[str, Any]] = []
    order = np.random.default_rng(0)
    url = env.broker.service_url
    with JavaClient(url) as java, start_writers(url) as processes:
        for shape, wanted_rounds in rounds.items():
            paths = _paths(env, shape, java, processes)
            found: dict[str, list[float]] = {name: [] for name in paths}
            for number in range(-1 if results else -_WARM_UP, wanted_rounds):
                tell(f"{shape.name}: {'warm-up' if number < 0 else f'round {number + 1}'}")
                for name in order.permutation(list(paths)):
                    rate = _run(env, name, paths[name], shape, _rows_of(name, shape, rows))
                    if number >= 0:
                        found[name].append(rate)
            results += [
                {
                    "path": name,
                    "shape": vars(shape),
                    "rows": _rows_of(name, shape, rows),
                    "rows_per_s": vars(Spread.of(rates, 0)),
                }
                for name, rates in found.items()
            ]
    return results


def _rows_of(path: str, shape: RowShape, rows: int) -> int:
    count = shape.count(rows)
    return min(count, _SLOW_ROWS[shape.value_bytes]) if path == "pulsar_client" else count


def _run(env: Environment, name: str, write: WriteRows, shape: RowShape, count: int) -> float:
    env.settle()
    with env.topic(shape.partitions) as topic:
        rate = write(topic, count)
        if name != "spark_empty":
            env.await_count(topic, count)
    return rate


def _paths(
    env: Environment, shape: RowShape, java: JavaClient, processes: WriterProcesses
) -> dict[str, WriteRows]:
    url = env.broker.service_url

    def eos(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        sink = EosSink(env, topic)
        try:
            sink.write(df.limit(0))  # claims the sink, which a query does once
            return count / timed_s(lambda: sink.write(df))
        finally:
            sink.close()

    def pulsar_client(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: write_by_pulsar_client(df, url, topic))

    def by_pulsar_spark(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: write_by_pulsar_spark(df, url, topic))

    def no_transaction(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        task = plain.PlainTask.of(url, topic, shape.partitions)
        return count / timed_s(lambda: plain.write(df, task))

    def spark_empty(_: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: pass_through_python(df))

    paths: dict[str, WriteRows] = {
        "eos": eos,
        "pulsar_client": pulsar_client,
        "spark_empty": spark_empty,
    }
    if shape.columns == "value":
        paths["java_transaction"] = partial(java.rows_per_s, shape)
    if shape.columns == "value" and env.has_pulsar_spark:
        paths["pulsar_spark"] = by_pulsar_spark
    if shape.columns == "value" and shape.partitions == 1:
        paths["no_transaction"] = no_transaction
        paths["eos_from_arrow"] = partial(processes.rows_per_s, "arrow", shape)
        paths["raw_sockets"] = partial(processes.rows_per_s, "raw", shape)
    return paths


def measure_flights(env: Environment, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Write real rows, the flights of 2013 as JSON, each path with its own defaults.

    Return ``rows`` of a run, the mean ``value_bytes``, and ``rows_per_s`` of each path, a spread.

    eos compresses entries that become smaller (``compression="auto"``), pulsar-spark none. All
    paths read the same Parquet files, and Spark makes the JSON.

    Raises:
        RuntimeError: the broker has not counted all rows.
    """
    values = flight_values(env)
    rows = values.count()
    size = values.selectExpr("avg(length(value))").collect()[0][0]
    url = env.broker.service_url
    with env.topic(1) as ours, env.topic(1) as theirs:
        sink = EosSink(env, ours, compression="auto")

        def counted(write: Callable[[], None]) -> Callable[[], float]:
            def run() -> float:
                write()
                return rows

            return run

        ways = {
            "eos": counted(lambda: sink.write(values)),
            "spark_empty": counted(lambda: pass_through_python(values)),
        }
        if env.has_pulsar_spark:
            ways["pulsar_spark"] = counted(lambda: write_by_pulsar_spark(values, url, theirs))
        try:
            rates = interleaved_rates(env, ways, rounds, lambda text: tell(f"flights: {text}"))
        finally:
            sink.close()
        for way, topic in (("eos", ours), ("pulsar_spark", theirs)):
            if way in ways:
                env.await_count(topic, (rounds + WARM_UP) * rows)
    return {"rows": rows, "value_bytes": round(size), "rows_per_s": rates}
