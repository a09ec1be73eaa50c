"""Sending messages one by one, as an application does, until all are confirmed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Annotated, Any, Final

import pulsar
import typer
from pulsar.schema import AvroSchema, Double, Integer, JsonSchema, Long, Record, String
from pyspark.sql import DataFrame, Row

from bench.environment import (
    CORES,
    WARM_UP,
    Environment,
    Spread,
    chosen,
    environment,
    interleaved,
    interleaved_rates,
    machine,
    timed_s,
)
from bench.peers import JavaClient, built_jars, write_avro_by_pulsar_spark
from bench.publish import OUT, OutFolder, Page, progress, publish
from bench.spark_writers import EosSink, send_by_pulsar_client
from eos.client import PulsarClient
from eos.client.aio import AsyncPulsarClient

_VALUE: Final = b"." * 100
_AWAITED: Final = 1000  # calls of ``send`` in one ``gather``

WAYS: Final = {
    "eos": "**eos**, `producer.send`",
    "eos_transaction": "**eos**, `producer.send` in a transaction, commit included",
    "eos_keys": "**eos**, `producer.send` with keys, four partitions",
    "eos_asyncio": "**eos**, `asyncio`, `gather` of 1,000 `send`",
    "pulsar_client": "`pulsar-client`, `send_async` with batches",
    "pulsar_client_keys": "`pulsar-client`, `send_async` with keys, four partitions",
}


def _eos(url: str, topic: str, rows: int, *, in_transaction: bool = False) -> float:
    with PulsarClient(url) as client, client.producer(topic) as producer:
        if not in_transaction:
            futures = [producer.send(_VALUE) for _ in range(rows)]
            producer.flush()
        else:
            with client.transaction(timeout_s=120) as txn:
                futures = [producer.send(_VALUE, txn=txn) for _ in range(rows)]
        assert all(future.done() and future.exception() is None for future in futures)
    return rows


def _eos_keys(url: str, topic: str, rows: int) -> float:
    with PulsarClient(url) as client, client.producer(topic) as producer:
        futures = [producer.send(_VALUE, key=str(row)) for row in range(rows)]
        producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)
    return rows


def _eos_asyncio(url: str, topic: str, rows: int) -> float:
    async def send_all() -> None:
        async with AsyncPulsarClient(url) as client:
            producer = await client.producer(topic)
            for start in range(0, rows, _AWAITED):
                count = min(_AWAITED, rows - start)
                await asyncio.gather(*(producer.send(_VALUE) for _ in range(count)))

    asyncio.run(send_all())
    return rows


def _pulsar_client(url: str, topic: str, rows: int, *, with_keys: bool = False) -> float:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    failed: list[pulsar.Result] = []
    all_sent = threading.Event()
    left = rows

    def sent(result: pulsar.Result, _: pulsar.MessageId) -> None:
        nonlocal left
        if result != pulsar.Result.Ok:
            failed.append(result)
        left -= 1  # callbacks come from one thread
        if not left:
            all_sent.set()

    try:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
            block_if_queue_full=True,
            max_pending_messages=50_000,
        )
        for row in range(rows):
            if with_keys:
                producer.send_async(_VALUE, sent, partition_key=str(row))
            else:
                producer.send_async(_VALUE, sent)
        producer.flush()
        assert all_sent.wait(60)
        assert not failed
    finally:
        client.close()
    return rows


def measure_sending(
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Return for each way its messages per second, as a spread; all messages are confirmed."""
    url = env.broker.service_url
    with env.topic(1) as single, env.topic(4) as keyed:
        one = f"{single}-partition-0"
        ways: Mapping[str, Callable[[], float]] = {
            "eos": partial(_eos, url, one, rows),
            "eos_transaction": partial(_eos, url, one, rows, in_transaction=True),
            "eos_keys": partial(_eos_keys, url, keyed, rows),
            "eos_asyncio": partial(_eos_asyncio, url, one, rows),
            "pulsar_client": partial(_pulsar_client, url, one, rows),
            "pulsar_client_keys": partial(_pulsar_client, url, keyed, rows, with_keys=True),
        }
        return interleaved_rates(env, ways, rounds, tell)


def tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    found = results["sending"]
    peer = found["pulsar_client"]["median"]
    lines = [
        f"{results['rows']:,} messages of {len(_VALUE)} bytes, from the first call until all are "
        "confirmed.",
        "",
        "| one process, one thread that sends | messages/s | p10 to p90 | to `pulsar-client` |",
        "|---|---:|---:|---:|",
    ]
    for name, text in WAYS.items():
        rate = found[name]
        between = f"{rate['p10']:,.0f} to {rate['p90']:,.0f}"
        ratio = f"{rate['median'] / peer:.2f}"
        lines.append(f"| {text} | {rate['median']:,.0f} | {between} | {ratio} |")
    return "\n".join(lines) + "\n"


