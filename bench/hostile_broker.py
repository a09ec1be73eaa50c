"""Memory of each way to read hostile entries that a real broker has stored."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from unittest import mock

import psutil
import typer
from rich.console import Console
from rich.table import Table

from bench.hostile_entries import BOUND_MIB, ENTRIES, Stored, batch, block_of, kib, list_of, message
from eos.catalog.cli import app as catalog
from eos.client import Consumer, PulsarClient, ReceivedMessage
from eos.client.aio import AsyncPulsarClient
from eos.errors import EosError, ProtocolError
from eos.pulsar.roll_call import CALL, KIND, MARK, RollCall
from eos.testing import PulsarStandalone
from eos.wire.batch import Compression, EncodedBatch
from eos.wire.commands import SchemaInfo, SchemaType
from eos.wire.frames import encode_send

_MIB: Final = 1 << 20
# For a Spark task: its worker keeps the batch before, and copies each batch for its socket.
SPARK_BOUND_MIB: Final = 768
_SMALL: Final = "one small message"
_CALL: Final = "a roll call"
_IDLE_S: Final = 3.0
_BOOLEANS: Final = block_of(16_000_000, b"\1" * 16_000_000)


class StoredTopic(NamedTuple):
    """The content of a topic, and its schema."""

    entries: Callable[[], list[Stored]]
    schema: SchemaInfo = SchemaInfo(type=SchemaType.NONE)


# Every producer of a topic can store any of these.
TOPICS: Final[dict[str, StoredTopic]] = {
    _SMALL: StoredTopic(lambda: [batch(message(b"x"), 1)]),
    "zeros, malformed, zstd": StoredTopic(lambda: ENTRIES["zeros, malformed, zstd"]() * 5),
    "one large message each, 9 times": StoredTopic(
        lambda: ENTRIES["one large message each, 3 times"]() * 3
    ),
    "5 MiB each, 200 times": StoredTopic(lambda: [batch(message(b"\1" * 5 * _MIB), 1)] * 200),
    "2 million empty messages": StoredTopic(ENTRIES["2 million empty messages"]),
    "200,000 empty messages": StoredTopic(lambda: [batch(message(b"") * 200_000, 200_000)]),
    "5 MiB stored each, 60 times": StoredTopic(
        lambda: [Stored(os.urandom(5 * _MIB - 50_000), {"num_messages_in_batch": None})] * 60
    ),
    "16 million booleans each, 5 times": StoredTopic(
        lambda: [batch(message(_BOOLEANS), 1)] * 5, list_of("boolean")
    ),
}


class ReadFrom(NamedTuple):
    """A broker, and the topic to read."""

    service_url: str
    admin_url: str
    topic: str


def store(client: PulsarClient, topic: str, entries: Iterable[Stored], schema: SchemaInfo) -> None:
    """Send a roll call's mark, then ``entries`` unchanged, with their own metadata."""
    fields: dict[str, object] = {}
    registered = None if schema.type == SchemaType.NONE else schema
    marks = client.entry_producer(topic, create=True)
    marks.send(b"", properties={KIND: MARK, CALL: _CALL}).result(timeout=60)
    marks.close()
    (producer,) = client.entry_producers([topic], schema=registered)
    version = producer.schema_version
    # The client never writes such metadata: it is replaced when the frame is made.
    with mock.patch(
        "eos.transport.connection.encode_send",
        lambda send, metadata, payload: encode_send(send, replace(metadata, **fields), payload),
    ):
        for one in entries:
            fields = {**one.fields, "schema_version": version}
            count = max(1, one.fields.get("num_messages_in_batch") or 1)
            payload = memoryview(one.payload)
            sent = EncodedBatch(payload, count, len(payload), Compression.NONE, 0, 0)
            producer.send_batch(sent).result(timeout=60)
    producer.close()


# --- the ways: each yields numbers of messages, or errors -----------------------------------------

Found = Iterator[int | str]


def _by_consumer(at: ReadFrom) -> Found:
    def one(consumer: Consumer) -> list[ReceivedMessage]:
        received = consumer.receive(_IDLE_S)
        return [] if received is None else [received]

    return _consumed(at, one)


def _by_batches(at: ReadFrom) -> Found:
    return _consumed(at, lambda consumer: consumer.receive_batch(1000, _IDLE_S))


def _consumed(at: ReadFrom, receive: Callable[[Consumer], list[ReceivedMessage]]) -> Found:
    with (
        PulsarClient(at.service_url) as client,
        client.consumer(at.topic, uuid.uuid4().hex) as consumer,
    ):
        while True:
            try:
                received = receive(consumer)
            except ProtocolError as error:
                yield str(error)
                continue
            if not received:
                return
            consumer.acknowledge(received)
            yield len(received)


def _by_asyncio(at: ReadFrom) -> Found:
    found: list[int | str] = []

    async def receive() -> None:
        async with AsyncPulsarClient(at.service_url) as client:
            consumer = await client.consumer(at.topic, uuid.uuid4().hex)
            while True:
                try:
                    received = await consumer.receive_batch(1000, _IDLE_S)
                except ProtocolError as error:
                    found.append(str(error))
                    continue
                if not received:
                    return
                await consumer.acknowledge(received)
                found.append(len(received))

    asyncio.run(receive())
    yield from found


def _by_reader(at: ReadFrom) -> Found:
    with PulsarClient(at.service_url) as client, client.reader(at.topic) as reader:
        for rows in reader.read_to(reader.last_id):
            yield rows.num_rows


def _by_entries(at: ReadFrom) -> Found:
    with PulsarClient(at.service_url) as client, client.entry_reader(at.topic) as reader:
        last = client.topic_bounds(at.topic).last_id()
        for entry in reader.read(time.monotonic() + 60):
            try:
                yield len(entry.messages())
            except ProtocolError as error:
                yield str(error)
            if last is None or entry.id.place >= last.place:
                return


