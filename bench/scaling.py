"""The cost of more: partitions, tasks, sinks, topics, queries.

``measure_growth`` and ``measure_empty_tasks`` are parts of the comparison, ``scale`` and
``queries`` are commands.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any, Final

import typer
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from rich.table import Column, Table

from bench.environment import (
    Environment,
    Spread,
    environment,
    interleaved_seconds,
    machine,
    percentile,
    timed_s,
)
from bench.publish import OUT, OutFolder, progress, publish
from bench.spark_writers import (
    EosSink,
    FileStream,
    RowShape,
    epochs_ms,
    frame,
    pass_through_python,
)
from bench.throughput import StepClock
from eos import PulsarSink

PARTITIONS: Final = (1, 16, 64, 128, 512)
TASKS: Final = (2, 20, 100, 200)
SINKS: Final = (1, 10, 25, 50)
_ROWS: Final = 50_000
_KEYED: Final = ("concat('user-', right(value, 9)) AS key", "1700000000000 AS event_time")
_SINK_EPOCHS: Final = 50
# Spark partitions; every fortieth one has rows.
_MOSTLY_EMPTY: Final = 2_000

Point = dict[str, Any]


def measure_growth(
    env: Environment, rounds: int, tell: Callable[[str], None]
) -> dict[str, list[Point]]:
    """Return the time of an epoch by number of partitions, tasks, sinks: ``{curve: [{"x": number,
    "ms": spread}]}``."""
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
            curves[curve].append(_point(count, _stream_ms(env, count, columns, rounds)))
        keyed = RowShape(100, "keyed", count)
        curves["partitions_keyed_batch"].append(
            _point(count, _epochs_ms(env, keyed, rounds, tasks=None))
        )
    for count in TASKS:
        tell(f"{count} tasks")
        shape = RowShape(100, "value", 64)
        curves["tasks"].append(_point(count, _epochs_ms(env, shape, rounds, tasks=count)))
        df = frame(env.spark, shape, _ROWS).repartition(count)
        pass_through_python(df)  # Spark plans it
        empty = [_timed_ms(partial(pass_through_python, df)) for _ in range(rounds)]
        curves["tasks_spark_empty"].append(_point(count, empty))
    for count in SINKS:
        tell(f"{count} sinks")
        curves["sinks"].append(_point(count, _by_sinks_ms(env, count, -(-_SINK_EPOCHS // count))))
    return curves


def measure_empty_tasks(
    env: Environment, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return the seconds for 2,000 Spark tasks, 1,950 of them without rows, by way."""
    some = env.spark.range(0, _MOSTLY_EMPTY, 1, _MOSTLY_EMPTY).where("id % 40 = 0")
    df = some.selectExpr("explode(sequence(1, 1000)) AS number").selectExpr(
        "format_string('%0100d', number) AS value"
    )
    tell(f"{_MOSTLY_EMPTY:,} tasks, most of them empty")
    with env.topic(1) as topic, EosSink(env, topic) as sink:
        sink.write(df.limit(10))  # claims the sink
        ways = {
            "eos": partial(timed_s, partial(sink.write, df)),
            "spark_empty": partial(timed_s, partial(pass_through_python, df)),
        }
        return interleaved_seconds(env, ways, rounds, tell)


def _point(count: int, took_ms: list[float]) -> Point:
    return {"x": count, "ms": vars(Spread.of(took_ms))}


def _timed_ms(action: Callable[[], object]) -> float:
    return 1000 * timed_s(action)


def _stream_ms(
    env: Environment, partitions: int, columns: Sequence[str], rounds: int
) -> list[float]:
    # A stream's first epoch, which does not count, opens producers for all.
    text = "".join(f"{row:0100}\n" for row in range(_ROWS))
    with env.topic(partitions) as topic, EosSink(env, topic) as sink:
        stream = FileStream(
            env,
            text,
            lambda df: df.selectExpr("value", *columns).writeStream.foreachBatch(sink.sink),
        )
        took_ms = stream.run(rounds)
        env.await_count(topic, stream.epochs * _ROWS)
        return took_ms


def _epochs_ms(env: Environment, shape: RowShape, rounds: int, *, tasks: int | None) -> list[float]:
    df = frame(env.spark, shape, _ROWS)
    if tasks is not None:
        df = df.repartition(tasks)
    with env.topic(shape.partitions) as topic, EosSink(env, topic) as sink:
        sink.write(df)  # claims the sink; the topics' first transaction
        return [_timed_ms(lambda: sink.write(df)) for _ in range(rounds)]


