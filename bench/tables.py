"""Tables as outputs, each beside what Spark has for it: JDBC, Iceberg's runtime, Delta's MERGE."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import psycopg
import pyspark
import typer
from psycopg.sql import SQL, Identifier
from pyiceberg.catalog import load_catalog
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
from eos import DeltaSink, IcebergSink, PostgresSink
from eos.sinks.sink import Sink
from eos.testing import PostgresServer, maven

_JDBC: Final = "org.postgresql:postgresql:42.7.4"
# The newest that there is (1.12.0) fails on Spark 4.2: IncompatibleClassChangeError.
_ICEBERG: Final = {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"}
_SMALL: Final = 10
_COUNT: Final = SQL("SELECT count(*) FROM {}")
_EPOCHS: Final = itertools.count()
_LARGE_ROWS: Final = 100_000_000

SHAPES: Final = {"narrow": "one text of 100 bytes", "wide": "20 columns"}
WAYS: Final = {
    "eos": "**`PostgresSink`**, exactly once",
    "jdbc": "Spark's JDBC, `append`",
    "jdbc-rewritten": "the same with `reWriteBatchedInserts`",
}
ICEBERG_WAYS: Final = {
    "eos": "**`IcebergSink`**, exactly once",
    "spark": "Spark's Iceberg append",
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


def _by_jdbc(rows: DataFrame, count: int, url: str, password: str, table: str) -> float:
    properties = {"user": "postgres", "password": password, "driver": "org.postgresql.Driver"}
    rows.write.jdbc(url, table, mode="append", properties=properties)
    return count


def postgres(
    env: Environment, server: PostgresServer, count: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Append by each way; rows per second, and the seconds of an epoch of ten rows."""
    url, password = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres", server.password

    def ways(name: str, rows: DataFrame, many: int) -> dict[str, Callable[[], float]]:
        sink = PostgresSink(
            sink_id=name,
            conninfo=server.conninfo,
            table=f"{name}_eos",
            commit_log=str(env.folder / "log"),
        )
        rewritten = f"{url}?reWriteBatchedInserts=true"
        return {
            "eos": partial(_written, sink, rows, many),
            "jdbc": partial(_by_jdbc, rows, many, url, password, f"{name}_jdbc"),
            "jdbc-rewritten": partial(
                _by_jdbc, rows, many, rewritten, password, f"{name}_rewritten"
            ),
        }

    found = _appended(env, ways, count, rounds, tell)
    with psycopg.connect(server.conninfo) as database:
        for name in _names(count):
            check_equal(
                database.execute(_COUNT.format(Identifier(f"{name}_{way}"))).fetchone()
                for way in ("eos", "jdbc", "rewritten")
            )
    return found


def iceberg(
    env: Environment, count: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """As ``postgres``, for Iceberg tables on this disk; needs Iceberg's runtime jar."""
    here = "spark.sql.catalog.theirs"
    env.spark.conf.set(here, "org.apache.iceberg.spark.SparkCatalog")
    env.spark.conf.set(f"{here}.type", "hadoop")
    env.spark.conf.set(f"{here}.warehouse", str(env.folder / "theirs"))
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{env.folder}/catalog.db",
        "warehouse": f"file://{env.folder}/ours",
    }

    def ways(name: str, rows: DataFrame, many: int) -> dict[str, Callable[[], float]]:
        sink = IcebergSink(
            sink_id=f"iceberg_{name}",
            table=f"bench.{name}",
            catalog=catalog,
            commit_log=str(env.folder / "log"),
        )
        table = f"theirs.bench.{name}"
        rows.limit(0).writeTo(table).create()
        return {
            "eos": partial(_written, sink, rows, many),
            "spark": partial(_by_iceberg, rows, many, table),
        }

    found = _appended(env, ways, count, rounds, tell)
    for name in _names(count):
        ours = load_catalog(**catalog).load_table(f"bench.{name}").scan().count()
        check_equal((ours, env.spark.table(f"theirs.bench.{name}").count()))
    return found


def _names(count: int) -> list[str]:
    return [f"{shape}_{many}" for shape in SHAPES for many in (count, _SMALL)]


def check_equal(found: Iterable[object]) -> None:
    """Check that all ways have written the same.

    Raises:
        RuntimeError: they have not.
    """
    if len(different := set(found)) > 1:
        raise RuntimeError(f"The ways have written different rows: {different}.")


def _by_iceberg(rows: DataFrame, count: int, table: str) -> float:
    rows.writeTo(table).append()
    return count


