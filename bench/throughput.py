"""Rows per second: eos, what users write today, a Java client, and the two ceilings, in turn.

One round runs each path once; so whatever else the machine does hits all of them. Each run begins
when the broker is done with the one before, or two seconds later; a figure counts only when the
broker has counted no fewer messages than were written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from bench import plain, pulsar_spark, writers
from bench.environment import Setting, timed_s
from bench.java_client import JavaClient
from bench.paths import EosSink, pass_through_python, write_by_pulsar_client
from bench.rows import RowShape, frame
from bench.statistics import Spread

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
"""Shape -> how many rounds: the medians of three move by a tenth and more from run to run."""
QUICK_ROUNDS: Final = {BASE: 3}
_WARM_UP: Final = 3
"""Rounds before those that count in the first shape, where all JVMs are new; in the others there is
one. Measured over 45 epochs of two million rows: from the third on Spark's JVM needs little less.
"""
_SLOW_ROWS: Final = {100: 250_000, 1024: 100_000}
"""``pulsar_client`` writes no more rows of so many bytes. Measured, medians of three: of 100 bytes
69 thousand rows/s with 250,000 rows and with a million, 61 thousand with 125,000; of 1,024 bytes
42 thousand with 100,000 and with 195,000, 34 thousand with 24,000."""

WriteRows = Callable[[str, int], float]
"""Writes so many rows to a topic; returns rows per second."""


def measure(
    setting: Setting, rows: int, rounds: dict[RowShape, int], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One entry for each path and shape: ``path``, ``shape``, how many ``rows`` a run writes, and
    ``rows_per_s`` with its spread over so many rounds."""
    results: list[dict[str, Any]] = []
    order = np.random.default_rng(0)
    url = setting.broker.service_url
    with JavaClient(url) as java, writers.start(url) as apart:
        for shape, wanted_rounds in rounds.items():
            paths = _paths(setting, shape, java, apart)
            found: dict[str, list[float]] = {name: [] for name in paths}
            for number in range(-1 if results else -_WARM_UP, wanted_rounds):
                tell(f"{shape.name}: {'warm-up' if number < 0 else f'round {number + 1}'}")
                for name in order.permutation(list(paths)):
                    rate = _run(setting, name, paths[name], shape, _rows_of(name, shape, rows))
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


def _run(setting: Setting, name: str, write: WriteRows, shape: RowShape, count: int) -> float:
    setting.settle()
    with setting.topic(shape.partitions) as topic:
        rate = write(topic, count)
        if name != "spark_empty":
            setting.await_count(topic, count)
    return rate


def _paths(
    setting: Setting, shape: RowShape, java: JavaClient, apart: writers.Writers
) -> dict[str, WriteRows]:
    url = setting.broker.service_url

    def eos(topic: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        sink = EosSink(setting, topic)
        try:
            sink.write(df.limit(0))  # the claim, which a query does once
            return count / timed_s(lambda: sink.write(df))
        finally:
            sink.close()

    def pulsar_client(topic: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        return count / timed_s(lambda: write_by_pulsar_client(df, url, topic))

    def by_pulsar_spark(topic: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        return count / timed_s(lambda: pulsar_spark.write(df, url, topic))

    def no_transaction(topic: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        task = plain.PlainTask.of(url, topic, shape.partitions)
        return count / timed_s(lambda: plain.write(df, task))

    def spark_empty(_: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        return count / timed_s(lambda: pass_through_python(df))

    paths: dict[str, WriteRows] = {
        "eos": eos,
        "pulsar_client": pulsar_client,
        "spark_empty": spark_empty,
    }
    if shape.columns == "value":
        paths["java_transaction"] = partial(java.rows_per_s, shape)
    if shape.columns == "value" and setting.has_pulsar_spark:
        paths["pulsar_spark"] = by_pulsar_spark
    if shape.columns == "value" and shape.partitions == 1:
        paths["no_transaction"] = no_transaction
        paths["eos_from_arrow"] = partial(apart.rows_per_s, "arrow", shape)
        paths["raw_sockets"] = partial(apart.rows_per_s, "raw", shape)
    return paths