def sending(
    rows: Annotated[int, typer.Option(help="Messages of a run.")] = 200_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 7,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Send messages one by one, by eos and by pulsar-client; write sending.json."""
    console, tell = progress()
    with environment() as env:
        results = {
            "machine": machine(),
            "rows": rows,
            "sending": measure_sending(env, rows, rounds, tell),
        }
    text = tables(results)
    publish(results, out / "sending.json", text, page)
    console.print(text)


# The rows for encoders that encode them one by one, in Python.
_SLOW_ROWS: Final = 50_000
# Mean size of a record in Avro (measured), and the size of a raw value.
_AVRO_BYTES: Final = 47

_PATHS: Final = {
    "bytes": ("**raw bytes**, as many as the Avro record has", "bytes"),
    "avro": ('`schema="avro"`', "avro"),
    "json": ('`schema="json"`', "json"),
    "key_value": ('`schema="key_value"`: a long and Avro', "key_value"),
    "protobuf": ('`schema="protobuf"`', "protobuf"),
}


class Flight(Record):  # type: ignore[misc]
    """The record, as ``pulsar-client`` declares it."""

    id = Long(required=True)
    carrier = String()
    origin = String()
    dest = String()
    delay = Double()
    distance = Integer(required=True)
    at = Long(required=True)
    tail = String()


def _flight(row: Row) -> dict[str, Any]:
    return {"content": Flight(**row.asDict())}


def records(env: Environment, count: int) -> DataFrame:
    """Return ``count`` records: a long, an int, a time in microseconds, a double that may be null,
    and four strings."""
    return env.spark.range(0, count, 1, CORES).selectExpr(
        "id",
        "'UA' AS carrier",
        "'JFK' AS origin",
        "'LAX' AS dest",
        "IF(id % 33 = 0, NULL, id % 100 - 20.5D) AS delay",
        "CAST(100 + id % 2400 AS INT) AS distance",
        "1700000000000000 + id AS at",
        "CONCAT('N', LPAD(STRING(id % 90000), 5, '0')) AS tail",
    )


def measure_schemas(
    env: Environment,
    rows: int,
    rounds: int,
    tell: Callable[[str], None],
    *,
    only: Collection[str] = (),
) -> dict[str, dict[str, float]]:
    """Return for each path its rows per second, a spread; in rounds, each in a new random order.

    ``only``: these paths, if not empty.
    """
    with JavaClient(env.broker.service_url) as java:
        paths = chosen(_paths(env, java), only)

        def run(name: str) -> float:
            is_slow = name == "protobuf" or name.startswith("pulsar_client")
            count = min(rows, _SLOW_ROWS) if is_slow else rows
            with env.topic(1) as topic:
                rate = paths[name](topic, count)
                env.await_count(topic, count)
            return rate

        ways = {name: partial(run, name) for name in paths}
        found = interleaved(
            env, ways, rounds, lambda text: tell(f"schemas: {text}"), warm_up=WARM_UP
        )
    return {name: vars(Spread.of(rates, 0)) for name, rates in found.items()}


def _paths(env: Environment, java: JavaClient) -> dict[str, Callable[[str, int], float]]:
    url = env.broker.service_url

    def eos(schema: str, topic: str, count: int) -> float:
        df = records(env, count)
        if schema == "bytes":
            df = df.selectExpr(f"LPAD(STRING(id), {_AVRO_BYTES}, '.') AS value")
        elif schema == "key_value":
            df = df.selectExpr("id AS key", "STRUCT(*) AS value")
        with EosSink(env, topic, schema=schema) as sink:
            sink.write(df.limit(0))  # claims the sink, which a query does once
            return count / timed_s(lambda: sink.write(df))

    def pulsar_client(schema: Any, topic: str, count: int) -> float:
        df = records(env, count)
        return count / timed_s(
            lambda: send_by_pulsar_client(df, url, topic, _flight, partial(schema, Flight))
        )

    def by_pulsar_spark(topic: str, count: int) -> float:
        df = records(env, count)
        return count / timed_s(lambda: write_avro_by_pulsar_spark(df, url, topic))

    peers = {"pulsar_spark": by_pulsar_spark} if env.has_pulsar_spark else {}
    return {
        **peers,
        **{name: partial(eos, schema) for name, (_, schema) in _PATHS.items()},
        "pulsar_client_avro": partial(pulsar_client, AvroSchema),
        "pulsar_client_json": partial(pulsar_client, JsonSchema),
        "java_avro": partial(java.records_per_s, "avro"),
        "java_json": partial(java.records_per_s, "json"),
    }


def schemas_table(found: dict[str, dict[str, float]], rows: int) -> str:
    """Return the figures as Markdown, with their ratios to raw bytes."""
    names = {
        **{name: text for name, (text, _) in _PATHS.items()},
        "java_avro": "the Java client, one transaction, a class in Avro",
        "java_json": "the Java client, one transaction, a class in JSON",
        "pulsar_spark": "pulsar-spark with its Avro, at-least-once",
        "pulsar_client_avro": "`pulsar-client` with `AvroSchema`, no transaction",
        "pulsar_client_json": "`pulsar-client` with `JsonSchema`, no transaction",
    }
    base = found["bytes"]["median"]
    count = int(found["bytes"]["count"])
    lines = [
        f"Records of eight fields, {_AVRO_BYTES} bytes in Avro, one partition: {rows:,} rows a run,"
        f" {_SLOW_ROWS:,} for Protobuf and `pulsar-client`, which encode row by row in Python.",
        "",
        f"| schema | rows/s, median of {count} | lowest to highest | of raw bytes |",
        "|---|---:|---|---:|",
    ]
    for name, text in names.items():
        spread = found.get(name)
        if spread is None:  # pulsar-spark could not be built
            continue
        lines.append(
            f"| {text} | {spread['median']:,.0f} | {spread['lowest']:,.0f} to "
            f"{spread['highest']:,.0f} | {spread['median'] / base:.2f} |"
        )
    return "\n".join(lines) + "\n"


def schemas(
    rows: Annotated[int, typer.Option(help="Rows of a run.")] = 1_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 5,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Write the same records by each schema, and by other clients; write schemas.json."""
    console, tell = progress()
    with environment(built_jars(tell)) as env:
        found = measure_schemas(env, rows, rounds, tell)
    results = {"machine": machine(), "rows": rows, "rows_per_s": found}
    text = schemas_table(found, rows)
    publish(results, out / "schemas.json", text, page)
    console.print(text)
