"""An hour's backlog at the seeds' scale: 250 million messages in 3,000 topics, caught up.

A job portal's published figures are 6 billion messages and 3 TB a day over 3,000 topics: 69,400
messages of 500 bytes each second. Here the job that reads all of them stands still for an hour;
then it copies every message into one topic, exactly once, as fast as this machine can.

The messages are flights of the year 2013 and their aircraft as JSON, over and over, compressed with
LZ4 as producers do; they are encoded once, so filling the topics is the broker's work alone.
"""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow as pa
import typer
from rich.console import Console

from bench.capacity import ARRIVING_PER_S, Costs, table
from bench.environment import Setting, setting
from bench.hot_path import measure_processor
from bench.processor import BROKER, processor_s
from bench.results import machine, publish
from bench.rows import RowShape
from eos import PulsarSink
from eos.client import PulsarClient
from eos.wire.batch import Compression, EncodedBatch, Rows, encode_batches
from examples.flights.flight_files import read_aircraft, read_flights

_SINK_ID: Final = "backlog"
_BATCH_MESSAGES: Final = 2_000
_PRODUCERS: Final = 100
_TASKS: Final = 4
_OUTPUT_PARTITIONS: Final = 16
_TELL_EVERY: Final = 20
_MOST_EPOCHS: Final = 10_000
_STEPS: Final = {"latestOffset": "planning", "addBatch": "the copying", "triggerExecution": "all"}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    topics: Annotated[int, typer.Option(min=1, help="That the backlog is in.")] = 3_000,
    minutes: Annotated[float, typer.Option(help="Of messages that have gathered.")] = 60,
    rows_per_epoch: Annotated[int, typer.Option(help="At most, about.")] = 10_000_000,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/bench"),
    readme: Annotated[
        Path | None, typer.Option(help="Put the tables between the marks in this file.")
    ] = None,
) -> None:
    """Fill the topics, catch up, and leave backlog.json."""
    console = Console(highlight=False, soft_wrap=True)
    logging.getLogger("eos").setLevel(logging.ERROR)
    wanted = round(minutes * 60 * ARRIVING_PER_S)
    with setting() as stage, stage.topic(_OUTPUT_PARTITIONS) as target:
        with _measured(stage) as filling:
            filled = _fill(stage, topics, wanted, console)
        console.print(
            f"{filled['messages']:,} messages in {topics:,} topics, {filling['seconds']:.0f} s"
        )
        with _measured(stage) as copying:
            epochs_ms = _catch_up(stage, target, filled["messages"], rows_per_epoch, console)
        small = measure_processor(stage, RowShape(), rows=10, epochs=60)
    results = {
        "machine": machine(),
        "topics": topics,
        **filled,
        "filling": filling,
        "copying": copying,
        "epochs_ms": epochs_ms,
        "small_epoch_core_ms": small["ms_per_epoch"],
    }
    text = "\n".join(tables(results)) + "\n"
    publish(results, text, out / "backlog.json", readme)
    console.print(text)


@contextmanager
def _measured(stage: Setting) -> Iterator[dict[str, Any]]:
    """``seconds`` and ``processor_s`` of the block, in what it yields."""
    found: dict[str, Any] = {}
    stage.settle()
    before, began = processor_s(stage), time.perf_counter()
    yield found
    found["seconds"] = round(time.perf_counter() - began, 1)
    stage.settle()
    after = processor_s(stage)
    found["processor_s"] = {who: round(after[who] - before[who], 1) for who in after}


def tables(results: dict[str, Any]) -> list[str]:
    """What was measured, and what clusters would take, as Markdown."""
    messages, copying = results["messages"], results["copying"]
    rate = messages / copying["seconds"]
    used = ", ".join(f"{who} {spent:,.0f}" for who, spent in copying["processor_s"].items())
    lines = [
        f"| {messages / 1e6:,.0f} million messages in {results['topics']:,} topics | |",
        "|---|---:|",
        f"| their values; compressed, as sent | {results['value_bytes'] / 1e9:.1f} GB; "
        f"{results['stored_bytes'] / 1e9:.1f} GB |",
        f"| seconds until all were copied, in {len(results['epochs_ms']):,} epochs | "
        f"{copying['seconds']:,.0f} |",
        f"| thousand messages/s; times as fast as they arrive | {rate / 1e3:,.0f}; "
        f"{rate / ARRIVING_PER_S:.1f} |",
        f"| seconds of processor | {used} |",
    ]
    for step, text in _STEPS.items():
        median = statistics.median(one[step] for one in results["epochs_ms"])
        lines.append(f"| {text} of an epoch, s, median | {median / 1e3:,.1f} |")
    costs = costs_of(results)
    return [
        *lines,
        "",
        f"A message cost {costs.sent_core_us:.2f} µs of a core (the broker's) to store, "
        f"{costs.copied_core_us:.2f} to copy (broker and Spark), and {costs.stored_bytes:.0f} "
        f"bytes each time; an epoch of ten rows cost {costs.epoch_core_ms:.0f} ms of a core.",
        "",
        *table(costs),
    ]


