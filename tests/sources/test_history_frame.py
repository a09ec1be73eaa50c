"""``eos.history``: an archive and the rest of its topics, by Spark with Delta's own reader.

Judged by the topic as ``format("pulsar")`` reads it alone, and by ``pulsar-client``.
"""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from deltalake import DeltaTable, write_deltalake
from pulsar.schema import AvroSchema

import eos
from eos.errors import ConfigurationError
from eos.sources.archive import Archive
from tests.delta.conftest import ask
from tests.support.judge import drain, quiet_client

__all__ = ["ask"]


def order(*more):
    fields = [{"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"]}, *more]
    return AvroSchema(None, schema_definition={"type": "record", "name": "O", "fields": fields})


@pytest.fixture
def send(pulsar_standalone, name):
    """Sends orders by ``pulsar-client``: the schema, and their fields."""

    def send(schema, *rows):
        with closing(quiet_client(pulsar_standalone.service_url)) as plain:
            producer = plain.create_producer(name, schema=schema, batching_enabled=False)
            for row in rows:
                producer.send(row)
            producer.close()

    return send


@pytest.fixture
def archived(pulsar_standalone, name, tmp_path):
    """Archives the topic as far as it goes, a commit for each entry."""

    def archived():
        options = {"serviceUrl": pulsar_standalone.service_url, "topic": name, "schema": "auto"}
        with Archive(options, str(tmp_path / "past"), part_bytes=1) as one:
            one.limit()
            while one.add():
                pass

    return archived


@pytest.fixture
def view(ask, pulsar_standalone, name, tmp_path):
    """Makes the view ``both``; returns its columns, or the error."""

    def view(**more):
        given = {
            "table": str(tmp_path / "past"),
            "serviceUrl": pulsar_standalone.service_url,
            "topic": name,
        }
        return ask("view: " + json.dumps(given | more))[0]

    return view


def ids(ask):
    return [row[0] for row in ask("SELECT id FROM both ORDER BY id")[0]]


def test_rows_of_table_and_topic_come_once(
    send, archived, view, ask, name, pulsar_standalone, load
):
    send(order(), *({"id": n, "word": None} for n in range(4)))
    archived()
    extra = {"name": "more", "type": ["null", "long"], "default": None}
    send(order(extra), *({"id": n, "word": "w", "more": n} for n in range(4, 7)))
    columns = view()
    plain = load(metadata=True, schema="auto")
    assert columns == plain.columns
    # Each column, of both parts.
    names = ", ".join(f"CAST(`{c}` AS STRING)" for c in columns)
    found = ask(f"SELECT {names} FROM both ORDER BY id")[0]
    plain.createOrReplaceTempView("plain")
    spark = plain.sparkSession
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        wanted = [
            list(row) for row in spark.sql(f"SELECT {names} FROM plain ORDER BY id").collect()
        ]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == wanted
    assert len(found) == len(drain(pulsar_standalone.service_url, name)) == 7


def test_spark_itself_filters_the_table(send, archived, view, ask, tmp_path):
    send(order(), *({"id": n, "word": None} for n in range(5)))
    archived()
    assert view(columns="id BIGINT, __publishTime TIMESTAMP") == ["id", "__publishTime"]
    assert len(DeltaTable(tmp_path / "past").file_uris()) == 5
    assert ask("files: SELECT * FROM both WHERE id = 3") == [1]
    assert ask("SELECT id FROM both WHERE id >= 3 ORDER BY id") == [[[3], [4]]]


def test_the_catalog_makes_a_view_of_both(send, archived, view, ask, pulsar_standalone):
    send(order(), {"id": 0, "word": None})
    archived()
    send(order(), {"id": 1, "word": None})
    assert view(adminUrl=pulsar_standalone.admin_url)[:2] == ["id", "word"]
    assert ask("SELECT id FROM both WHERE __publishTime > '2020-01-01' ORDER BY id") == [[[0], [1]]]