def _by_sinks_ms(env: Environment, count: int, rounds: int) -> list[float]:
    """Time each epoch of ten rows while ``count`` sinks of one driver write in turn."""
    df = env.spark.range(10).selectExpr("string(id) AS value")
    with ExitStack() as stack:
        sinks = []
        for _ in range(count):
            topic = stack.enter_context(env.topic(1))
            sink = stack.enter_context(EosSink(env, topic))
            sink.write(df)  # claims the sink; the topic's first transaction
            sinks.append(sink)

        return [_timed_ms(partial(sink.write, df)) for _ in range(rounds) for sink in sinks]


# --- many partitions, many topics --------------------------------------------------------------

_SCALE_ROWS: Final = 600_000
_SCALE_EPOCHS: Final = 3
_SCALE_READERS: Final = 4


def scale(
    partitions: Annotated[int, typer.Option(help="Partitions of the topic.")] = 3_000,
    tasks: Annotated[int, typer.Option(help="Tasks of the epoch without keys.")] = 200,
    out: OutFolder = OUT,
) -> None:
    """Write epochs over 3,000 partitions and over 3,000 topics; write scale.json.

    To the broker each partition is a topic: an epoch over 3,000 topics has the same transaction.
    """
    console, tell = progress()
    with environment() as env:
        found, read = _over_partitions(env, partitions, tasks, tell)
    results = {
        "machine": machine(),
        "partitions": partitions,
        "rows": _SCALE_ROWS,
        "epochs": found,
        "reading": read,
    }
    publish(results, out / "scale.json")
    table = Table("ms", *(Column(name, justify="right") for name in found))
    table.add_row("first epoch", *(f"{1000 * one['first_s']:,.0f}" for one in found.values()))
    for step in next(iter(found.values()))["steps_ms"]:
        table.add_row(step, *(f"{one['steps_ms'][step]:,.0f}" for one in found.values()))
    console.print(
        f"{_SCALE_ROWS:,} rows into {partitions:,} partitions; medians of {_SCALE_EPOCHS} epochs "
        "after the first"
    )
    console.print(table)
    for name, one in read.items():
        console.print(f"{name}: {one['rows']:,} rows read in {one['seconds']} s")


def _over_partitions(
    env: Environment, partitions: int, tasks: int, tell: Callable[[str], None]
) -> tuple[dict[str, Any], dict[str, Any]]:
    keyed = frame(env.spark, RowShape(columns="keyed"), _SCALE_ROWS)
    epochs = {
        f"no key, {tasks} tasks": frame(env.spark, RowShape(), _SCALE_ROWS).repartition(tasks),
        "keys, 2 tasks": keyed,
    }
    found = {}
    with env.topic(partitions) as topic, EosSink(env, topic) as sink:
        for name, df in epochs.items():
            tell(name)
            found[name] = _timed_epochs(sink, df)
    name = f"{partitions} topics, 2 tasks"
    tell(name)
    found[name], read = _over_topics(env, keyed, partitions)
    return found, {f"{partitions} topics, {how}": one for how, one in read.items()}


def _over_topics(
    env: Environment, keyed: DataFrame, count: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write to ``count`` topics that rows name, and read them; the first epoch creates them."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    df = keyed.selectExpr("*", f"CONCAT('{name}-', crc32(value) % {count}) AS topic")
    with EosSink(
        env, None, sink_id=name, receipt_namespace="public/default", create_topics=True
    ) as sink:
        written = _timed_epochs(sink, df)
    pattern = f"public/default/{name}-[0-9]+"
    return written, {
        "a task for each": _read(env, pattern),
        f"{_SCALE_READERS} tasks": _read(env, pattern, maxPartitions=_SCALE_READERS),
    }


def _read(env: Environment, pattern: str, **options: Any) -> dict[str, Any]:
    began = time.perf_counter()
    topics = env.spark.read.format("pulsar").options(
        serviceUrl=env.broker.service_url, topicsPattern=pattern, **options
    )
    rows = topics.schema("value binary").load().count()
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 1)}


def _timed_epochs(sink: EosSink, df: DataFrame) -> dict[str, Any]:
    began = time.perf_counter()
    sink.write(df)  # the partitions' first transaction
    first_s = time.perf_counter() - began
    clock = StepClock()
    for _ in range(_SCALE_EPOCHS):
        clock.time(lambda: sink.write(df))
    return {"first_s": round(first_s, 1), "steps_ms": clock.medians()}


