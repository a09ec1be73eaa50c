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
from itertools import cycle, islice
from pathlib import Path
from typing import Annotated, Any, Final

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Column, Table

from bench.results import machine
from bench.setting import Setting, setting
from eos.client import PulsarClient
from eos.wire.batch import Compression, EncodedBatch, Rows, encode_batches
from examples.flights.data import read_aircraft, read_flights
from sinks import PulsarSink

ARRIVING_PER_S: Final = 69_400
"""Messages, on average: 6 billion a day."""
_SINK_ID: Final = "backlog"
_BATCH_MESSAGES: Final = 2_000
_PRODUCERS: Final = 100
_TASKS: Final = 4
_OUTPUT_PARTITIONS: Final = 16
_TELL_EVERY: Final = 20

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def run(
    topics: Annotated[int, typer.Option(min=1, help="That the backlog is in.")] = 3_000,
    minutes: Annotated[float, typer.Option(help="Of messages that have gathered.")] = 60,
    rows_per_epoch: Annotated[int, typer.Option(help="At most, about.")] = 10_000_000,
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("build/bench"),
) -> None:
    """Fill the topics, catch up, and leave backlog.json."""
    console = Console(highlight=False, soft_wrap=True)
    logging.getLogger("eos").setLevel(logging.ERROR)
    wanted = round(minutes * 60 * ARRIVING_PER_S)
    with setting() as stage, stage.topic(_OUTPUT_PARTITIONS) as target:
        began = time.perf_counter()
        filled = _fill(stage, topics, wanted, console)
        fill_s = time.perf_counter() - began
        console.print(f"{filled['messages']:,} messages in {topics:,} topics, {fill_s:.0f} s")
        caught_up = _catch_up(stage, target, filled["messages"], rows_per_epoch, console)
    results = {
        "machine": machine(),
        "topics": topics,
        **filled,
        "fill_s": round(fill_s, 1),
        **caught_up,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "backlog.json").write_text(json.dumps(results, indent=2) + "\n")
    console.print(_table(results))


def _table(results: dict[str, Any]) -> Table:
    rate = results["messages"] / results["seconds"]
    table = Table("an hour's backlog", Column("", justify="right"))
    table.add_row("messages", f"{results['messages']:,}")
    table.add_row("their values, GB", f"{results['value_bytes'] / 1e9:.1f}")
    table.add_row("seconds until all were copied", f"{results['seconds']:,.0f}")
    table.add_row("thousand messages/s", f"{rate / 1000:,.0f}")
    table.add_row("times as fast as they arrive", f"{rate / ARRIVING_PER_S:.1f}")
    table.add_row("epochs", f"{len(results['epochs_ms']):,}")
    for step in ("latestOffset", "getBatch", "addBatch", "triggerExecution"):
        median = statistics.median(one.get(step, 0) for one in results["epochs_ms"])
        table.add_row(f"{step}, ms, median", f"{median:,.0f}")
    return table


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
) -> dict[str, Any]:
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
    began = time.perf_counter()
    stream = source.load().writeStream.foreachBatch(sink)
    checkpoint = str(stage.folder / "backlog")
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    while not query.awaitTermination(_TELL_EVERY):
        last = query.lastProgress
        if last:
            console.print(f"epoch {last['batchId']}: {last['durationMs']} ms", style="dim")
    seconds = time.perf_counter() - began
    sink.close()
    written = stage.committed(_SINK_ID)
    if written != messages:
        raise RuntimeError(f"{written:,} messages of {messages:,} were copied")
    return {
        "seconds": round(seconds, 1),
        "epochs_ms": [dict(one["durationMs"]) for one in query.recentProgress],
    }


if __name__ == "__main__":
    app()
