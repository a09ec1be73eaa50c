"""Thousands of topic partitions in one epoch: the largest assumption of docs/performance.md, tried.

To the broker each partition is a topic of its own: 3,000 of them in one transaction are what an
epoch over 3,000 topics would be.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Column, Table

from bench.environment import Setting, setting
from bench.hot_path import StepClock
from bench.paths import EosSink
from bench.results import machine
from bench.rows import RowShape, frame

_ROWS: Final = 600_000
_EPOCHS: Final = 3
_READERS: Final = 4

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    partitions: Annotated[int, typer.Option(help="Of the topic.")] = 3_000,
    tasks: Annotated[int, typer.Option(help="Of the epoch without keys.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/bench"),
) -> None:
    """Write epochs over many partitions, and leave scale.json."""
    console = Console(highlight=False, soft_wrap=True)
    logging.getLogger("eos").setLevel(logging.ERROR)
    with setting() as stage:
        found, read = _measure(stage, partitions, tasks, console)
    out.mkdir(parents=True, exist_ok=True)
    results = {
        "machine": machine(),
        "partitions": partitions,
        "rows": _ROWS,
        "epochs": found,
        "reading": read,
    }
    (out / "scale.json").write_text(json.dumps(results, indent=2) + "\n")
    table = Table("ms", *(Column(name, justify="right") for name in found))
    table.add_row("first epoch", *(f"{1000 * one['first_s']:,.0f}" for one in found.values()))
    for step in next(iter(found.values()))["steps_ms"]:
        table.add_row(step, *(f"{one['steps_ms'][step]:,.0f}" for one in found.values()))
    console.print(
        f"{_ROWS:,} rows into {partitions:,} partitions; medians of {_EPOCHS} later epochs"
    )
    console.print(table)
    for name, one in read.items():
        console.print(f"{name}: {one['rows']:,} rows read in {one['seconds']} s")


def _measure(
    stage: Setting, partitions: int, tasks: int, console: Console
) -> tuple[dict[str, Any], dict[str, Any]]:
    keyed = frame(stage.spark, RowShape(columns="keyed"), _ROWS)
    epochs = {
        f"no key, {tasks} tasks": frame(stage.spark, RowShape(), _ROWS).repartition(tasks),
        "keys, 2 tasks": keyed,
    }
    found = {}
    with stage.topic(partitions) as topic:
        sink = EosSink(stage, topic)
        try:
            for name, df in epochs.items():
                console.print(f"[dim]{name}[/]")
                found[name] = _epochs(sink, df)
        finally:
            sink.close()
    name = f"{partitions} topics, 2 tasks"
    console.print(f"[dim]{name}[/]")
    found[name], read = _topics(stage, keyed, partitions)
    return found, {f"{partitions} topics, {how}": one for how, one in read.items()}


def _topics(stage: Setting, keyed: DataFrame, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """So many topics that rows name, written and read; the first epoch creates them."""
    name = f"bench-{uuid.uuid4().hex[:12]}"
    df = keyed.selectExpr("*", f"CONCAT('{name}-', crc32(value) % {count}) AS topic")
    sink = EosSink(
        stage, None, sink_id=name, receipt_namespace="public/default", create_topics=True
    )
    try:
        written = _epochs(sink, df)
    finally:
        sink.close()
    pattern = f"public/default/{name}-[0-9]+"
    return written, {
        "a task for each": _read(stage, pattern),
        f"{_READERS} tasks": _read(stage, pattern, maxPartitions=_READERS),
    }


def _read(stage: Setting, pattern: str, **options: Any) -> dict[str, Any]:
    """All topics that match, in one batch."""
    began = time.perf_counter()
    topics = stage.spark.read.format("pulsar").options(
        serviceUrl=stage.broker.service_url, topicsPattern=pattern, **options
    )
    rows = topics.schema("value binary").load().count()
    return {"rows": rows, "seconds": round(time.perf_counter() - began, 1)}


def _epochs(sink: EosSink, df: DataFrame) -> dict[str, Any]:
    began = time.perf_counter()
    sink.write(df)  # the partitions' first transaction
    first_s = time.perf_counter() - began
    clock = StepClock()
    for _ in range(_EPOCHS):
        clock.time(lambda: sink.write(df))
    return {"first_s": round(first_s, 1), "steps_ms": clock.medians()}


if __name__ == "__main__":
    app()