def test_a_version_stays_and_what_was_archived_later_comes_from_the_topic(
    send, archived, view, ask, tmp_path
):
    send(order(), {"id": 0, "word": None})
    archived()
    version = DeltaTable(tmp_path / "past").version()
    view()
    send(order(), {"id": 1, "word": None})
    archived()
    assert ids(ask) == [0, 1]
    view(version=version)
    assert ids(ask) == [0, 1]


def test_rows_that_a_restore_took_are_read_and_archived_again(send, archived, view, ask, tmp_path):
    for number in range(4):
        send(order(), {"id": number, "word": None})
        archived()
    table = DeltaTable(tmp_path / "past")
    last = table.version()
    table.restore(last - 2)
    view()
    assert ids(ask) == [0, 1, 2, 3]
    assert ask("SELECT count(*) FROM delta.`%s`" % (tmp_path / "past")) == [[[2]]]
    archived()
    assert ask("SELECT count(*), count(DISTINCT id) FROM delta.`%s`" % (tmp_path / "past")) == [
        [[4, 4]]
    ]
    # By Spark, and back to the newest rows of before.
    path = tmp_path / "past"
    ask(
        f"RESTORE TABLE delta.`{path}` TO VERSION AS OF 2",
        f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {last}",
    )
    archived()
    view()
    assert ids(ask) == [0, 1, 2, 3]


def test_the_schema_has_to_be_that_of_the_archive(send, archived, view, ask, topic_admin):
    send(order(), {"id": 0, "word": None})
    topic_admin("PUT", "/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    archived()
    kind, text = view(schema="bytes")
    assert (kind, "has values as id, word" in text) == ("IncompatibleSchema", True)
    # A field is found however its name is written.
    fields = [{"name": "id", "type": "long"}, {"name": "Word", "type": ["null", "string"]}]
    other = AvroSchema(None, schema_definition={"type": "record", "name": "O", "fields": fields})
    send(other, {"id": 1, "Word": "w"})
    view()
    assert ask("SELECT id, word FROM both ORDER BY id") == [[[0, None], [1, "w"]]]


def test_deletions_by_spark_stay(send, archived, view, ask, tmp_path):
    send(order(), *({"id": n, "word": None} for n in range(3)))
    archived()
    path = f"delta.`{tmp_path / 'past'}`"
    ask(
        f"ALTER TABLE {path} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)",
        f"OPTIMIZE {path}",
        f"DELETE FROM {path} WHERE id = 1",
    )
    send(order(), {"id": 3, "word": None})
    view()
    assert ids(ask) == [0, 2, 3]


def test_what_cannot_be_one_is_named(send, archived, view, tmp_path, name):
    send(order(), {"id": 0, "word": None})
    assert view()[0] == "ConfigurationError"
    archived()
    for more, what in (
        ({"startingOffsets": "latest"}, "leave out starting"),
        ({"topic": None, "topicsPattern": "x.*"}, "topicsPattern"),
        ({"version": 99}, "version 99"),
        ({"history": "/elsewhere"}, "no option history"),
        ({"columns": "id BIGINT, ID BIGINT"}, "a name twice"),
        ({"columns": "nothing INT"}, "does not exist"),
    ):
        given = {key: one for key, one in more.items() if one is not None}
        found = view(**given)
        assert (found[0], what in found[1]) == ("ConfigurationError", True), found
    write_deltalake(tmp_path / "other", DeltaTable(tmp_path / "past").to_pyarrow_table())
    kind, text = view(table=str(tmp_path / "other"))
    assert (kind, "is not an archive" in text) == ("ConfigurationError", True)


def test_a_session_without_delta_says_so(spark, send, archived, pulsar_standalone, name, tmp_path):
    send(order(), {"id": 1, "word": "a"})
    archived()
    with pytest.raises(ConfigurationError, match="can't read Delta tables"):
        eos.history(
            spark,
            str(tmp_path / "past"),
            topic=name,
            serviceUrl=pulsar_standalone.service_url,
            schema="auto",
        )
