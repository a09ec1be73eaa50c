"""An hour's backlog in 3,000 topics, caught up; and from its costs, the capacity of clusters."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated, Any, Final

import pyarrow as pa
import typer

from bench.environment import BROKER, Environment, environment, machine
from bench.publish import OUT, OutFolder, Page, progress, publish
from bench.spark_writers import RowShape
from bench.throughput import measure_processor
from eos import PulsarSink
from eos.client import PulsarClient
from eos.wire.batch import Compression, EncodedBatch, Rows, encode_batches
from examples.flights.flight_files import read_aircraft, read_flights

_SINK_ID: Final = "backlog"
_BATCH_MESSAGES: Final = 2_000
_PRODUCERS: Final = 100
_TASKS: Final = 4
_OUTPUT_PARTITIONS: Final = 16
_TELL_EVERY_S: Final = 20
_MOST_EPOCHS: Final = 10_000
_STEPS: Final = {"latestOffset": "planning", "addBatch": "the copying", "triggerExecution": "all"}


def backlog(
    topics: Annotated[int, typer.Option(min=1, help="Topics of the backlog.")] = 3_000,
    minutes: Annotated[float, typer.Option(help="Minutes of messages in the backlog.")] = 60,
    rows_per_epoch: Annotated[
        int, typer.Option(help="Rows of an epoch, about, at most.")
    ] = 10_000_000,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Process an hour's backlog in 3,000 topics; write backlog.json.

    A job portal's published figures are 6 billion messages and 3 TB a day over 3,000 topics: 69,400
    messages of 500 bytes each second. Here the job that reads all of them was down for an hour.
    Then it copies every message into one topic, exactly once, as fast as this machine can.

    The messages are flights of the year 2013 and their aircraft as JSON, repeated, compressed with
    LZ4 as by a producer.
    """
    console, tell = progress()
    wanted = round(minutes * 60 * ARRIVING_PER_S)
    with environment() as env, env.topic(_OUTPUT_PARTITIONS) as target:
        with _measured(env) as filling:
            filled = _fill(env, topics, wanted, tell)
        tell(f"{filled['messages']:,} messages in {topics:,} topics, {filling['seconds']:.0f} s")
        with _measured(env) as copying:
            epochs_ms = _catch_up(env, target, filled["messages"], rows_per_epoch, tell)
        small = measure_processor(env, RowShape(), rows=10, epochs=60)
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
    publish(results, out / "backlog.json", text, page)
    console.print(text)


@contextmanager
def _measured(env: Environment) -> Iterator[dict[str, Any]]:
    """Yield a dictionary that gets ``seconds`` and ``processor_s`` of the block."""
    found: dict[str, Any] = {}
    env.settle()  # what the broker still does for earlier work is not counted
    before, began = env.processor_s(), time.perf_counter()
    yield found
    found["seconds"] = round(time.perf_counter() - began, 1)
    env.settle()  # the broker writes to its ledgers after the commit
    after = env.processor_s()
    found["processor_s"] = {who: round(after[who] - before[who], 1) for who in after}


def tables(results: dict[str, Any]) -> list[str]:
    """Return the measurements, and the capacity of clusters, as Markdown."""
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
        *capacity_table(costs),
    ]


def costs_of(results: dict[str, Any]) -> Costs:
    """Return the costs for the model of ``limits``."""
    messages = results["messages"]
    return Costs(
        sent_core_us=results["filling"]["processor_s"][BROKER] / messages * 1e6,
        copied_core_us=sum(results["copying"]["processor_s"].values()) / messages * 1e6,
        stored_bytes=results["stored_bytes"] / messages,
        epoch_core_ms=sum(results["small_epoch_core_ms"].values()),
    )


