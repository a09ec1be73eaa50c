"""Statements that change rows, and odd names: each works or is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eos import PulsarCatalog
from eos.catalog._bound_source import bound_source, source_of
from eos.client import PulsarClient
from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.testing import PulsarStandalone
from eos.transport.auth import AUTH_OPTIONS
from tests.support.judge import drain

CHANGES = {
    "INSERT OVERWRITE {table} VALUES (binary('b'))": "overwrite",
    "INSERT INTO {table} REPLACE WHERE value = binary('a') VALUES (binary('b'))": "(?i)overwrite",
    "TRUNCATE TABLE {table}": "TRUNCATE|truncate",
    "DELETE FROM {table}": "DELETE|delete",
    "DELETE FROM {table} WHERE value = binary('a')": "DELETE|delete",
    "UPDATE {table} SET value = NULL": "UPDATE",
    "MERGE INTO {table} t USING (SELECT binary('a') AS value) s ON t.value = s.value "
    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *": "MERGE",
}
ODD = (
    "Upper", "upper", "a.b", "it's", 'double"quote', "back`tick", "größe", "per%cent",
    "back\\slash", "comma,and,more",
)  # fmt: skip


@pytest.fixture
def catalog(catalog: PulsarCatalog) -> PulsarCatalog:
    catalog.mount("pulsar")
    return catalog


def mounted(topic: str) -> str:
    return "pulsar.`public/default`.`" + topic.replace("`", "``") + "`"


def written(broker: PulsarStandalone, topic: str) -> list[bytes]:
    """Return the values that a plain consumer reads."""
    found = drain(broker.service_url, f"persistent://public/default/{topic}")
    return sorted(seen.value for seen in found)


def test_statements_that_change_rows_are_refused(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, pulsar_standalone, name: str
):
    client.entry_producer(name, create=True).send(b"a").result(timeout=20)
    for table in (catalog.register(name), mounted(name)):
        for statement, says in CHANGES.items():
            with pytest.raises(PySparkException, match=says):
                spark.sql(statement.format(table=table))
    assert written(pulsar_standalone, name) == [b"a"]


def test_an_insert_logs_its_rows_and_warns_without_a_key(
    client: PulsarClient, pulsar_standalone, name: str, tmp_path
):
    client.entry_producer(name, create=True).close()
    urls = (pulsar_standalone.service_url, pulsar_standalone.admin_url)
    command = (sys.executable, "-m", "tests.catalog.insert_job", *urls, str(tmp_path), name)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=170)
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = [line for line in ended.stderr.splitlines() if "sink mine" in line]
    assert len(said) == 3, ended.stderr
    assert said[0].startswith("2 rows are written by sink mine, without a key: a rerun writes them")
    assert said[1] == "2 rows are written by sink mine, epoch one"
    assert "written before (rows: 2): nothing is written now" in said[2]
    assert written(pulsar_standalone, name) == [b"a", b"a", b"b", b"b"]


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("METADATA", "true", r"register\(topic, table='...', metadata=\['__key'\]\)"),
        ("schema", "string", r"register\(topic, table='...', schema='string'\)"),
        ("schema.definition", "{}", r"register\(topic, table='...', schema.definition='{}'\)"),
        ("topic", "another", "Use the table of that topic"),
        ("topics_pattern", "public/default/.*", "Use the table of that topic"),
    ],
)
def test_options_that_define_a_table_are_refused_in_statements(option, value, says):
    source = bound_source("a_table", {"topic": "t", "schema": "auto"}, None, ())
    with pytest.raises(ConfigurationError, match=rf"{option} belongs to the table.*{says}"):
        source({option: value})
    for same in ({"schema": "AUTO"}, {"metadata": "false"}, {"startingTime": "1"}):
        source(same)


@pytest.mark.parametrize(
    "bound",
    [
        {"token": "secret"},
        {"token_file": "/token", "listenerName": "inside", "key.location": "/keys"},
        {"basic_user": "me", "basic_password": "secret", "tls_trust_certs_file": "/ca.pem"},
    ],
)
def test_statements_can_not_choose_where_secrets_are_sent(bound):
    urls = {"serviceUrl": "pulsar+ssl://broker", "adminUrl": "https://broker"}
    reading = {**urls, "topic": "t", **bound}
    source = bound_source("a_table", reading, {**reading, "commitLog": "/log", "sinkId": "s"}, ())
    refused = [*reading, "service_url", "SERVICE.URL", "listenername", "commitlog", *AUTH_OPTIONS]
    for name in refused:
        with pytest.raises(ConfigurationError, match="belongs to the table") as failed:
            source({name: "pulsar://elsewhere"})
        assert "secret" not in f"{failed.value} {failed.value.hint}"
    source({"sinkid": "other", "subscriptionPrefix": "mine"})


def test_statements_may_authenticate_if_their_table_does_not():
    source = bound_source("a_table", {"serviceUrl": "pulsar://broker", "topic": "t"}, None, ())
    for name in (*AUTH_OPTIONS, "keyLocation", "listenerName"):
        source({name: "mine"})
    with pytest.raises(ConfigurationError, match="Set it for all statements"):
        source({"serviceurl": "pulsar://elsewhere"})


@pytest.mark.release
def test_statements_with_options_that_define_a_table_are_refused(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    client.entry_producer(f"persistent://public/default/{name}", create=True).close()
    for table in (mounted(name), catalog.register(name)):
        for statement in (
            f"SELECT * FROM {table} WITH (metadata='true')",
            f"INSERT INTO {table} WITH (topic='another') VALUES (binary('b'))",
            f"SELECT * FROM {table} WITH (serviceUrl='pulsar://elsewhere:6650')",
            f"INSERT INTO {table} WITH (commitLog='/elsewhere') VALUES (binary('b'))",
        ):
            with pytest.raises(PySparkException, match="belongs to the table and can't be changed"):
                spark.sql(statement).collect()
        with pytest.raises(PySparkException, match="adminurl belongs to the table"):
            spark.read.option("adminUrl", "http://elsewhere").table(table).collect()


def test_create_table_as_select_is_refused_where_it_can_not_work(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    client.entry_producer(name, create=True).send(b"a").result(timeout=20)
    table = catalog.register(name)
    with pytest.raises(PySparkException, match=r"PulsarCatalog\.register.*INSERT INTO"):
        spark.sql(f"CREATE TABLE default.t USING pulsar AS SELECT * FROM {table}")
    assert not spark.catalog.tableExists("default.t")
    spark.sql(f"CREATE TABLE default.t USING parquet AS SELECT * FROM {table}")
    assert spark.table("default.t").count() == 1


def test_a_registered_table_is_listed_with_its_sink(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, name: str
):
    odd = f"{name}-it's\\"
    client.entry_producer(odd, create=True).send(b"a").result(timeout=20)
    for given in ("Mine", "Public_Default.Mine"):
        returned = catalog.register(odd, table=given)
        database, _, table = returned.partition(".")
        listed = spark.sql(f"SHOW TABLES IN {database}").collect()
        assert table in [row.tableName for row in listed]
        (told,) = spark.sql(f"SHOW TABLE EXTENDED IN {database} LIKE '{table}'").collect()
        sink = source_of(TopicName.parse(odd))
        said = f"topic persistent://public/default/{odd}; INSERT writes as sink {sink}"
        assert said in told.information


def test_topics_with_odd_names_work_or_are_refused(
    spark: SparkSession, catalog: PulsarCatalog, client: PulsarClient, pulsar_standalone, name: str
):
    refused = {}
    for number, odd in enumerate(ODD):
        topic = f"{name}-{odd}"
        try:
            client.entry_producer(topic, create=True).close()
            spark.sql(f"INSERT INTO {mounted(topic)} SELECT binary('a') AS value")
            if number in (0, 4):
                table = catalog.register(topic, table=f"t_{number}")
                spark.sql(f"INSERT INTO {table} SELECT binary('a') AS value")
            assert set(written(pulsar_standalone, topic)) == {b"a"}
        except Exception as error:
            refused[odd] = f"{type(error).__name__}: {str(error)[-300:]}"
    assert refused == {}
