"""Tables as outputs: appends to PostgreSQL beside Spark's JDBC, upserts beside Delta's MERGE."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from delta.tables import DeltaTable
from pyspark.sql import DataFrame

from bench.environment import (
    Environment,
    environment,
    interleaved_rates,
    interleaved_seconds,
    machine,
    timed_s,
)
from bench.publish import OUT, OutFolder, Page, progress, publish
from eos import DeltaSink, PostgresSink
from eos.sinks.sink import Sink
from eos.testing import PostgresServer, maven

_JDBC: Final = "org.postgresql:postgresql:42.7.4"
_SMALL: Final = 10
_EPOCHS: Final = itertools.count()

SHAPES: Final = {"narrow": "one text of 100 bytes", "wide": "20 columns"}
WAYS: Final = {
    "eos": "**`PostgresSink`**, exactly once",
    "jdbc": "Spark's JDBC, `append`",
    "jdbc-rewritten": "the same with `reWriteBatchedInserts`",
}


def _rows(env: Environment, shape: str, count: int) -> DataFrame:
    if shape == "narrow":
        columns = ["lpad(cast(id AS string), 100, 'x') AS value"]
    else:
        kinds = (
            "id AS {}", "cast(id % 1000 AS int) AS {}", "id * 1.5D AS {}",
            "concat('text-', id) AS {}", "timestamp_seconds(id) AS {}",
        )  # fmt: skip
        columns = [kinds[n % len(kinds)].format(f"c{n}") for n in range(20)]
    rows = env.spark.range(count, numPartitions=2).selectExpr(*columns)
    # Both ways get rows from memory: the bench is of writing.
    rows.cache().count()
    return rows


def _written(sink: Sink, rows: DataFrame, count: int) -> float:
    sink.write(rows, epoch=next(_EPOCHS))
    return count


def _by_jdbc(rows: DataFrame, count: int, url: str, table: str) -> float:
    properties = {"user": "postgres", "driver": "org.postgresql.Driver"}
    rows.write.jdbc(url, table, mode="append", properties=properties)
    return count


def postgres(
    env: Environment, server: PostgresServer, count: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Append by each way; rows per second, and the seconds of an epoch of ten rows."""
    url = f"jdbc:{server.conninfo.replace('postgres@', '')}"
    rates: dict[str, Callable[[], float]] = {}
    small: dict[str, Callable[[], float]] = {}
    for shape in SHAPES:
        for into, rows in ((rates, _rows(env, shape, count)), (small, _rows(env, shape, _SMALL))):
            many = count if into is rates else _SMALL
            name = f"{shape}_{many}"
            sink = PostgresSink(
                sink_id=name,
                conninfo=server.conninfo,
                table=f"{name}_eos",
                commit_log=str(env.folder / "log"),
            )
            into[f"{shape}/eos"] = partial(_written, sink, rows, many)
            into[f"{shape}/jdbc"] = partial(_by_jdbc, rows, many, url, f"{name}_jdbc")
            into[f"{shape}/jdbc-rewritten"] = partial(
                _by_jdbc, rows, many, f"{url}?reWriteBatchedInserts=true", f"{name}_rewritten"
            )
    found = {"rates": interleaved_rates(env, rates, rounds, tell)}
    seconds = {name: partial(timed_s, way) for name, way in small.items()}
    for way in seconds.values():
        way()
    return found | {"small_s": interleaved_seconds(env, seconds, rounds * 2, tell)}


def upserts(
    env: Environment, table_rows: int, changes: list[int], rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Merge changes into tables of the same rows by each way; seconds."""
    # One table for each way, made by Spark: both merge into the same files.
    ways: dict[str, Callable[[], float]] = {}
    columns = ("id", "id * 2 AS n", "concat('row-', id) AS text")
    for name in ("eos", "delta-spark"):
        tell(f"writing {table_rows:,} rows for {name}")
        rows = env.spark.range(table_rows, numPartitions=8).selectExpr(*columns)
        rows.write.format("delta").save(str(env.folder / name))
    sink = DeltaSink(
        sink_id="upserts",
        table=str(env.folder / "eos"),
        commit_log=str(env.folder / "log"),
        merge_on=["id"],
    )
    theirs = DeltaTable.forPath(env.spark, str(env.folder / "delta-spark"))
    for count in changes:
        # A tenth of them are new keys.
        # Spread over the whole table, as in real change data: each file has some.
        step = max(table_rows * 10 // 9 // count, 1)
        changed = env.spark.range(0, count * step, step, 2).selectExpr(
            "id", "id * 3 AS n", "concat('changed-', id) AS text"
        )
        changed.cache().count()
        ways[f"{count}/eos"] = partial(timed_s, partial(_written, sink, changed, count))
        ways[f"{count}/delta-spark"] = partial(timed_s, partial(_merged, theirs, changed))
    for way in ways.values():
        way()
    return interleaved_seconds(env, ways, rounds, tell)


def _merged(table: DeltaTable, changes: DataFrame) -> None:
    merging = table.alias("t").merge(changes.alias("s"), "t.id = s.id")
    merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def page_text(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    found = results["postgres"]
    lines = [
        f"{results['rows']:,} rows in two tasks to one PostgreSQL server on the same machine "
        f"(`fsync` off), thousand rows/s; and an epoch of {_SMALL} rows, in ms.",
        "",
        f"| | {' | '.join(SHAPES.values())} | {_SMALL} rows, narrow | {_SMALL} rows, wide |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, way in WAYS.items():
        rates = [f"{found['rates'][f'{s}/{name}']['median'] / 1e3:.0f}" for s in SHAPES]
        small = [f"{found['small_s'][f'{s}/{name}']['median'] * 1e3:.0f}" for s in SHAPES]
        lines.append(f"| {way} | {' | '.join(rates + small)} |")
    merged, changes = results["upserts"], results["changes"]
    lines += [
        "",
        f"Upserts into a Delta table of {results['table_rows']:,} rows, seconds, nine of ten keys "
        "known:",
        "",
        f"| changes | {' | '.join(f'{count:,}' for count in changes)} |",
        f"|---|{'---:|' * len(changes)}",
    ]
    for name, way in (
        ("eos", "**`DeltaSink(merge_on=...)`**, exactly once"),
        ("delta-spark", "delta-spark's `MERGE`"),
    ):
        cells = [f"{merged[f'{count}/{name}']['median']:.2f}" for count in changes]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(
    rows: Annotated[int, typer.Option(help="Rows of the large epochs.")] = 500_000,
    table_rows: Annotated[int, typer.Option(help="Rows of the table of upserts.")] = 10_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 5,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Write to tables by each way; write tables.json."""
    console, tell = progress()
    changes = [count for count in (10_000, 1_000_000, 10_000_000) if count < table_rows]
    jars: list[Path] = maven.resolve([_JDBC], "postgresql-jdbc-42.7.4")
    results: dict[str, Any] = {
        "machine": machine(),
        "rows": rows,
        "table_rows": table_rows,
        "changes": changes,
    }
    with environment(jars) as env, PostgresServer() as server:
        results["postgres"] = postgres(env, server, rows, rounds, tell)
        results["upserts"] = upserts(env, table_rows, changes, rounds, tell)
    text = page_text(results)
    publish(results, out / "tables.json", text, page)
    console.print(text)
