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
_SHARE_OF_SLOW: Final = 8
"""The slow peer writes every eighth of the rows: the broker idles beside it, however many."""
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
                for name, (run, share) in _in_turn(paths, number):
                    with setting.topic(shape.partitions) as topic:
                        rate = run(topic, count // share)
                        if name != "spark_empty":
                            _check_count(setting, topic, count // share)
                    if number >= 0:
                        found[name].append(rate)
        results += [
            {"path": name, "shape": vars(shape), "rows_per_s": vars(Spread.of(rates, 0))}
            for name, rates in found.items()
        ]
    return results


def _in_turn(paths: dict[str, tuple[Run, int]], number: int) -> list[tuple[str, tuple[Run, int]]]:
    """Each round begins with another path: one before leaves the broker work for the next one."""
    ordered = list(paths.items())
    first = number % len(ordered)
    return ordered[first:] + ordered[:first]


def _paths(setting: Setting, shape: Shape, stack: ExitStack) -> dict[str, tuple[Run, int]]:
    """Name -> how it runs, and which part of the rows it writes."""
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

    paths: dict[str, tuple[Run, int]] = {
        "eos": (eos, 1),
        "pulsar_client": (pulsar_client, _SHARE_OF_SLOW),
        "spark_empty": (spark_empty, 1),
    }
    if shape.columns == "value":
        java = stack.enter_context(JavaClient(url, shape.value_bytes))
        # An exact partition spares the client its router.
        exact = "-partition-0" if shape.partitions == 1 else ""
        paths["java_transaction"] = (
            lambda topic, count: java.rows_per_s(topic + exact, count),
            1,
        )
    if shape.columns == "value" and shape.partitions == 1:
        paths["eos_from_arrow"] = (_apart(url, shape, "arrow"), 1)
        paths["raw_sockets"] = (_apart(url, shape, "raw"), 1)
    return paths


def _apart(url: str, shape: Shape, kind: writers.Kind) -> Run:
    return lambda topic, count: writers.rows_per_s(kind, url, topic, shape, count)


def _check_count(setting: Setting, topic: str, wanted: int) -> None:
    path = f"/v2/{topic.replace('://', '/')}"
    deadline = time.monotonic() + _COUNTED_WITHIN_S
    while True:
        stats = setting.broker.admin("GET", f"{path}/partitioned-stats")
        # Besides the rows the broker counts markers.
        if stats["msgInCounter"] >= wanted:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{stats['msgInCounter']} messages of {wanted} reached {topic}")
        time.sleep(0.1)