# --- many queries ------------------------------------------------------------------------------

_QUERY_EPOCHS: Final = 10


def queries(
    count: Annotated[int, typer.Option(min=2, help="Number of queries.")] = 10,
    rows: Annotated[int, typer.Option(min=1000, help="Rows of each query's input.")] = 500_000,
    out: OutFolder = OUT,
) -> None:
    """Run ten streaming queries in one driver, one by one and all at once; write queries.json.

    Each copies a topic to a topic. At once, they share Spark's scheduler, the JVM behind py4j, the
    driver's Python lock and the broker. Each query's rows are counted in its commit log.
    """
    console, tell = progress()
    with environment() as env, ExitStack() as stack:
        inputs = [stack.enter_context(env.topic(1)) for _ in range(count)]
        outputs = [stack.enter_context(env.topic(1)) for _ in range(count)]
        for topic in inputs:
            _fill(env, topic, rows)
        _drain(env, inputs[:1], outputs[:1], rows, "warm-up")
        tell("one query after the other")
        alone = [
            _drain(env, [source], [target], rows, "alone")
            for source, target in zip(inputs, outputs, strict=True)
        ]
        tell("all queries at once")
        together = _drain(env, inputs, outputs, rows, "together")
    found = {"one after the other": _joined(alone), "all at once": together}
    results = {"machine": machine(), "queries": count, "rows": rows, "ways": found}
    publish(results, out / "queries.json")
    columns = ("seconds", "thousand rows/s", "epoch p50 ms", "epoch p99 ms")
    table = Table(f"{count} queries", *(Column(name, justify="right") for name in columns))
    for name, way in found.items():
        rate = count * rows / way["seconds"] / 1000
        p50, p99 = percentile(way["epochs_ms"], 0.5), percentile(way["epochs_ms"], 0.99)
        table.add_row(name, f"{way['seconds']:.1f}", f"{rate:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}")
    console.print(table)


def _fill(env: Environment, topic: str, rows: int) -> None:
    sink = PulsarSink(
        service_url=env.broker.service_url,
        topic=topic,
        sink_id=topic.rsplit("/", 1)[1],
        commit_log=env.commit_log(),
    )
    # At least one entry for each epoch that reads them: limits are rounded to entries.
    for part in range(_QUERY_EPOCHS):
        sink.write(frame(env.spark, RowShape(), rows // _QUERY_EPOCHS), epoch=str(part))
    sink.close()


def _drain(
    env: Environment, inputs: Sequence[str], outputs: Sequence[str], rows: int, way: str
) -> dict[str, Any]:
    """Run a query for each input until all have ended; each must have written ``rows``."""
    with ExitStack() as stack:
        began = time.perf_counter()
        queries = [
            _start(env, source, target, rows, way, stack)
            for source, target in zip(inputs, outputs, strict=True)
        ]
        for query in queries:
            query.awaitTermination()
        seconds = time.perf_counter() - began
    for target in outputs:
        written = env.committed(_sink_id(target, way))
        if written != rows:
            raise RuntimeError(f"Only {written:,} of {rows:,} rows were written to {target}")
    return {
        "seconds": seconds,
        "epochs_ms": [ms for query in queries for ms in epochs_ms(query)],
    }


def _start(
    env: Environment, source: str, target: str, rows: int, way: str, stack: ExitStack
) -> StreamingQuery:
    sink = PulsarSink(
        service_url=env.broker.service_url,
        topic=target,
        sink_id=_sink_id(target, way),
        commit_log=env.commit_log(),
    )
    stack.callback(sink.close)
    messages = env.spark.readStream.format("pulsar").options(
        serviceUrl=env.broker.service_url,
        adminUrl=env.broker.admin_url,
        topic=source,
        startingOffsets="earliest",
        maxRowsPerTrigger=rows // _QUERY_EPOCHS,
        durableSubscription=False,
    )
    stream = messages.load().writeStream.foreachBatch(sink)
    folder = env.folder / "checkpoints" / _sink_id(target, way)
    return stream.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


def _sink_id(target: str, way: str) -> str:
    return f"{target.rsplit('/', 1)[1]}-{way}"


def _joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "seconds": sum(one["seconds"] for one in runs),
        "epochs_ms": [ms for one in runs for ms in one["epochs_ms"]],
    }
