"""Reading: rows per second outside of Spark and in Spark, and the cost of planning an epoch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

import pulsar
import pyarrow as pa
import typer
from pyspark.sql import DataFrame, Observation, functions
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from bench.environment import (
    CORES,
    Environment,
    Spread,
    chosen,
    environment,
    interleaved_rates,
    machine,
    timed_s,
)
from bench.peers import built_jars, read_by_pulsar_spark
from bench.publish import OUT, OutFolder, Page, progress, publish
from bench.spark_writers import EosSource
from eos.client import PulsarClient
from eos.sources import PulsarDataSource
from eos.wire import commands
from eos.wire.batch import EncodedBatch, Rows, encode_batches

_VALUE_BYTES: Final = 100
_ENTRY_BYTES: Final = 1 << 20
_SMALL_ENTRY_MESSAGES: Final = 10
_PARTITIONS: Final = 4
# Multiple of the rows: more than the broker's cache holds, so that its bookie must read them.
_HISTORY: Final = 4
_PARTITION_COUNTS: Final = (1, 8, 64, 512)
_TOPIC_COUNTS: Final = (1, 10, 100, 1000)
_RECEIVE_BYTES: Final = 1 << 20

Encode = Callable[[Rows], Iterator[EncodedBatch]]
_in_large_entries: Final[Encode] = partial(encode_batches, max_batch_bytes=_ENTRY_BYTES)
_in_small_entries: Final[Encode] = partial(encode_batches, max_batch_messages=_SMALL_ENTRY_MESSAGES)


@dataclass(frozen=True)
class TopicContent:
    """The content of a topic: how it was written, and the multiple of the run's rows."""

    text: str
    encode: Encode
    times: int = 1
    has_peers: bool = True


SHAPES: Final = {
    "memory": TopicContent("entries of 1 MiB, from the broker's memory", _in_large_entries),
    "bookie": TopicContent(
        "entries of 1 MiB, from its bookie", _in_large_entries, times=_HISTORY, has_peers=False
    ),
    "small": TopicContent(f"entries of {_SMALL_ENTRY_MESSAGES} messages", _in_small_entries),
}
OUTSIDE: Final = {
    "eos": "**eos**, `client.reader`, Arrow batches",
    "raw_socket": "raw socket: bytes that come, nothing decoded",
    "batch_receive": "`pulsar-client`, `batch_receive`",
    "read_next": "`pulsar-client`, `read_next`",
}
INSIDE: Final = {
    "ceiling_value": "Spark's ceiling, ready-made batches: value",
    "eos_value": '**eos**, `format("pulsar")`: value',
    "pulsar_spark_value": "pulsar-spark: value",
    "ceiling_metadata": "Spark's ceiling, ready-made batches: all columns",
    "eos_metadata": '**eos**, `format("pulsar")`: all columns',
    "pulsar_spark_metadata": "pulsar-spark: all columns",
}


