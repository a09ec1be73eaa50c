"""Ten streaming queries in one driver, each from its own topic to its own topic: one after the
other, and all at once.

What differs is what queries take from each other: Spark's scheduler, the one JVM behind py4j, the
driver's Python lock, the broker. What every query has written is counted in its commit log.
"""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Column, Table

from bench.environment import Setting, setting
from bench.results import machine
from bench.rows import RowShape, frame
from eos import PulsarSink

_EPOCHS: Final = 10

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    queries: Annotated[int, typer.Option(min=2, help="How many at once.")] = 10,
    rows: Annotated[int, typer.Option(min=1000, help="Of each query's input.")] = 500_000,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/bench"),
) -> None:
    """Drain the topics in both ways, and leave queries.json."""
    console = Console(highlight=False, soft_wrap=True)
    logging.getLogger("eos").setLevel(logging.ERROR)
    with setting() as stage, ExitStack() as stack:
        inputs = [stack.enter_context(stage.topic(1)) for _ in range(queries)]
        outputs = [stack.enter_context(stage.topic(1)) for _ in range(queries)]
        for topic in inputs:
            _fill(stage, topic, rows)
        _drain(stage, inputs[:1], outputs[:1], rows, "warm-up")
        alone = [
            _drain(stage, [source], [target], rows, "alone")
            for source, target in zip(inputs, outputs, strict=True)
        ]
        together = _drain(stage, inputs, outputs, rows, "together")
    found = {"one after the other": _joined(alone), "all at once": together}
    out.mkdir(parents=True, exist_ok=True)
    results = {"machine": machine(), "queries": queries, "rows": rows, "ways": found}
    (out / "queries.json").write_text(json.dumps(results, indent=2) + "\n")
    columns = ("seconds", "thousand rows/s", "epoch p50 ms", "epoch p99 ms")
    table = Table(f"{queries} queries", *(Column(name, justify="right") for name in columns))
    for name, way in found.items():
        rate = queries * rows / way["seconds"] / 1000
        p50, p99 = _percentile(way["epochs_ms"], 50), _percentile(way["epochs_ms"], 99)
        table.add_row(name, f"{way['seconds']:.1f}", f"{rate:,.0f}", f"{p50:,.0f}", f"{p99:,.0f}")
    console.print(table)


def _fill(stage: Setting, topic: str, rows: int) -> None:
    sink = PulsarSink(
        service_url=stage.broker.service_url,
        topic=topic,
        sink_id=topic.rsplit("/", 1)[1],
        commit_log=stage.commit_log(),
    )
    # An entry of its own for each epoch that is to read it, and more: limits are met by entries.
    for part in range(_EPOCHS):
        sink.write(frame(stage.spark, RowShape(), rows // _EPOCHS), epoch=str(part))
    sink.close()


def _drain(
    stage: Setting, inputs: Sequence[str], outputs: Sequence[str], rows: int, way: str
) -> dict[str, Any]:
    """Start a query for each input, and wait for all; each must have written ``rows``."""
    with ExitStack() as stack:
        began = time.perf_counter()
        queries = [
            _start(stage, source, target, rows, way, stack)
            for source, target in zip(inputs, outputs, strict=True)
        ]
        for query in queries:
            query.awaitTermination()
        seconds = time.perf_counter() - began
    for target in outputs:
        written = stage.committed(_sink_id(target, way))
        if written != rows:
            raise RuntimeError(f"{written:,} rows of {rows:,} were written to {target}")
    return {"seconds": seconds, "epochs_ms": [ms for query in queries for ms in _epochs_ms(query)]}


def _start(
    stage: Setting, source: str, target: str, rows: int, way: str, stack: ExitStack
) -> StreamingQuery:
    sink = PulsarSink(
        service_url=stage.broker.service_url,
        topic=target,
        sink_id=_sink_id(target, way),
        commit_log=stage.commit_log(),
    )
    stack.callback(sink.close)
    messages = stage.spark.readStream.format("pulsar").options(
        serviceUrl=stage.broker.service_url,
        adminUrl=stage.broker.admin_url,
        topic=source,
        startingOffsets="earliest",
        maxRowsPerTrigger=rows // _EPOCHS,
        durableSubscription=False,
    )
    stream = messages.load().writeStream.foreachBatch(sink)
    folder = stage.folder / "checkpoints" / _sink_id(target, way)
    return stream.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()


def _sink_id(target: str, way: str) -> str:
    return f"{target.rsplit('/', 1)[1]}-{way}"


def _epochs_ms(query: StreamingQuery) -> list[int]:
    return [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"]
    ]


def _joined(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "seconds": sum(one["seconds"] for one in runs),
        "epochs_ms": [ms for one in runs for ms in one["epochs_ms"]],
    }


def _percentile(values: Sequence[int], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


if __name__ == "__main__":
    app()
