"""Topics as tables: SQL that reads, inserts and joins; topics created, described and dropped."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from eos import PulsarCatalog
from eos.client import PulsarClient
from eos.errors import ConfigurationError, InputError, NotAllowed, TopicNotFound
from eos.schemas import PRIMITIVE_NAMES, SCHEMA_NAMES, AvroSchema
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.support.admin import call
from tests.support.spark_releases import needs_geospatial


@pytest.fixture
def plain(client: PulsarClient, name: str) -> str:
    """A topic with five values."""
    with client.producer(name, create=True) as producer:
        for number in range(5):
            producer.send(str(number).encode())
    return name


def values(spark: SparkSession, table: str) -> list[str]:
    rows = spark.sql(f"SELECT CAST(value AS STRING) AS v FROM {table}").collect()
    return sorted(row.v for row in rows)


def test_a_registered_topic_is_read_and_written(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    assert table == f"public_default.{plain.replace('-', '_')}"
    assert values(spark, table) == list("01234")
    for _ in range(2):  # the second one is a rerun, which is skipped
        spark.sql(f"INSERT INTO {table} WITH (epoch='one') VALUES (CAST('a' AS BINARY))")
    assert values(spark, table) == [*"01234", "a"]
    spark.sql(f"INSERT INTO {table} VALUES (CAST('b' AS BINARY))")
    joined = spark.sql(
        f"SELECT count(*) AS n FROM {table} t JOIN VALUES ('a'), ('b') AS w(v) "
        "ON CAST(t.value AS STRING) = w.v"
    )
    assert joined.first().n == 2


def test_a_session_whose_own_catalog_is_replaced_is_refused(
    spark: SparkSession, catalog: PulsarCatalog, name: str
):
    spark.conf.set("spark.sql.catalog.spark_catalog", "org.example.OtherCatalog")
    try:
        with pytest.raises(ConfigurationError, match=r"catalog\.mount\(\)"):
            catalog.register(name)
    finally:
        spark.conf.unset("spark.sql.catalog.spark_catalog")


def test_streams_read_and_write_the_table(
    spark: SparkSession, catalog: PulsarCatalog, plain: str, tmp_path: Path
):
    table = catalog.register(plain, startingOffsets="earliest")
    frame = spark.readStream.table(table).where("length(value) = 1")
    query = (
        frame.selectExpr("CAST(concat('again-', CAST(value AS STRING)) AS BINARY) AS value")
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination(60)
    assert values(spark, table) == [*"01234", *(f"again-{n}" for n in range(5))]


def test_rows_with_a_schema_are_columns(spark: SparkSession, catalog: PulsarCatalog, name: str):
    catalog.create(name, partitions=2, schema="avro", columns="id BIGINT, word STRING")
    table = catalog.register(name, metadata=["__key", "__keyIsBinary"])
    names = [field.name for field in spark.table(table).schema]
    assert names == ["id", "word", "__key", "__keyIsBinary"]
    spark.sql(f"INSERT INTO {table} VALUES (1, 'one', X'6B', false), (2, 'two', NULL, NULL)")
    rows = spark.sql(f"SELECT id, word, CAST(__key AS STRING) AS k FROM {table}").collect()
    assert sorted((row.id, row.word, row.k) for row in rows) == [(1, "one", "k"), (2, "two", None)]


COLUMNS = {"key_value": "key BIGINT, value STRUCT<word: STRING>"}


@pytest.mark.parametrize("schema", SCHEMA_NAMES)
def test_a_topic_is_created_with_each_schema(catalog: PulsarCatalog, name: str, schema: str):
    columns = COLUMNS.get(schema, "id BIGINT, word STRING")
    catalog.create(name, schema=schema, columns=None if schema in PRIMITIVE_NAMES else columns)
    assert catalog.describe(name).schema_type == schema


@pytest.mark.parametrize(
    ("schema", "columns", "says"),
    [
        ("key_value", "key INT", "takes the columns key and value, not key"),
        ("key_value", "key INT, value INT, id INT", "takes the columns key and value, not key, "),
        ("avro", "id BIGNT", "not those of a row: .*BIGNT.* Set a StructType"),
        ("avro", "BIGINT", "not those of a row: LongType"),
        ("avro", "v VARIANT", "Column 'v' is variant.*another type, for example STRING"),
        pytest.param(
            *("json", "s STRUCT<g: ARRAY<GEOMETRY(4326)>>", r"Column 's.g\[\]' is geometry"),
            marks=needs_geospatial,
        ),
        ("protobuf", "c CHAR(3)", r"Column 'c' is char\(3\)"),
        ("avro", "i INTERVAL YEAR TO MONTH", "Column 'i' is interval year"),
    ],
)
def test_columns_that_no_schema_has_are_refused_before_the_topic_is_created(
    catalog: PulsarCatalog, name: str, schema: str, columns: str, says: str
):
    with pytest.raises((ConfigurationError, InputError), match=says):
        catalog.create(name, schema=schema, columns=columns)
    assert f"persistent://public/default/{name}" not in catalog.topics("public/default")


def test_a_negative_number_of_partitions_is_refused(catalog: PulsarCatalog, name: str):
    with pytest.raises(ConfigurationError, match="partitions=-1"):
        catalog.create(name, partitions=-1)


@pytest.mark.parametrize("topic", ["public/nowhere/orders", "nobody/nowhere/orders"])
def test_a_missing_tenant_or_namespace_is_not_created_with_a_topic(
    catalog: PulsarCatalog, topic: str
):
    tenant, namespace, _ = topic.split("/")
    asked = [lambda: catalog.create(topic), lambda: catalog.topics(f"{tenant}/{namespace}")]
    if tenant == "nobody":
        asked.append(lambda: catalog.namespaces(tenant))
    for ask in asked:
        with pytest.raises(TopicNotFound, match="namespaces create"):
            ask()


def test_malformed_messages_are_shown_or_left_out(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    catalog.create(name, schema="json", columns="id INT")
    (producer,) = client.entry_producers([name], schema=client.schema(name))
    for value in (b"{}", b"[]"):
        producer.send(value).result(timeout=20)
    producer.close()
    table = catalog.register(name)
    assert spark.sql(f"SELECT * FROM {table} WITH (mode='dropmalformed')").collect() == [(None,)]
    with pytest.raises(PySparkException, match="needs a column that shows malformed messages"):
        spark.sql(f"SELECT * FROM {table} WITH (mode='permissive')").collect()
    catalog.register(name, mode="permissive", metadata=["__malformedReason"])
    read, malformed = spark.sql(f"SELECT id, __malformedReason AS why FROM {table}").collect()
    assert (read, malformed.id) == ((None, None), None)
    assert malformed.why


def test_keys_are_inserted_with_plain_values(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain, metadata=["__key", "__keyIsBinary"])
    spark.sql(f"INSERT INTO {table} VALUES (CAST('v' AS BINARY), X'6B', true)")
    rows = spark.sql(
        f"SELECT CAST(value AS STRING) AS v FROM {table} WHERE __key = X'6B'"
    ).collect()
    assert [row.v for row in rows] == ["v"]


def test_create_table_as_select_writes_into_the_topic(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    source = catalog._provider(table)
    spark.sql(f"CREATE TABLE default.another USING {source} AS SELECT value FROM {table}")
    assert values(spark, "default.another") == sorted([*"01234"] * 2)


def test_namespaces_topics_and_descriptions(
    catalog: PulsarCatalog, client: PulsarClient, name: str
):
    catalog.create(name, partitions=3, schema="json", columns="id INT")
    client.subscribe_durably(f"persistent://public/default/{name}-partition-0", "watchers")
    assert "public/default" in catalog.namespaces("public")
    assert f"persistent://public/default/{name}" in catalog.topics("public/default")
    told = catalog.describe(name)
    assert (told.partitions, told.schema_type) == (3, "json")
    assert '"id"' in told.schema_text
    assert [one.name for one in told.stats.subscriptions] == ["watchers"]
    assert told.stats.storage_bytes >= 0
    assert told.retention.minutes == 0


def test_an_unused_topic_is_dropped_after_confirmation(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, plain: str
):
    full = f"persistent://public/default/{plain}"
    table = catalog.register(plain)
    with pytest.raises(ConfigurationError, match="for all users"):
        catalog.drop(plain, confirm=plain)
    with client.producer(plain), pytest.raises(NotAllowed, match="in use: 1 producer"):
        catalog.drop(plain, confirm=full)
    catalog.drop(plain, confirm=full)
    assert full not in catalog.topics("public/default")
    assert not spark.catalog.tableExists(table)
    with pytest.raises(TopicNotFound):
        catalog.register(plain)


def test_topics_named_like_numbers_are_tables_in_backquotes(
    spark: SparkSession,
    catalog: PulsarCatalog,
    pulsar_standalone: PulsarStandalone,
    name: str,
    monkeypatch,
):
    call(pulsar_standalone.admin_url, "PUT", f"/v2/namespaces/public/{name}")
    topics = [f"persistent://public/{name}/{local}" for local in ("2024", "1e5")]
    for topic in topics:
        catalog.create(topic)
    database, _, read = catalog.register(topics[0]).partition(".")
    spark.sql(f"INSERT INTO {database}.`{read}` SELECT binary('a') AS value")
    assert (read, values(spark, f"{database}.`{read}`")) == ("2024", ["a"])
    assert catalog.register(topics[1]) == f"{database}.1e5"
    with monkeypatch.context() as patch:
        patch.setattr(catalog, "_provider", lambda table: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            catalog.drop(topics[1], confirm=topics[1])  # looks first
    catalog.drop(topics[1], confirm=topics[1])
    assert catalog.topics(f"public/{name}") == topics[:1]
    assert not spark.catalog.tableExists(f"{database}.`1e5`")


def test_another_table_of_the_name_is_not_replaced(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = f"public_default.{plain.replace('-', '_')}"
    spark.sql("CREATE DATABASE IF NOT EXISTS public_default")
    spark.sql(f"CREATE TABLE {table} USING parquet AS SELECT 1 AS mine")
    with pytest.raises(ConfigurationError, match="belongs to something else"):
        catalog.register(plain)
    assert spark.table(table).first().mine == 1
    assert catalog.register(plain, table="default.mine") == "default.mine"
    with pytest.raises(ConfigurationError, match="letters, digits"):
        catalog.register(plain, table="default.mine USING parquet --")
    catalog.drop(plain, confirm=f"persistent://public/default/{plain}")
    assert spark.table(table).first().mine == 1


def test_two_topics_of_one_name_in_spark_are_refused(
    catalog: PulsarCatalog, client: PulsarClient, name: str
):
    for topic in (f"{name}-x", f"{name}_x"):
        client.create_unpartitioned(topic)
    catalog.register(f"{name}-x")
    catalog.register(f"{name}-x")  # the same again is fine
    with pytest.raises(ConfigurationError, match="another name"):
        catalog.register(f"{name}_x")


def test_a_second_table_of_a_topic_leaves_the_first_as_it_is(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    insert = f"INSERT INTO {table} WITH (epoch='one') VALUES (binary('a'))"
    spark.sql(insert)
    keyed = catalog.register(plain, table="keyed", metadata=["__key"], sink_id="another")
    latest = catalog.register(plain, table="latest", startingOffsets="latest")
    spark.sql(insert)  # a rerun
    assert (values(spark, table), values(spark, latest)) == ([*"01234", "a"], [])
    assert spark.table(keyed).columns == ["value", "__key"]


def test_a_table_of_another_cluster_is_not_replaced(
    catalog: PulsarCatalog, pulsar_standalone: PulsarStandalone, spark: SparkSession, plain: str
):
    other = pulsar_standalone.service_url.replace("127.0.0.1", "localhost")
    elsewhere = PulsarCatalog(spark, other, pulsar_standalone.admin_url)
    table = catalog.register(plain)
    with pytest.raises(ConfigurationError, match="something else than this topic of pulsar://loc"):
        elsewhere.register(plain)
    elsewhere.register(plain, table="elsewhere")  # without a commit log
    spark.sql(f"INSERT INTO {table} VALUES (binary('a'))")
    spark.sql(f"DROP TABLE {table}")
    assert elsewhere.register(plain) == table


def test_options_of_create_table_are_refused_with_the_alternative(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    source = catalog._provider(table)
    with pytest.raises(AnalysisException, match=r"PulsarCatalog\.register"):
        spark.sql(f"CREATE TABLE default.t USING {source} OPTIONS (metadata='true')")
    with pytest.raises(AnalysisException, match="PulsarCatalog"):
        spark.sql(f"CREATE TABLE default.t USING pulsar OPTIONS (topic='{plain}')")


def test_without_a_commit_log_a_table_is_read_only(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, plain: str
):
    catalog = PulsarCatalog(spark, pulsar_standalone.service_url, pulsar_standalone.admin_url)
    table = catalog.register(plain)
    assert len(values(spark, table)) == 5
    with pytest.raises(PySparkException, match="commit_log"):
        spark.sql(f"INSERT INTO {table} VALUES (CAST('a' AS BINARY))")


def test_statements_that_replace_messages_are_refused_or_harmless(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    with pytest.raises(PySparkException, match="overwrite"):
        spark.sql(f"INSERT OVERWRITE {table} VALUES (CAST('a' AS BINARY))")
    with pytest.raises(PySparkException):
        spark.sql(f"TRUNCATE TABLE {table}")
    spark.sql(f"DROP TABLE {table}")
    assert values(spark, catalog.register(plain)) == list("01234")


def test_no_secret_is_kept_with_the_table(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, plain: str
):
    secret = "-".join(("hunter", "2"))
    catalog = PulsarCatalog(
        spark,
        pulsar_standalone.service_url,
        pulsar_standalone.admin_url,
        auth=Auth(token=secret),
    )
    table = catalog.register(plain)
    assert len(values(spark, table)) == 5  # this broker has no authentication
    told = [spark.sql(f"SHOW TABLE EXTENDED IN public_default LIKE '{table.split('.')[1]}'")]
    told += [spark.sql(f"{what} {table}") for what in ("DESCRIBE EXTENDED", "SHOW CREATE TABLE")]
    texts = [str(frame.collect()) for frame in told]
    texts.append(spark.sql(f"EXPLAIN EXTENDED SELECT * FROM {table}").first().plan)
    assert not any(secret in text for text in texts)
    assert secret not in repr(vars(catalog))


def test_a_token_function_is_no_option_of_a_table(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, plain: str
):
    catalog = PulsarCatalog(
        spark,
        pulsar_standalone.service_url,
        pulsar_standalone.admin_url,
        auth=Auth(token=lambda: "secret"),
    )
    with pytest.raises(ConfigurationError, match="Set token_file"):
        catalog.register(plain)


def test_a_schema_without_its_columns_is_refused(catalog: PulsarCatalog, name: str):
    with pytest.raises(ConfigurationError, match="columns="):
        catalog.create(name, schema="avro")
    with pytest.raises(ConfigurationError, match="takes no columns"):
        catalog.create(name, schema="string", columns="id INT")
    catalog.create(name, schema="string")
    assert catalog.describe(name).schema_type == "string"
    with pytest.raises(ConfigurationError, match="already exists"):
        catalog.create(name)


def test_statements_may_set_starting_offsets(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain)
    begun = time.time_ns() // 1_000_000 + 3_600_000
    query = f"SELECT count(*) AS n FROM {table} WITH (startingTime='{begun}')"
    assert spark.sql(query).first().n == 0


def test_options_of_a_statement_override_the_tables(
    spark: SparkSession, catalog: PulsarCatalog, plain: str
):
    table = catalog.register(plain, startingOffsets="latest", sink_id="one")
    assert values(spark, table) == []
    assert values(spark, f"{table} WITH (startingOffsets='earliest')") == list("01234")
    for sink_id in ("one", "two"):  # an epoch of another sink is another epoch
        given = f"WITH (sinkId='{sink_id}', epoch='e')"
        spark.sql(f"INSERT INTO {table} {given} VALUES (CAST('{sink_id}' AS BINARY))")
    found = values(spark, f"{table} WITH (startingOffsets='earliest')")
    assert found == [*"01234", "one", "two"]


def test_timestamps_can_be_columns_of_a_new_topic(catalog: PulsarCatalog, name: str):
    for schema in ("avro", "json"):
        catalog.create(
            f"{name}-{schema}", schema=schema, columns="at TIMESTAMP, local TIMESTAMP_NTZ"
        )
        assert '"at"' in catalog.describe(f"{name}-{schema}").schema_text


def test_register_all_skips_topics_that_can_not_be_tables(
    catalog: PulsarCatalog,
    client: PulsarClient,
    pulsar_standalone: PulsarStandalone,
    name: str,
    caplog,
    monkeypatch,
):
    call(pulsar_standalone.admin_url, "PUT", f"/v2/namespaces/public/{name}")
    fields = [{"name": "next", "type": ["null", "Node"], "default": None}]
    recursive = json.dumps({"type": "record", "name": "Node", "fields": fields})
    catalog.create(f"public/{name}/nodes", schema=AvroSchema(recursive))
    for one in ("plain", "plain-x", "plain_x"):
        catalog.create(f"public/{name}/{one}")
    listed = [*catalog.topics(f"public/{name}"), f"public/{name}/gone"]
    monkeypatch.setattr(catalog, "topics", lambda _: sorted(listed))
    tables = catalog.register_all(f"public/{name}")
    assert [table.rpartition(".")[2] for table in tables] == ["plain", "plain_x"]
    assert f"persistent://public/{name}/nodes has no table: " in caplog.text
    assert f"persistent://public/{name}/plain_x has no table: Table " in caplog.text
    assert f"public/{name}/gone has no table: Topic " in caplog.text


def test_an_unknown_metadata_column_is_refused(catalog: PulsarCatalog, plain: str):
    with pytest.raises(AnalysisException, match="unknown column key; choose from __key"):
        catalog.register(plain, metadata=["key"])


@pytest.mark.chaos
def test_a_topics_name_is_quoted_in_sql(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    odd = f"{name}'\"`\\;--ü*${{spark.app.name}}${{env:PATH}}"
    with client.producer(odd, create=True) as producer:
        producer.send(b"0")
    table = catalog.register(odd, table=f"default.{name.replace('-', '_')}")
    spark.sql(f"INSERT INTO {table} SELECT CAST('1' AS BINARY) AS value")
    assert values(spark, table) == ["0", "1"]
    (told,) = spark.sql(f"SHOW TABLE EXTENDED IN default LIKE '{table.split('.')[1]}'").collect()
    assert f"Comment: topic persistent://public/default/{odd}; " in told.information