def _fill(
    env: Environment, topics: int, wanted: int, tell: Callable[[str], None]
) -> dict[str, int]:
    """Send about ``wanted`` messages, as many to each topic; return their number and bytes."""
    # Encoded once, so that filling the topics is the broker's work alone.
    batches = list(_encoded())
    values = sum(batch.value_and_key_bytes for batch in batches)
    messages = sum(batch.num_messages for batch in batches)
    per_topic = max(1, round(wanted / topics / (messages / len(batches))))
    tell(
        f"{messages:,} flights, {values / messages:.0f} bytes each, compressed to "
        f"{sum(len(batch.payload) for batch in batches) / values:.2f} of it; "
        f"{per_topic} entries into each topic"
    )
    endless = cycle(batches)
    sent = {"messages": 0, "value_bytes": 0, "stored_bytes": 0}
    with PulsarClient(env.broker.service_url) as client:
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
    env: Environment, target: str, messages: int, rows_per_epoch: int, tell: Callable[[str], None]
) -> list[dict[str, int]]:
    """Copy all messages; return the milliseconds of each epoch's steps, as Spark reports them."""
    sink = PulsarSink(
        service_url=env.broker.service_url,
        topic=target,
        sink_id=_SINK_ID,
        commit_log=env.commit_log(),
        compression="lz4",
    )
    source = env.spark.readStream.format("pulsar").options(
        serviceUrl=env.broker.service_url,
        adminUrl=env.broker.admin_url,
        topicsPattern="public/default/backlog-[0-9]+",
        startingOffsets="earliest",
        subscription=_SINK_ID,
        maxPartitions=_TASKS,
        maxRowsPerTrigger=rows_per_epoch,
    )
    stream = source.load().writeStream.foreachBatch(sink)
    checkpoint = str(env.folder / "backlog")
    # All epochs are needed below; by default Spark keeps the progress of a hundred.
    env.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", _MOST_EPOCHS)
    query = stream.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    while not query.awaitTermination(_TELL_EVERY_S):
        last = query.lastProgress
        if last:
            tell(f"epoch {last['batchId']}: {last['durationMs']} ms")
    sink.close()
    written = env.committed(_SINK_ID)
    if written != messages:
        raise RuntimeError(f"Only {written:,} of {messages:,} messages were copied")
    env.await_count(target, messages)
    return [dict(one["durationMs"]) for one in query.recentProgress if one["numInputRows"]]


# --- the capacity of clusters ------------------------------------------------------------------

# Messages, on average: 6 billion a day.
ARRIVING_PER_S: Final = 69_400
_PEAK: Final = 4  # in multiples of the average
_COPIES: Final = 3
_CORES: Final = 16
# 10 Gbit/s, each way.
_NETWORK_BYTES_PER_S: Final = 1.25e9
_DISK_BYTES_PER_S: Final = 500e6
# Share of each resource; the rest is for bursts, compaction, and a node that is down.
_USED: Final = 0.5
_QUERIES: Final = 3_000
NODES: Final = (3, 10, 30)


@dataclass(frozen=True)
class Costs:
    """The costs of a message that is sent, read and copied once, and of an epoch.

    Attributes:
        sent_core_us: broker: to receive a message from a producer and store one copy.
        copied_core_us: broker and Spark: to read it and write it to another topic.
        epoch_core_ms: all processes: for an epoch of ten rows.
    """

    sent_core_us: float
    copied_core_us: float
    stored_bytes: float
    epoch_core_ms: float


def limits(costs: Costs, nodes: int) -> dict[str, float]:
    """Return the messages per second that each resource of ``nodes`` nodes allows.

    Brokers, bookies and Spark share the nodes.
    """
    # Further copies are assumed to cost as much as the first one, which includes the broker's work.
    more_copies_us = 2 * (_COPIES - 1) * costs.sent_core_us
    core_us = costs.sent_core_us + costs.copied_core_us + more_copies_us
    # From its producer to a broker, to the bookies, to Spark, back to a broker and to the bookies.
    moved = costs.stored_bytes * (3 + 2 * _COPIES)
    # A bookie writes each copy twice, to its journal and to its ledger.
    written = costs.stored_bytes * 2 * 2 * _COPIES
    return {
        "processors": nodes * _CORES * _USED / core_us * 1e6,
        "network": nodes * _NETWORK_BYTES_PER_S * _USED / moved,
        "disks": nodes * _DISK_BYTES_PER_S * _USED / written,
    }


def capacity_table(costs: Costs) -> list[str]:
    """Return the capacity of clusters of ``NODES`` nodes, as Markdown."""
    by_nodes = [limits(costs, nodes) for nodes in NODES]
    lowest = [min(found.values()) for found in by_nodes]
    share = _QUERIES / 60 * costs.epoch_core_ms / 1e3 / (_CORES * _USED)
    rows = {
        f"thousand messages/s, if {what} were all": [f"{one[what] / 1e3:,.0f}" for one in by_nodes]
        for what in by_nodes[0]
    }
    rows |= {
        f"**times the average of {ARRIVING_PER_S:,}/s**": [
            f"**{one / ARRIVING_PER_S:.1f}**" for one in lowest
        ],
        f"times the peak, {_PEAK} times that": [
            f"{one / ARRIVING_PER_S / _PEAK:.1f}" for one in lowest
        ],
        "minutes to catch up after an hour, while more arrives": [_minutes(one) for one in lowest],
        f"{_QUERIES:,} queries, an epoch a minute each: of the processors' half": [
            f"{share / nodes:.0%}" for nodes in NODES
        ],
    }
    heads = " | ".join(f"{nodes} nodes" for nodes in NODES)
    lines = [f"| | {heads} |", f"|---|{'---:|' * len(NODES)}"]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def _minutes(limit: float) -> str:
    left = limit - ARRIVING_PER_S
    return f"{60 * ARRIVING_PER_S / left:,.0f}" if left > 0 else "never"