class ReadyBatches(DataSource):
    """A source of batches that exist before the clock starts: the ceiling of Spark itself."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "ready"

    def schema(self) -> StructType:
        """Return the schema of eos's source."""
        unused = {"serviceUrl": "pulsar://localhost:6650", "topic": "t"}  # required, not used
        return PulsarDataSource({**unused, "metadata": self.options["metadata"]}).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of ``rows`` rows in ``tasks`` tasks."""
        return _ReadyReader(schema, int(self.options["rows"]), int(self.options["tasks"]))


class _ReadyReader(DataSourceReader):
    def __init__(self, schema: StructType, rows: int, tasks: int) -> None:
        self._schema, self._rows, self._tasks = schema, rows, tasks

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(index) for index in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        count = _ENTRY_BYTES // _VALUE_BYTES
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays(
            [pa.array([_ready(field)] * count, field.type) for field in schema], schema=schema
        )
        left = self._rows // self._tasks
        while left > 0:
            yield batch.slice(0, left)
            left -= count


def _ready(field: pa.Field) -> object:
    if field.name == "value":
        return bytes(_VALUE_BYTES)
    kinds = {pa.binary(): b"k", pa.string(): "persistent://public/default/t", pa.bool_(): False}
    return kinds.get(field.type, [] if pa.types.is_nested(field.type) else 0)


def fill(client: PulsarClient, topic: str, rows: int, encode: Encode) -> None:
    """Send ``rows`` values of 100 bytes, without a transaction."""
    producer = client.entry_producer(topic)
    values = Rows(value=pa.array([b"." * _VALUE_BYTES] * min(rows, 1_000_000)))
    for start in range(0, rows, len(values)):
        for encoded in encode(values.slice(0, min(len(values), rows - start))):
            producer.send_batch(encoded)
    producer.close()


def _eos(url: str, topic: str, rows: int) -> float:
    with PulsarClient(url) as client, client.reader(topic) as reader:
        found: int = sum(batch.num_rows for batch in reader.read_to(reader.last_id))
    assert found == rows
    return found


def _raw_socket(url: str, topic: str, rows: int) -> float:
    # Receive as many bytes as the values alone have.
    room = memoryview(bytearray(_RECEIVE_BYTES))
    with PulsarClient(url) as client:
        connection = client.lookup.dedicated_connection(topic)
        try:
            connection.request(
                lambda request_id: commands.Subscribe(
                    topic=topic,
                    subscription="raw",
                    subscription_type=commands.SubscriptionType.EXCLUSIVE,
                    consumer_id=0,
                    request_id=request_id,
                    durable=False,
                    initial_position=commands.InitialPosition.EARLIEST,
                ),
                commands.Success,
                timeout_s=30,
                doing="raw",
            )
            connection.send(commands.Flow(consumer_id=0, permits=2**30))
            left = rows * _VALUE_BYTES
            while left > 0:
                left -= connection._stream.recv_into(room, 30)
        finally:
            connection.close()
    return rows


def _batch_receive(url: str, topic: str, rows: int) -> float:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe(
            topic,
            "bench",
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=10_000,
            batch_receive_policy=pulsar.ConsumerBatchReceivePolicy(10_000, 10 << 20, 1_000),
        )
        found = 0
        while found < rows:
            found += len([message.data() for message in consumer.batch_receive()])
        consumer.unsubscribe()
    finally:
        client.close()
    return found


def read_next(url: str, topic: str, rows: int) -> float:
    """Read so many rows by pulsar-client, one by one."""
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=10_000)
        for _ in range(rows):
            reader.read_next(30_000).data()
    finally:
        client.close()
    return rows


def outside(
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None], shape: TopicContent
) -> dict[str, dict[str, float]]:
    """Return for each path its rows per second from one partition, as a spread."""
    url = env.broker.service_url
    ours = {"eos": _eos, "raw_socket": _raw_socket}
    peers = {"batch_receive": _batch_receive, "read_next": read_next} if shape.has_peers else {}
    count = shape.times * rows
    with env.topic(1) as topic:
        partition = f"{topic}-partition-0"
        with PulsarClient(url) as client:
            fill(client, partition, count, shape.encode)
        # The same rows for all: each clock includes opening and closing the client.
        ways = {
            name: partial(way, url, partition, count) for name, way in {**ours, **peers}.items()
        }
        return interleaved_rates(env, ways, rounds, tell)


def inside(
    env: Environment,
    rows: int,
    rounds: int,
    tell: Callable[[str], None],
    *,
    only: Collection[str] = (),
) -> dict[str, dict[str, float]]:
    """Return the same in Spark, from four partitions into a sink that does nothing.

    ``only``: these paths, if not empty.
    """
    for source in (EosSource, ReadyBatches):
        env.spark.dataSource.register(source)
    with env.topic(_PARTITIONS) as topic:
        with PulsarClient(env.broker.service_url) as client:
            for index in range(_PARTITIONS):
                partition = f"{topic}-partition-{index}"
                fill(client, partition, rows // _PARTITIONS, _in_large_entries)
        known: dict[str, dict[str, Any]] = {
            "eos": {"serviceUrl": env.broker.service_url, "topic": topic},
            "ceiling": {"rows": rows, "tasks": _PARTITIONS},
        }
        names = {"eos": EosSource.name(), "ceiling": ReadyBatches.name()}

        def read(way: str, columns: str) -> float:
            if way == "pulsar_spark":
                df = read_by_pulsar_spark(env.spark.read, env.broker.service_url, topic).load()
                df = df.select("value") if columns == "value" else df
            else:
                reader = env.spark.read.format(names[way]).options(**known[way])
                df = reader.option("metadata", columns == "metadata").load()
            return read_all(df, rows)

        peers = ("pulsar_spark",) if env.has_pulsar_spark else ()
        ways = {
            f"{way}_{columns}": partial(read, way, columns)
            for columns in ("value", "metadata")
            for way in ("ceiling", "eos", *peers)
        }
        return interleaved_rates(env, chosen(ways, only), rounds, tell)


def read_all(df: DataFrame, rows: int) -> float:
    """Read all columns into a sink that does nothing; return the rows.

    Raises:
        RuntimeError: these are not as many rows.
    """
    # Not an aggregate: that would read only the columns that it needs.
    found = Observation()
    df.observe(found, functions.count("*").alias("n")).write.format("noop").mode("overwrite").save()
    if found.get["n"] != rows:
        raise RuntimeError(f"{found.get['n']:,} rows were read of {rows:,}.")
    return rows


def planning(env: Environment, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the milliseconds to plan an epoch: the first time, and later."""
    curves: dict[str, list[dict[str, Any]]] = {"partitions": [], "topics": []}
    for count in _PARTITION_COUNTS:
        tell(f"planning: {count} partitions")
        with env.topic(count) as topic:
            curves["partitions"].append({"x": count, **_planning_ms(env, [topic], rounds)})
    tell("planning: topics")
    names = [f"persistent://public/default/bench-plan-{n}" for n in range(max(_TOPIC_COUNTS))]
    with PulsarClient(env.broker.service_url) as client:
        for name in names:
            client.create_unpartitioned(name)
    for count in _TOPIC_COUNTS:
        tell(f"planning: {count} topics")
        curves["topics"].append({"x": count, **_planning_ms(env, names[:count], rounds)})
    return curves