def _appended(
    env: Environment,
    ways: Callable[[str, DataFrame, int], dict[str, Callable[[], float]]],
    count: int,
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Run the ways for large and for small epochs of each shape, by turns."""
    rates: dict[str, Callable[[], float]] = {}
    small: dict[str, Callable[[], float]] = {}
    for shape in SHAPES:
        for into, many in ((rates, count), (small, _SMALL)):
            found = ways(f"{shape}_{many}", _rows(env, shape, many), many)
            into.update({f"{shape}/{name}": way for name, way in found.items()})
    seconds = {name: partial(timed_s, way) for name, way in small.items()}
    for way in seconds.values():
        way()
    return {
        "rates": interleaved_rates(env, rates, rounds, tell),
        "small_s": interleaved_seconds(env, seconds, rounds * 2, tell),
    }


def upserts(
    env: Environment, table_rows: int, changes: list[int], rounds: int, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Merge changes into tables of the same rows by each way; seconds."""
    # One table for each way, made by Spark: both merge into the same files.
    ways: dict[str, Callable[[], float]] = {}
    columns = ("id", "id * 2 AS n", "concat('row-', id) AS text")
    folder = env.folder / str(table_rows)
    for name in ("eos", "delta-spark"):
        tell(f"writing {table_rows:,} rows for {name}")
        rows = env.spark.range(table_rows, numPartitions=8).selectExpr(*columns)
        rows.write.format("delta").save(str(folder / name))
    sink = DeltaSink(
        sink_id=f"upserts-{table_rows}",
        table=str(folder / "eos"),
        commit_log=str(env.folder / "log"),
        merge_on=["id"],
    )
    for count in changes:
        # Spread over the whole table, as in real change data: each file has some.
        step = max(table_rows * 10 // 9 // count, 1)
        changed = env.spark.range(0, count * step, step, 2).selectExpr(
            "id", "id * 3 AS n", "concat('changed-', id) AS text"
        )
        changed.cache().count()
        ways[f"{count}/eos"] = partial(timed_s, partial(_written, sink, changed, count))
        ways[f"{count}/delta-spark"] = partial(
            timed_s, partial(_merged, changed, folder / "delta-spark")
        )
    for way in ways.values():
        way()
    found = interleaved_seconds(env, ways, rounds, tell)
    totals = ("count(*)", "sum(id)", "sum(n)", "sum(hash(text))")
    tables = (env.spark.read.format("delta").load(str(folder / one)) for one in folder.iterdir())
    check_equal(table.selectExpr(*totals).first() for table in tables)
    return found


def _merged(changes: DataFrame, table: Path) -> None:
    changes.createOrReplaceTempView("changes")
    changes.sparkSession.sql(
        f"MERGE INTO delta.`{table}` AS t USING changes AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def page_text(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    tables_too = ", and to Iceberg tables on its disk" if "iceberg" in results else ""
    lines = [
        f"{results['rows']:,} rows in two tasks to one PostgreSQL server on the same machine "
        f"(`fsync` off){tables_too}, thousand rows/s; and an epoch of {_SMALL} rows, in ms. Spark "
        f"{results['spark']}.",
        "",
        f"| | {' | '.join(SHAPES.values())} | {_SMALL} rows, narrow | {_SMALL} rows, wide |",
        "|---|---:|---:|---:|---:|",
    ]
    for system, ways in (("postgres", WAYS), ("iceberg", ICEBERG_WAYS)):
        found: dict[str, Any] = results.get(system, {})
        for name, way in ways.items() if found else ():
            rates = [f"{found['rates'][f'{s}/{name}']['median'] / 1e3:.0f}" for s in SHAPES]
            small = [f"{found['small_s'][f'{s}/{name}']['median'] * 1e3:.0f}" for s in SHAPES]
            lines.append(f"| {way} | {' | '.join(rates + small)} |")
    columns = [
        (f"{count:,} in {int(rows):,}", measured, count)
        for rows, measured in results["upserts"].items()
        for count in _changes(int(rows))
    ]
    if not columns:
        return "\n".join(lines) + "\n"
    lines += [
        "",
        "Upserts into a Delta table, seconds; the keys are known, and spread over all files:",
        "",
        f"| | {' | '.join(name for name, _, _ in columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, way in (
        ("eos", "**`DeltaSink(merge_on=...)`**, exactly once"),
        ("delta-spark", "delta-spark's `MERGE`"),
    ):
        cells = [f"{measured[f'{count}/{name}']['median']:.2f}" for _, measured, count in columns]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _changes(table_rows: int) -> list[int]:
    return [count for count in (10_000, 1_000_000, 10_000_000) if count < table_rows]


def tables(
    rows: Annotated[int, typer.Option(help="Rows of the large epochs.")] = 500_000,
    table_rows: Annotated[
        list[int],
        typer.Option(help="Rows of a table that gets upserts; repeatable. 0: no upserts."),
    ] = [10_000_000],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Rounds that count; one for the largest tables.")] = 5,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Write to tables by each way; write tables.json."""
    console, tell = progress()
    jars: list[Path] = maven.resolve([_JDBC], "postgresql-jdbc-42.7.4")
    runtime = _ICEBERG.get(pyspark.__version__.rpartition(".")[0])
    if runtime:
        jars += maven.resolve([runtime], "iceberg-spark-runtime-1.12.0")
    results: dict[str, Any] = {
        "machine": machine(),
        "rows": rows,
        "spark": pyspark.__version__,
        "upserts": {},
    }
    with environment(jars) as env, PostgresServer() as server:
        results["postgres"] = postgres(env, server, rows, rounds, tell)
        if runtime:
            results["iceberg"] = iceberg(env, rows, rounds, tell)
        for count in filter(None, table_rows):
            of = 1 if count >= _LARGE_ROWS else rounds
            results["upserts"][str(count)] = upserts(env, count, _changes(count), of, tell)
    text = page_text(results)
    publish(results, out / "tables.json", text, page)
    console.print(text)
