"""Rows per second by schema, compared with raw bytes of the same size and with other clients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

import numpy as np
import typer
from pulsar.schema import AvroSchema, Double, Integer, JsonSchema, Long, Record, String
from pyspark.sql import DataFrame, Row

from bench.environment import CORES, Environment, Spread, environment, machine, timed_s
from bench.peers import JavaClient
from bench.publish import OUT, OutFolder, Page, progress, publish
from bench.spark_writers import EosSink, send_by_pulsar_client

_SLOW_ROWS: Final = 50_000
"""The rows for encoders that encode them one by one, in Python."""
_AVRO_BYTES: Final = 47
"""Mean size of a record in Avro (measured), and the size of a raw value."""

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
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Return for each path its rows per second, a spread; in rounds, each in a new random order."""
    order = np.random.default_rng(0)
    found: dict[str, list[float]] = {}
    with JavaClient(env.broker.service_url) as java:
        paths = _paths(env, java)
        for number in range(-2, rounds):
            tell(f"schemas: {'warm-up' if number < 0 else f'round {number + 1}'}")
            for name in order.permutation(list(paths)):
                is_slow = name == "protobuf" or name.startswith("pulsar_client")
                count = min(rows, _SLOW_ROWS) if is_slow else rows
                env.settle()
                with env.topic(1) as topic:
                    rate = paths[name](topic, count)
                    env.await_count(topic, count)
                if number >= 0:
                    found.setdefault(name, []).append(rate)
    return {name: vars(Spread.of(rates, 0)) for name, rates in found.items()}


def _paths(env: Environment, java: JavaClient) -> dict[str, Callable[[str, int], float]]:
    url = env.broker.service_url

    def eos(schema: str, topic: str, count: int) -> float:
        df = records(env, count)
        if schema == "bytes":
            df = df.selectExpr(f"LPAD(STRING(id), {_AVRO_BYTES}, '.') AS value")
        elif schema == "key_value":
            df = df.selectExpr("id AS key", "STRUCT(*) AS value")
        sink = EosSink(env, topic, schema=schema)
        try:
            sink.write(df.limit(0))
            return count / timed_s(lambda: sink.write(df))
        finally:
            sink.close()

    def pulsar_client(schema: Any, topic: str, count: int) -> float:
        df = records(env, count)
        return count / timed_s(
            lambda: send_by_pulsar_client(df, url, topic, _flight, partial(schema, Flight))
        )

    return {
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
        spread = found[name]
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
    with environment() as env:
        found = measure_schemas(env, rows, rounds, tell)
    results = {"machine": machine(), "rows": rows, "rows_per_s": found}
    text = schemas_table(found, rows)
    publish(results, out / "schemas.json", text, page)
    console.print(text)
