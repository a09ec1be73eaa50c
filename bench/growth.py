"""What an epoch costs as there is more of something: partitions, tasks, sinks; and what tasks cost
that have no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from bench.environment import Setting, timed_s
from bench.interleaved import seconds_by_turns
from bench.paths import EosSink, pass_through_python
from bench.rows import RowShape, frame
from bench.statistics import Spread
from bench.streams import FileStream

PARTITIONS: Final = (1, 16, 64, 128, 512)
TASKS: Final = (2, 20, 100, 200)
SINKS: Final = (1, 10, 25, 50)
_ROWS: Final = 50_000
_KEYED: Final = ("concat('user-', right(value, 9)) AS key", "1700000000000 AS event_time")
_SINK_EPOCHS: Final = 50
_MOSTLY_EMPTY: Final = 2_000
"""Spark partitions, of which each fortieth has rows."""

Point = dict[str, Any]


def measure(setting: Setting, rounds: int, tell: Callable[[str], None]) -> dict[str, list[Point]]:
    """``{curve: [{"x": how many, "ms": spread}]}``."""
    curves: dict[str, list[Point]] = {
        "partitions_no_key": [],
        "partitions_keyed": [],
        "partitions_keyed_batch": [],
        "tasks": [],
        "tasks_spark_empty": [],
        "sinks": [],
    }
    for count in PARTITIONS:
        tell(f"{count} partitions")
        for curve, columns in (("partitions_no_key", ()), ("partitions_keyed", _KEYED)):
            curves[curve].append(_point(count, _stream_ms(setting, count, columns, rounds)))
        keyed = RowShape(100, "keyed", count)
        curves["partitions_keyed_batch"].append(
            _point(count, _epochs_ms(setting, keyed, rounds, tasks=None))
        )
    for count in TASKS:
        tell(f"{count} tasks")
        shape = RowShape(100, "value", 64)
        curves["tasks"].append(_point(count, _epochs_ms(setting, shape, rounds, tasks=count)))
        df = frame(setting.spark, shape, _ROWS).repartition(count)
        pass_through_python(df)  # Spark makes its plan
        empty = [_timed_ms(partial(pass_through_python, df)) for _ in range(rounds)]
        curves["tasks_spark_empty"].append(_point(count, empty))
    for count in SINKS:
        tell(f"{count} sinks")
        curves["sinks"].append(
            _point(count, _by_sinks_ms(setting, count, -(-_SINK_EPOCHS // count)))
        )
    return curves


def measure_empty(setting: Setting, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Seconds for 2,000 Spark partitions of which 1,950 are empty: ``eos``, and ``spark_empty``."""
    some = setting.spark.range(0, _MOSTLY_EMPTY, 1, _MOSTLY_EMPTY).where("id % 40 = 0")
    df = some.selectExpr("explode(sequence(1, 1000)) AS number").selectExpr(
        "format_string('%0100d', number) AS value"
    )
    tell(f"{_MOSTLY_EMPTY:,} tasks, most of them empty")
    with setting.topic(1) as topic:
        sink = EosSink(setting, topic)
        try:
            sink.write(df.limit(10))  # the claim
            ways = {
                "eos": partial(timed_s, partial(sink.write, df)),
                "spark_empty": partial(timed_s, partial(pass_through_python, df)),
            }
            return seconds_by_turns(setting, ways, rounds, tell)
        finally:
            sink.close()


def _point(count: int, took_ms: list[float]) -> Point:
    return {"x": count, "ms": vars(Spread.of(took_ms))}


def _timed_ms(action: Callable[[], object]) -> float:
    return 1000 * timed_s(action)


def _stream_ms(
    setting: Setting, partitions: int, columns: Sequence[str], rounds: int
) -> list[float]:
    """Of each epoch of a stream, which opens what the next ones use again."""
    text = "".join(f"{row:0100}\n" for row in range(_ROWS))
    with setting.topic(partitions) as topic:
        sink = EosSink(setting, topic)
        try:
            stream = FileStream(
                setting,
                text,
                lambda df: df.selectExpr("value", *columns).writeStream.foreachBatch(sink.sink),
            )
            took_ms = stream.run(rounds)
            setting.await_count(topic, stream.epochs * _ROWS)
            return took_ms
        finally:
            sink.close()


def _epochs_ms(setting: Setting, shape: RowShape, rounds: int, *, tasks: int | None) -> list[float]:
    """Of each epoch of a batch job."""
    df = frame(setting.spark, shape, _ROWS)
    if tasks is not None:
        df = df.repartition(tasks)
    with setting.topic(shape.partitions) as topic:
        sink = EosSink(setting, topic)
        try:
            sink.write(df)  # the claim, and the topics' first transaction
            return [_timed_ms(lambda: sink.write(df)) for _ in range(rounds)]
        finally:
            sink.close()


def _by_sinks_ms(setting: Setting, count: int, rounds: int) -> list[float]:
    """Of each epoch of ten rows, when so many sinks of one driver write in turn, so many times."""
    df = setting.spark.range(10).selectExpr("string(id) AS value")
    with ExitStack() as stack:
        sinks = []
        for _ in range(count):
            sink = EosSink(setting, stack.enter_context(setting.topic(1)))
            stack.callback(sink.close)
            sink.write(df)
            sinks.append(sink)

        return [_timed_ms(partial(sink.write, df)) for _ in range(rounds) for sink in sinks]
