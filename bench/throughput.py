"""Rows per second: eos, what users write today, a Java client, and the two ceilings, in turn.

One round runs each path once; so whatever else the machine does hits all of them. A figure counts
only when the broker has counted as many messages as were written.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from bench import writers
from bench.java_client import JavaClient
from bench.paths import EosSink, pass_through_python, write_by_pulsar_client
from bench.rows import Shape, frame
from bench.setting import Setting, timed_s
from bench.spread import Spread

BASE: Final = Shape()
SHAPES: Final = tuple(
    Shape(value_bytes, columns, partitions)
    for value_bytes in (100, 1024)
    for columns in ("value", "keyed", "properties")
    for partitions in (1, 16)
)
_MOST_ROWS: Final = {"pulsar_client": 250_000}
"""The slow path writes no more than that. Measured with rows of 100 bytes, medians of three: 69
thousand rows/s with 250,000 rows and with a million, 61 thousand with 125,000."""
_COUNTED_WITHIN_S: Final = 30.0

Run = Callable[[str, int], float]
"""Writes so many rows to a topic; returns rows per second."""


def measure(
    setting: Setting, rows: int, rounds: int, shapes: tuple[Shape, ...], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """One entry for each path and shape: ``path``, ``shape`` and ``rows_per_s`` with its spread."""
    results = []
    for shape in shapes:
        count = rows * BASE.value_bytes // shape.value_bytes
        found: dict[str, list[float]] = defaultdict(list)
        with ExitStack() as stack:
            paths = _paths(setting, shape, stack)
            for number in range(-1, rounds):  # the first one warms up
                tell(f"{shape.name}: {'warm-up' if number < 0 else f'round {number + 1}'}")
                for name, run in _in_turn(paths, number):
                    wanted = min(count, _MOST_ROWS.get(name, count))
                    with setting.topic(shape.partitions) as topic:
                        rate = run(topic, wanted)
                        if name != "spark_empty":
                            _check_count(setting, topic, wanted)
                    if number >= 0:
                        found[name].append(rate)
        results += [
            {"path": name, "shape": vars(shape), "rows_per_s": vars(Spread.of(rates, 0))}
            for name, rates in found.items()
        ]
    return results


def _in_turn(paths: dict[str, Run], number: int) -> list[tuple[str, Run]]:
    """Each round begins with another path: one before leaves the broker work for the next one."""
    ordered = list(paths.items())
    first = number % len(ordered)
    return ordered[first:] + ordered[:first]


def _paths(setting: Setting, shape: Shape, stack: ExitStack) -> dict[str, Run]:
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

    def spark_empty(_: str, count: int) -> float:
        df = frame(setting.spark, shape, count)
        return count / timed_s(lambda: pass_through_python(df))

    paths: dict[str, Run] = {
        "eos": eos,
        "pulsar_client": pulsar_client,
        "spark_empty": spark_empty,
    }
    if shape.columns == "value":
        java = stack.enter_context(JavaClient(url, shape.value_bytes))
        # An exact partition spares the client its router.
        exact = "-partition-0" if shape.partitions == 1 else ""
        paths["java_transaction"] = lambda topic, count: java.rows_per_s(topic + exact, count)
    if shape.columns == "value" and shape.partitions == 1:
        paths["eos_from_arrow"] = _apart(url, shape, "arrow")
        paths["raw_sockets"] = _apart(url, shape, "raw")
    return paths


def _apart(url: str, shape: Shape, kind: writers.Kind) -> Run:
    return lambda topic, count: writers.rows_per_s(kind, url, topic, shape, count)


def _check_count(setting: Setting, topic: str, wanted: int) -> None:
    deadline = time.monotonic() + _COUNTED_WITHIN_S
    while True:
        found = setting.stats(topic)["msgInCounter"]
        if found >= wanted:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{found} messages of {wanted} reached {topic}")
        time.sleep(0.1)
