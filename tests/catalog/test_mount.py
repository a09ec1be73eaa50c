"""A mounted catalog: every topic is a table with its name, looked up by each statement."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession

from eos import PulsarCatalog
from eos.client import PulsarClient
from eos.errors import ConfigurationError
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.support.spark_releases import HAS_PARAMETERS_OF_OPTIONS


@pytest.fixture
def catalog(catalog: PulsarCatalog) -> PulsarCatalog:
    catalog.mount("pulsar")
    return catalog


@pytest.fixture
def topic(client: PulsarClient, catalog: PulsarCatalog) -> Callable[..., str]:
    """Creates a topic with some values, and returns its name in SQL."""

    def make(name: str, *values: str) -> str:
        with client.producer(name, create=True) as producer:
            for value in values:
                producer.send(value.encode())
        return table_of(name)

    return make


def table_of(name: str) -> str:
    return "pulsar.`public/default`.`" + name.replace("`", "``") + "`"


def values(spark: SparkSession, table: str) -> list[str]:
    rows = spark.sql(f"SELECT CAST(value AS STRING) AS v FROM {table}").collect()
    return sorted(row.v for row in rows)


def test_a_topic_is_read_listed_and_described_by_its_name(spark: SparkSession, topic, name: str):
    table = topic(f"{name}-x", "a", "b")
    assert values(spark, table) == ["a", "b"]
    shown = spark.sql("SHOW TABLES IN pulsar.`public/default`").collect()
    assert f"{name}-x" in [row.tableName for row in shown]
    assert not any(row.tableName.startswith("__") for row in shown)
    namespaces = [row.namespace for row in spark.sql("SHOW NAMESPACES IN pulsar").collect()]
    assert "`public/default`" in namespaces
    assert spark.sql("SHOW NAMESPACES IN pulsar.`public/default`").collect() == []
    described = spark.sql(f"DESCRIBE TABLE {table}").collect()
    assert [(row.col_name, row.data_type) for row in described] == [("value", "binary")]
    assert "pulsar" in [row.catalog for row in spark.sql("SHOW CATALOGS").collect()]


def test_missing_tables_are_sparks_own_errors(spark: SparkSession, topic, name: str):
    exists = topic(name, "a")
    missing = [
        table_of(f"{name}-other"),
        f"pulsar.`public/{name}`.t",  # no such namespace
        f"pulsar.`{name}/default`.t",  # no such tenant
        "pulsar.`public/default`.`two words`",  # not a name of a topic
        f"pulsar.public.default.`{name}`",
        f"pulsar.public.`default/{name}`",
        f"pulsar.`persistent://public/default`.`{name}`",
    ]
    for table in missing:
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.sql(f"SELECT * FROM {table}")
        assert not spark.catalog.tableExists(table)
    assert spark.catalog.tableExists(exists)
    for namespace in (f"public/{name}", f"{name}/default", "no words/x", "public"):
        for statement in ("SHOW TABLES IN", "SHOW NAMESPACES IN", "DESCRIBE NAMESPACE"):
            with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
                spark.sql(f"{statement} pulsar.`{namespace}`").collect()


@pytest.mark.parametrize(
    ("one", "other"),
    [("-x", "_x"), ("-Case", "-case"), (".a.b", "-a-b"), ("`quoted`", "-quoted-")],
)
def test_topics_with_similar_names_are_distinguished(
    spark: SparkSession, topic, name: str, one: str, other: str
):
    first, second = topic(f"{name}{one}", "1"), topic(f"{name}{other}", "2")
    assert (values(spark, first), values(spark, second)) == (["1"], ["2"])
    both = f"SELECT a.value AS x, b.value AS y FROM {first} a CROSS JOIN {second} b"
    (row,) = spark.sql(both).collect()
    assert (row.x, row.y) == (b"1", b"2")


def test_one_partition_is_a_table_too_and_is_not_listed(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    catalog.create(name, partitions=2)
    for number in range(2):
        with client.producer(f"{name}-partition-{number}") as producer:
            producer.send(f"{number}".encode())
    assert sorted(row.value for row in spark.table(table_of(name)).collect()) == [b"0", b"1"]
    (row,) = spark.table(table_of(f"{name}-partition-1")).collect()
    assert row.value == b"1"
    assert not spark.catalog.tableExists(table_of(f"{name}-partition-2"))
    shown = spark.sql(f"SHOW TABLES IN pulsar.`public/default` LIKE '{name}*'").collect()
    assert [row.tableName for row in shown] == [name]


def test_the_columns_are_those_of_the_current_schema(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    table = table_of(name)
    catalog.create(name)
    assert spark.table(table).columns == ["value"]
    catalog.drop(name, confirm=f"persistent://public/default/{name}")
    assert not spark.catalog.tableExists(table)
    catalog.create(name, schema="avro", columns="id BIGINT, word STRING")
    assert spark.table(table).columns == ["id", "word"]
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one')")
    assert [tuple(row) for row in spark.table(table).collect()] == [(1, "one")]


def test_an_insert_is_one_transaction_and_with_a_key_exactly_once(
    spark: SparkSession, topic, name: str
):
    table = topic(name)
    for _ in range(2):  # the second one is a rerun, which is skipped
        spark.sql(f"INSERT INTO {table} WITH (epoch='one') VALUES (CAST('a' AS BINARY))")
    assert values(spark, table) == ["a"]
    for _ in range(2):
        spark.sql(f"INSERT INTO {table} VALUES (CAST('b' AS BINARY))")
    assert values(spark, table) == ["a", "b", "b"]
    frame = spark.sql("SELECT CAST('c' AS BINARY) AS value")
    for _ in range(2):
        frame.writeTo(table).option("epoch", "two").append()
    assert values(spark, table) == ["a", "b", "b", "c"]


def test_a_statement_may_read_its_target(spark: SparkSession, topic, name: str):
    """The epoch is that of the place that is written to."""
    table = topic(name, "a")
    for _ in range(2):
        spark.sql(f"INSERT INTO {table} WITH (epoch='one') SELECT value FROM {table}")
    assert values(spark, table) == ["a", "a"]
    writer = spark.table(table).writeTo(table).option("epoch", "two")
    for _ in range(2):
        writer.append()
    assert values(spark, table) == ["a"] * 4


def test_each_place_of_a_statement_has_its_own_options(spark: SparkSession, topic, name: str):
    """Spark would use those of the first place for all."""
    table = topic(name, "a")
    none = f"{table} WITH (startingOffsets='latest')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW all_rows AS SELECT * FROM {table}")
    frame = spark.read.option("startingOffsets", "latest").table(table)
    frame.createOrReplaceTempView("no_rows")
    function = "CREATE OR REPLACE TEMPORARY FUNCTION none() RETURNS BIGINT RETURN"
    spark.sql(f"{function} (SELECT count(*) FROM {none})")
    counts = "SELECT none(), " + ", ".join(
        f"(SELECT count(*) FROM {place})"
        for place in (
            "all_rows",
            "no_rows",
            "IDENTIFIER(:t)",
            f"IDENTIFIER(:t) WITH (endingTime={':e' if HAS_PARAMETERS_OF_OPTIONS else '1'})",
        )
    )
    (row,) = spark.sql(counts, args={"t": table, "e": "1"}).collect()
    assert tuple(row) == (0, 1, 0, 1, 0)


def test_each_insert_of_a_statement_has_its_own_epoch(spark: SparkSession, topic, name: str):
    table = topic(name)
    insert = f"INSERT INTO {table} WITH (epoch='{{}}') SELECT value"
    spark.sql(f"FROM (SELECT binary('a') AS value) {insert.format('1')} {insert.format('2')}")
    rows = "FROM (SELECT binary('b') AS value);"
    spark.conf.set("spark.sql.scripting.enabled", "true")  # Spark 4.0
    spark.sql(f"BEGIN {insert.format('3')} {rows} {insert.format('4')} {rows} END")
    assert values(spark, table) == ["a", "a", "b", "b"]


def test_streams_read_and_write_its_tables(spark: SparkSession, topic, name: str, tmp_path: Path):
    source, target = topic(f"{name}-source", "0", "1"), topic(f"{name}-target")

    def run() -> None:
        frame = spark.readStream.option("startingOffsets", "earliest").table(source)
        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).toTable(target).awaitTermination(60)

    run()
    assert values(spark, target) == ["0", "1"]
    topic(f"{name}-source", "2")
    run()
    assert values(spark, target) == ["0", "1", "2"]


def test_sql_in_foreach_batch_reads_its_tables(
    spark: SparkSession, topic, name: str, tmp_path: Path
):
    source, other = topic(f"{name}-source", "0"), topic(f"{name}-other", "x", "y")
    seen: list[list[str]] = []

    def look(frame: DataFrame, _: int) -> None:
        seen.append([str(frame.count()), *values(spark, other)])

    frame = spark.readStream.option("startingOffsets", "earliest").table(source)
    writer = frame.writeStream.foreachBatch(look).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    assert query.awaitTermination(60)
    assert seen == [["1", "x", "y"]]


def test_options_of_a_statement_are_used(spark: SparkSession, topic, name: str):
    table = topic(name, "a")
    assert values(spark, f"{table} WITH (startingOffsets='latest')") == []
    latest = spark.read.option("startingOffsets", "latest").table(table)
    assert (latest.count(), latest.union(spark.table(table)).count()) == (0, 1)
    assert values(spark, table) == ["a"]


def test_columns_of_the_message_are_added_by_metadata(
    spark: SparkSession, catalog: PulsarCatalog, topic, name: str
):
    table = topic(name)
    catalog.mount("keyed", metadata=["__key", "__keyIsBinary"])
    keyed = table.replace("pulsar", "keyed", 1)
    spark.sql(f"INSERT INTO {keyed} VALUES (CAST('v' AS BINARY), X'6B', false)")
    (row,) = spark.table(keyed).collect()
    assert (row.value, row["__key"]) == (b"v", b"k")
    assert values(spark, table) == ["v"]  # the other catalog is unchanged
    catalog.mount("keyed", metadata=["key"])
    with pytest.raises(AnalysisException, match=r"^metadata: unknown column key"):
        spark.table(keyed)


def test_a_registered_topic_keeps_its_own_options(
    spark: SparkSession, catalog: PulsarCatalog, topic, name: str
):
    table = topic(name, "a")
    registered = catalog.register(name, table="default.mine", startingOffsets="latest")
    try:
        assert (values(spark, table), values(spark, registered)) == (["a"], [])
    finally:
        spark.sql(f"DROP TABLE {registered}")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("CREATE TABLE {new} (id INT)", r"PulsarCatalog\.create"),
        ("CREATE TABLE {new} AS SELECT 1 AS value", r"PulsarCatalog\.create"),
        ("CREATE OR REPLACE TABLE {new} AS SELECT 1 AS value", r"PulsarCatalog\.create"),
        ("DROP TABLE {table}", r"PulsarCatalog\.drop"),
        ("ALTER TABLE {table} ADD COLUMN more INT", "registered schema"),
        ("ALTER TABLE {table} RENAME TO other", "can't be renamed"),
        ("CREATE NAMESPACE pulsar.`public/more`", "pulsar-admin"),
        ("DROP NAMESPACE pulsar.`public/default`", "pulsar-admin"),
        ("SELECT * FROM {table} VERSION AS OF 1", "startingTime"),
        ("SELECT * FROM {table} TIMESTAMP AS OF '2026-11-24'", "startingTime"),
    ],
)
def test_statements_that_change_topics_are_refused_with_the_alternative(
    spark: SparkSession, topic, name: str, statement: str, says: str
):
    table, new = topic(name, "a"), table_of(f"{name}-new")
    with pytest.raises(UnsupportedOperationException, match=says):
        spark.sql(statement.format(table=table, new=new))
    assert values(spark, table) == ["a"]
    assert not spark.catalog.tableExists(new)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT OVERWRITE {table} VALUES (CAST('b' AS BINARY))",
        "TRUNCATE TABLE {table}",
        "DELETE FROM {table}",
        "UPDATE {table} SET value = NULL",
        "DROP TABLE {table} PURGE",
    ],
)
def test_statements_that_delete_messages_are_refused(
    spark: SparkSession, topic, name: str, statement: str
):
    table = topic(name, "a")
    with pytest.raises(PySparkException):
        spark.sql(statement.format(table=table))
    assert values(spark, table) == ["a"]


def test_without_a_commit_log_it_is_read_only(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, topic, name: str
):
    table = topic(name, "a")
    plain = PulsarCatalog(spark, pulsar_standalone.service_url, pulsar_standalone.admin_url)
    plain.mount("plain")
    plainly = table.replace("pulsar", "plain", 1)
    assert values(spark, plainly) == ["a"]
    with pytest.raises(PySparkException, match="commit_log"):
        spark.sql(f"INSERT INTO {plainly} VALUES (CAST('b' AS BINARY))")


def test_no_secret_is_shown(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, topic, name: str
):
    secret = "-".join(("hunter", "2"))
    table = topic(name, "a").replace("pulsar", "secret", 1)
    PulsarCatalog(
        spark,
        pulsar_standalone.service_url,
        pulsar_standalone.admin_url,
        auth=Auth(token=secret),
    ).mount("secret")
    assert values(spark, table) == ["a"]  # this broker has no authentication
    told = [
        spark.sql(f"{what} {table}")
        for what in ("DESCRIBE EXTENDED", "SHOW CREATE TABLE", "SHOW TBLPROPERTIES")
    ]
    texts = [str(frame.collect()) for frame in told]
    texts.append(spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {table}").first().plan)
    with pytest.raises(AnalysisException) as failed:
        spark.sql(f"SELECT nothing FROM {table}")
    texts.append(str(failed.value))
    assert not any(secret in text for text in texts)


def test_an_unreachable_broker_is_one_sentence(spark: SparkSession):
    PulsarCatalog(spark, "pulsar://127.0.0.1:1", "http://127.0.0.1:1").mount("down")
    spark.conf.set("spark.sql.scripting.enabled", "true")  # Spark 4.0
    for statement in (
        "SELECT * FROM down.`public/default`.t",
        "SHOW TABLES IN down.`public/default`",
        "SHOW NAMESPACES IN down",
        "BEGIN SELECT * FROM down.`public/default`.t; END",
    ):
        with pytest.raises(AnalysisException) as failed:
            spark.sql(statement).collect()
        assert "Connection refused" in str(failed.value)
        assert len(str(failed.value).splitlines()) == 1


def test_statements_of_several_threads_run_concurrently(
    spark: SparkSession, catalog: PulsarCatalog, topic, name: str, monkeypatch
):
    tables = [topic(f"{name}-{number}", f"{number}") for number in range(4)]
    all_at_once = threading.Barrier(4, timeout=60)
    kind = catalog._kind

    def kind_when_all_are_there(topic):
        all_at_once.wait()
        return kind(topic)

    monkeypatch.setattr(catalog, "_kind", kind_when_all_are_there)
    catalog.mount("pulsar")
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda table: values(spark, table), tables, timeout=120))
    assert found == [["0"], ["1"], ["2"], ["3"]]


def test_an_answer_may_call_spark(spark: SparkSession, catalog: PulsarCatalog, monkeypatch):
    def by_a_job() -> list[str]:
        return [f"public/n{row.id}" for row in spark.range(2).collect()]

    monkeypatch.setattr(catalog, "namespaces", by_a_job)
    catalog.mount("pulsar")
    found = [row.namespace for row in spark.sql("SHOW NAMESPACES IN pulsar").collect()]
    assert found == ["`public/n0`", "`public/n1`"]


@pytest.mark.parametrize("taken", ["spark_catalog", "system", "two words", "Pulsar", "", "other"])
def test_a_taken_or_invalid_name_is_refused(
    spark: SparkSession, catalog: PulsarCatalog, taken: str
):
    spark.conf.set("spark.sql.catalog.other", "a.jars.Catalog")
    try:
        with pytest.raises(ConfigurationError, match=r"^(Catalog other already exists|catalog )"):
            catalog.mount(taken)
    finally:
        spark.conf.unset("spark.sql.catalog.other")