def _planning_ms(env: Environment, topics: Sequence[str], rounds: int) -> dict[str, Any]:
    given = {"serviceUrl": env.broker.service_url, "topics": ",".join(topics)}
    source = PulsarDataSource(given)
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    try:
        first_s = timed_s(lambda: reader.latestOffset(start, ReadAllAvailable()))
        seconds = [
            timed_s(lambda: reader.latestOffset(start, ReadAllAvailable())) for _ in range(rounds)
        ]
    finally:
        reader.stop()
    spread = Spread.of([1000 * second for second in seconds])
    return {"first_ms": round(1000 * first_s, 1), "ms": vars(spread)}


def tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    rows = results["rows"]
    lines = [
        f"{rows:,} values of {_VALUE_BYTES} bytes, {_HISTORY * rows:,} from the bookie; timed "
        "with opening and closing the client. Rows/s, and MB/s of values.",
        "",
        "| outside of Spark, one partition |"
        + "|".join(f" {shape.text} " for shape in SHAPES.values())
        + "|",
        "|---|" + "---:|" * len(SHAPES),
    ]
    for name, text in OUTSIDE.items():
        cells = [_cell(results["outside"][shape].get(name)) for shape in SHAPES]
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    lines += [
        "",
        f"| in Spark, `local[{CORES}]`, {_PARTITIONS} partitions | from the broker's memory | of "
        "its ceiling | from its bookie | of its ceiling |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, text in INSIDE.items():
        cells = []
        for found in results["inside"].values():
            if name not in found:  # pulsar-spark could not be built
                continue
            rate = found[name]["median"]
            ceiling = found[f"ceiling_{name.rpartition('_')[2]}"]["median"]
            cells += [f"{rate:,.0f}", f"{rate / ceiling:.2f}"]
        if cells:
            lines.append(f"| {text} | " + " | ".join(cells) + " |")
    lines += ["", "| planning an epoch | first, ms | later, ms |", "|---|---:|---:|"]
    for curve, points in results["planning"].items():
        for point in points:
            what = curve[:-1] if point["x"] == 1 else curve
            later = point["ms"]["median"]
            lines.append(f"| {point['x']:,} {what} | {point['first_ms']:,.0f} | {later:,.1f} |")
    return "\n".join(lines) + "\n"


def _cell(rates: dict[str, float] | None) -> str:
    if rates is None:
        return ""
    return f"{rates['median']:,.0f}, {rates['median'] * _VALUE_BYTES / 1e6:,.0f}"


def reading(
    rows: Annotated[int, typer.Option(help="Rows of a run.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 5,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Read topics in each way, and time the planning of epochs; write reading.json."""
    console, tell = progress()
    with environment(built_jars(tell)) as env:
        results = {
            "machine": machine(),
            "rows": rows,
            "outside": {
                name: outside(env, rows, rounds, tell, shape) for name, shape in SHAPES.items()
            },
            "inside": {
                name: inside(env, SHAPES[name].times * rows, rounds, tell)
                for name in ("memory", "bookie")
            },
            "planning": planning(env, rounds, tell),
        }
    text = tables(results)
    publish(results, out / "reading.json", text, page)
    console.print(text)