def _by_roll_call(at: ReadFrom) -> Found:
    # The entries are between its mark and its closing.
    with PulsarClient(at.service_url) as client:
        with client.entry_reader(at.topic) as reader:
            mark = next(reader.read(time.monotonic() + 20))
        producer = client.entry_producer(at.topic)
        call = RollCall(at.topic, mark.id, _CALL)
        yield len(call.close(client, producer, timeout_s=60))


def _by_peek(at: ReadFrom) -> Found:
    command = ["peek", at.topic, "-n", "1000", "--from", "earliest", "--json"]
    urls = ["--service-url", at.service_url, "--admin-url", at.admin_url]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        try:
            catalog([*command, *urls], standalone_mode=False)
        except SystemExit as ending:
            code = ending.code
    yield f"exit code {code}"


def _by_spark(at: ReadFrom) -> Found:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    # In the default mode the first malformed entry would end the query.
    options = {"serviceUrl": at.service_url, "topic": at.topic, "mode": "dropmalformed"}
    reading = spark.read.format("pulsar").options(**options).option("metadata", "true").load()
    yield reading.selectExpr("count(value)", "sum(length(value))").collect()[0][0]
    spark.stop()


WAYS: Final[dict[str, Callable[[ReadFrom], Found]]] = {
    "consumer": _by_consumer,
    "consumer, in batches": _by_batches,
    "asyncio, in batches": _by_asyncio,
    "reader": _by_reader,
    "entry reader": _by_entries,
    "peek": _by_peek,
    "Spark task": _by_spark,
    "roll call": _by_roll_call,  # last: it sends a message to the topic
}


def bound_mib(way: str) -> int:
    """Return the most memory that ``way`` may take."""
    return SPARK_BOUND_MIB if way == "Spark task" else BOUND_MIB


# --- measuring ---------------------------------------------------------------------------------


class Peak(NamedTuple):
    """The result for a topic; ``mib`` is the peak memory above the start."""

    rows: int
    mib: float
    seconds: float
    error: str


def run(way: str, at: ReadFrom) -> Peak:
    """Read ``at`` by ``way`` in this process, and measure its memory."""
    own = Path("/proc/self/status")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before, began, rows, error = kib(own, "VmRSS"), time.monotonic(), 0, ""
    workers = _Workers()
    try:
        for found in WAYS[way](at):
            rows, error = (rows, found) if isinstance(found, str) else (rows + found, error)
    except EosError as reason:
        error = f"{type(reason).__name__}: {reason}"
    # A Spark task decodes in its worker, another process.
    peak = workers.stop() if way == "Spark task" else kib(own, "VmHWM") - before
    return Peak(rows, peak / 1024, time.monotonic() - began, error)


class _Workers:
    """Watches the peak memory of this process's Spark workers, in KiB."""

    def __init__(self) -> None:
        self._peak, self._is_over = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._is_over.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        while not self._is_over.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "pyspark" in " ".join(child.cmdline()):
                        status = Path(f"/proc/{child.pid}/status")
                        self._peak = max(self._peak, kib(status, "VmHWM"))
                except (psutil.Error, OSError, ValueError):
                    continue  # it has ended


def run_apart(way: str, at: ReadFrom, timeout_s: float = 300.0) -> Peak:
    """Read in a new process.

    Raises:
        CalledProcessError: it died of an unexpected error, or of a lack of memory.
    """
    command = [sys.executable, "-m", "bench", "hostile-broker", "--way", way, *at]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s)
    return Peak(*json.loads(done.stdout.splitlines()[-1]))


def measure(topics: Iterable[str], ways: Iterable[str]) -> Iterator[tuple[str, str, Peak]]:
    """Read each topic by each way, with a new broker."""
    with PulsarStandalone() as broker:
        places = {}
        with PulsarClient(broker.service_url, timeout_s=60) as client:
            for number, name in enumerate(dict.fromkeys([_SMALL, *topics])):
                places[name] = f"persistent://public/default/hostile-{number}"
                store(client, places[name], TOPICS[name].entries(), TOPICS[name].schema)
        for way in ways:
            base = 0.0
            for name, place in places.items():
                if name == _SMALL and way != "Spark task":
                    continue  # only a Spark task needs a base
                at = ReadFrom(broker.service_url, broker.admin_url, place)
                figures = run_apart(way, at)
                if way == "Spark task":  # its workers' peaks include their start
                    base = base or figures.mib
                    figures = figures._replace(mib=figures.mib - base)
                yield way, name, figures


def hostile_broker(
    cluster: Annotated[list[str] | None, typer.Argument()] = None,
    way: str = "",
    ways: str = ";".join(WAYS),
) -> None:
    """Read hostile entries in all ways (--ways: some, separated by ";"), and show the memory.

    With --way and the places of a topic: one way, as JSON.
    """
    if cluster:
        print(json.dumps(run(way, ReadFrom(*cluster))))
        return
    names = ("way", "topic", "rows", "memory, MiB", "s", "error")
    table = Table(*names, title=f"Bound: {BOUND_MIB} MiB, of a Spark task {SPARK_BOUND_MIB} MiB")
    is_bounded = True
    for by, name, one in measure(TOPICS, ways.split(";")):
        is_bounded &= one.mib <= bound_mib(by)
        figures = (f"{one.rows:,}", f"{one.mib:.0f}", f"{one.seconds:.1f}", one.error[:80])
        table.add_row(by, name, *figures)
        print(by, name, *figures, file=sys.stderr, flush=True)
    Console(width=200).print(table)
    if not is_bounded:
        raise SystemExit(1)