def costs_of(results: dict[str, Any]) -> Costs:
    """What the model needs."""
    messages = results["messages"]
    return Costs(
        sent_core_us=results["filling"]["processor_s"][BROKER] / messages * 1e6,
        copied_core_us=sum(results["copying"]["processor_s"].values()) / messages * 1e6,
        stored_bytes=results["stored_bytes"] / messages,
        epoch_core_ms=sum(results["small_epoch_core_ms"].values()),
    )


def _fill(stage: Setting, topics: int, wanted: int, console: Console) -> dict[str, int]:
    """Send ``wanted`` messages, as many to each topic; how many these are, and their bytes."""
    batches = list(_encoded())
    values = sum(batch.value_and_key_bytes for batch in batches)
    messages = sum(batch.num_messages for batch in batches)
    per_topic = max(1, round(wanted / topics / (messages / len(batches))))
    console.print(
        f"{messages:,} flights, {values / messages:.0f} bytes each, compressed to "
        f"{sum(len(batch.payload) for batch in batches) / values:.2f} of it; "
        f"{per_topic} entries into each topic"
    )
    endless = cycle(batches)
    sent = {"messages": 0, "value_bytes": 0, "stored_bytes": 0}
    with PulsarClient(stage.broker.service_url) as client:
        for start in range(0, topics, _PRODUCERS):
            names = [_topic(n) for n in range(start, min(start + _PRODUCERS, topics))]
            for name in names:
                client.create_unpartitioned(name)
                client.subscribe_durably(name, _SINK_ID)
            producers = client.entry_producers(names)
            for producer in producers:
                for batch in islice(endless, per_topic):
                    producer.send_batch(batch)
                    sent["messages"] += batch.num_messages
                    sent["value_bytes"] += batch.value_and_key_bytes
                    sent["stored_bytes"] += len(batch.payload)
            for producer in producers:
                producer.flush()
                producer.close()
    return sent


def _topic(number: int) -> str:
    return f"persistent://public/default/backlog-{number}"


def _encoded() -> Iterator[EncodedBatch]:
    flights = read_flights().join(read_aircraft(), keys="tailnum", join_type="left outer")
    lines = [json.dumps(flight, default=str).encode() for flight in flights.to_pylist()]
    rows = Rows(value=pa.array(lines, pa.binary()))
    return encode_batches(rows, max_batch_messages=_BATCH_MESSAGES, compression=Compression.LZ4)


def _catch_up(
    stage: Setting, target: str, messages: int, rows_per_epoch: int, console: Console
) -> list[dict[str, int]]:
    """The milliseconds of each epoch's steps, as Spark counts them."""
    sink = PulsarSink(
        service_url=stage.broker.service_url,
        topic=target,
        sink_id=_SINK_ID,
        commit_log=stage.commit_log(),
        compression="lz4",
    )
    source = stage.spark.readStream.format("pulsar").options(
        serviceUrl=stage.broker.service_url,
        adminUrl=stage.broker.admin_url,
        topicsPattern="public/default/backlog-[0-9]+",
        startingOffsets="earliest",
        subscription=_SINK_ID,
        maxPartitions=_TASKS,
        maxRowsPerTrigger=rows_per_epoch,
    )
    stream = source.load().writeStream.foreachBatch(sink)
    checkpoint = str(stage.folder / "backlog")
    stage.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _MOST_EPOCHS)
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    while not query.awaitTermination(_TELL_EVERY):
        last = query.lastProgress
        if last:
            console.print(f"epoch {last['batchId']}: {last['durationMs']} ms", style="dim")
    sink.close()
    written = stage.committed(_SINK_ID)
    if written != messages:
        raise RuntimeError(f"{written:,} messages of {messages:,} were copied")
    stage.await_count(target, messages)
    return [dict(one["durationMs"]) for one in query.recentProgress if one["numInputRows"]]


if __name__ == "__main__":
    app()
