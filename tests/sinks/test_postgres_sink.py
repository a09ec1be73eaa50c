"""PostgresSink through real Spark: each epoch is one transaction, or none, for plain readers."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import random
import struct
import threading
from contextlib import ExitStack, suppress

import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import types

from eos import DeltaSink, PostgresSink, all_or_nothing, failpoints
from eos.committer import OpenAttempt
from eos.errors import (
    ConfigurationError,
    ConnectionLost,
    InDoubt,
    InputError,
    NewCluster,
    NewLineage,
    Retriable,
)
from eos.postgres.part import PostgresPart
from eos.postgres.participant import PostgresParticipant
from eos.recovery.resolve import resolve
from eos.steps import EndingStep, Step
from eos.testing import PostgresServer
from tests.support.postgres import Shop, log_in
from tests.support.spark_releases import JobFailed
from tests.transport.scripted import wait_until

pytestmark = pytest.mark.broker


class Died(BaseException):
    """The process is gone."""


@pytest.fixture(autouse=True)
def _login(monkeypatch, postgres_server):
    log_in(monkeypatch, postgres_server)


@pytest.fixture
def make_sink(tmp_path, shop, name):
    sinks = []

    def make(**options) -> PostgresSink:
        defaults = {
            "sink_id": name,
            "conninfo": shop.conninfo,
            "table": f"{shop.schema}.orders",
            "commit_log": str(tmp_path / "log"),
        }
        sinks.append(PostgresSink(**defaults | options))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def dies_behind(place, sink, write) -> None:
    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)
        with failpoints.armed(place, die), pytest.raises(Died):
            write(sink)
    sink.close()  # as the kernel closes its connections


def test_an_epoch_is_written_once_and_a_rerun_of_the_key_is_skipped(spark, make_sink, shop):
    df = spark.range(1000, numPartitions=4).selectExpr("id", "cast(id AS string) AS text")
    result = make_sink().write(df, epoch="a")
    assert (result.status, result.records) == ("written", 1000)
    assert make_sink().write(df, epoch="a").status == "skipped"
    assert shop.execute("SELECT count(*), sum(id), max(text) FROM orders") == [
        (1000, 499500, "999")
    ]
    assert shop.staging_tables() == []


def test_a_stream_killed_at_each_step_has_each_row_once(spark, make_sink, shop, tmp_path):
    written = 0
    for number, step in enumerate((Step.OPEN, Step.WRITE, Step.PREPARE, EndingStep.PART)):
        df = spark.range(10 * number, 10 * number + 10)
        dies_behind(step, make_sink(), lambda sink, df=df, n=number: sink.write(df, epoch=n))
        make_sink().write(df, epoch=number)
        written += 10
        assert shop.execute("SELECT count(*), count(DISTINCT id) FROM orders") == [
            (written, written)
        ]
    assert shop.staging_tables() == []


def test_recovery_finishes_without_spark(spark, make_sink, shop, tmp_path, name):
    dies_behind(Step.PREPARE, make_sink(), lambda sink: sink.write(spark.range(5), epoch="a"))
    resolve(name, commit_log=tmp_path / "log")
    assert shop.execute("SELECT count(*) FROM orders") == [(5,)]


def test_table_and_database_hold_the_epoch_or_neither_does(spark, make_sink, shop, tmp_path, name):
    def both():
        table = DeltaSink(
            sink_id=name, table=str(tmp_path / "table"), commit_log=str(tmp_path / "log")
        )
        return all_or_nothing(table, make_sink())

    dies_behind(EndingStep.PART, both(), lambda sink: sink.write(spark.range(7), epoch="a"))
    resolve(name, commit_log=tmp_path / "log")
    assert shop.execute("SELECT count(*) FROM orders") == [(7,)]
    assert DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows == 7


def test_values_of_all_types_are_those_that_psycopg_reads(spark, make_sink, shop):
    moment = dt.datetime(2026, 10, 25, 0, 30, 0, 123456, dt.UTC)
    df = spark.sql(
        """
        SELECT 1 AS n, cast(1 AS tinyint) AS tiny, cast(-2 AS smallint) AS small, 3L AS big,
          cast(0.1 AS float) AS real, 1e300D AS double, cast('NaN' AS double) AS nan,
          cast(12.50 AS decimal(10,2)) AS price, true AS yes, 'a\\tb\\\\n"{}\\n\\\\.\\nz' AS text,
          X'00ff5c' AS bytes, DATE '0001-02-03' AS day,
          TIMESTAMP '2026-10-25 00:30:00.123456Z' AS moment,
          TIMESTAMP_NTZ '2026-10-25 02:30:00' AS wall, array('a,b', NULL, 'c"\\\\', '') AS words,
          array(1.5D, NULL) AS numbers, array(X'5c22') AS blobs,
          array(TIMESTAMP '2026-10-25 00:30:00Z') AS moments,
          named_struct('a', 1, 'b', cast(NULL AS int)) AS object, map('k', array(1, 2)) AS map
        UNION ALL SELECT 2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '', X'', NULL, NULL,
          NULL, array(), array(), NULL, NULL, NULL, map()
        """
    )
    make_sink().write(df, epoch="a")
    first, second = shop.execute("SELECT * FROM orders ORDER BY n")
    assert first[:6] == (1, 1, -2, 3, pytest.approx(0.1), 1e300)
    assert math.isnan(first[6])
    assert first[7:9] == (decimal.Decimal("12.50"), True)
    assert first[9] == 'a\tb\\n"{}\n\\.\nz'
    assert first[10:14] == (
        b"\x00\xff\\", dt.date(1, 2, 3), moment, dt.datetime(2026, 10, 25, 2, 30)
    )  # fmt: skip
    assert first[14:18] == (
        ["a,b", None, 'c"\\', ""], [1.5, None], [b'\\"'], [moment.replace(microsecond=0)]
    )  # fmt: skip
    assert first[18:] == ({"a": 1, "b": None}, {"k": [1, 2]})
    assert second[9:] == ("", b"", None, None, None, [], [], None, None, None, {})
    types = shop.execute(
        "SELECT string_agg(data_type, ' ' ORDER BY ordinal_position) FROM "
        f"information_schema.columns WHERE table_schema = '{shop.schema}' AND table_name = 'orders'"
    )
    assert json.dumps(types).count("jsonb") == 2


def test_elements_of_arrays_are_those_that_single_values_are(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (one float8, f float8[], ff float8[], s jsonb[], m json[])")
    df = spark.sql(
        """
        SELECT 0.1F AS one, array(0.1F, NULL, cast('-Infinity' AS float)) AS f,
          array(array(0.1F), array(1.5F)) AS ff,
          array(named_struct('a', 1, 'b', 'x "y\\\\z'), NULL) AS s, array(map('k', 0.5D)) AS m
        """
    )
    make_sink().write(df, epoch=1)
    (found,) = shop.execute("SELECT * FROM orders")
    as_double = struct.unpack("f", struct.pack("f", 0.1))[0]
    assert found == (
        as_double, [as_double, None, -math.inf], [[as_double], [1.5]],
        [{"a": 1, "b": 'x "y\\z'}, None], [{"k": 0.5}],
    )  # fmt: skip


def test_upserts_keep_the_last_change_of_each_key(spark, make_sink, shop):
    def sink():
        return make_sink(merge_on=["id"], latest_by=["at", "place"], delete_when="op = 'd'")

    changes = "id int, name string, op string, at long, place int"
    rows = [(1, "a", "c", 1, 0), (1, "b", "u", 2, 0), (2, "c", "c", 1, 0), (3, "d", "c", 1, 0)]
    sink().write(spark.createDataFrame(rows, changes).repartition(3), epoch=1)
    assert shop.execute("SELECT * FROM orders ORDER BY id") == [
        (1, "b", 2, 0), (2, "c", 1, 0), (3, "d", 1, 0)
    ]  # fmt: skip
    rows = [(1, None, "d", 5, 1), (1, "z", "u", 5, 0), (2, None, "d", 3, 0), (2, "new", "c", 4, 0)]
    sink().write(spark.createDataFrame(rows, changes).repartition(3), epoch=2)
    assert shop.execute("SELECT id, name FROM orders ORDER BY id") == [(2, "new"), (3, "d")]


def test_a_unique_value_may_move_to_another_key_within_an_epoch(spark, make_sink, shop):
    """As Debezium writes a changed primary key: a delete, and an insert."""
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, email text UNIQUE)")
    shop.execute("INSERT INTO orders VALUES (1, 'a@x')")
    df = spark.createDataFrame([(1, None, "d"), (2, "a@x", "c")], "id int, email string, op string")
    make_sink(merge_on=["id"], delete_when="op = 'd'").write(df, epoch=1)
    assert shop.execute("SELECT * FROM orders") == [(2, "a@x")]


def test_unique_values_that_change_places_need_a_deferrable_constraint(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, email text UNIQUE)")
    shop.execute("INSERT INTO orders VALUES (1, 'a@x'), (2, 'b@x')")
    df = spark.createDataFrame([(1, "b@x"), (2, "a@x")], "id int, email string")
    with pytest.raises(InputError, match="DEFERRABLE INITIALLY DEFERRED"):
        make_sink(merge_on=["id"]).write(df, epoch=1)
    shop.execute(
        "ALTER TABLE orders DROP CONSTRAINT orders_email_key, "
        "ADD UNIQUE (email) DEFERRABLE INITIALLY DEFERRED"
    )
    make_sink(merge_on=["id"]).write(df, epoch=1)
    assert shop.execute("SELECT * FROM orders ORDER BY id") == [(1, "b@x"), (2, "a@x")]


def test_keys_without_an_order_are_refused(spark, make_sink, shop):
    df = spark.createDataFrame([(1, "a"), (1, "b"), (2, "c"), (2, "c")], "id int, name string")
    with pytest.raises(InputError, match=r"Keys \(id\) have several rows .* latest_by"):
        make_sink(merge_on=["id"]).write(df, epoch=1)
    assert shop.execute("SELECT count(*) FROM orders") == [(0,)]
    make_sink(merge_on=["id"]).write(df.where("id = 2"), epoch=1)
    assert shop.execute("SELECT * FROM orders") == [(2, "c")]


def test_a_merge_needs_a_unique_index(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (id bigint, name text)")
    df = spark.range(3)
    with pytest.raises(InputError, match="CREATE UNIQUE INDEX"):
        make_sink(merge_on=["id"]).write(df, epoch=1)
    shop.execute("CREATE UNIQUE INDEX ON orders (id)")
    make_sink(merge_on=["id"]).write(df, epoch=1)
    assert shop.execute("SELECT count(*) FROM orders") == [(3,)]


def test_null_keys_are_refused_by_row(spark, make_sink, shop):
    df = spark.createDataFrame([(1,), (None,)], "id int").coalesce(1)
    with pytest.raises(InputError, match=r"[Cc]olumn 'id'"):
        make_sink(merge_on=["id"]).write(df, epoch=1)


@pytest.mark.parametrize(
    ("columns", "df", "error"),
    [
        ("n smallint", "SELECT 70000 AS n", r"Row 1, column 'n'.*out of range"),
        ("n varchar(2)", "SELECT 'abc' AS n", r"Row 1, column 'n'.*too long"),
        ("n integer NOT NULL", "SELECT cast(NULL AS int) AS n", r"column 'n'"),
        (
            "n uuid",
            "SELECT 'secret' AS n",
            r"Row 1, column 'n'.*invalid input syntax",
        ),
        ("n text", r"SELECT 'a\0b' AS n", r"zero character"),
        ("n jsonb", r"SELECT named_struct('a', 'x\0y') AS n", r"jsonb has no"),
        ("n name", "SELECT repeat('a', 64) AS n", r"STRING, which does not fit"),
        ('n "char"', "SELECT 'ab' AS n", r"STRING, which does not fit"),
        ("n integer REFERENCES orders_of (n)", "SELECT 1 AS n", "must be there before the epoch"),
        ("n integer CHECK (n > 5)", "SELECT 1 AS n", r"orders_n_check"),
        ("n integer UNIQUE", "SELECT explode(array(1, 1)) AS n", r"orders_n_key.*merge_on"),
        ("n numeric(5,1)", "SELECT cast(1.25 AS decimal(5,2)) AS n", r"does not fit"),
        ("n integer", "SELECT 'abc' AS n", r"'n' is STRING, which does not fit"),
        ("n timestamp", "SELECT TIMESTAMP '2020-01-01 00:00:00' AS n", r"does not fit"),
        ("n integer", "SELECT 1 AS n, 2 AS other", r"no column 'other'"),
        ("n integer, m integer NOT NULL", "SELECT 1 AS n", r"no column 'm'.*requires"),
        ("n integer GENERATED ALWAYS AS (1) STORED", "SELECT 1 AS n", r"by the database alone"),
        ("n integer", "SELECT 1 AS n, 2 AS N", r"Two columns"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_nothing_is_written(
    spark, make_sink, shop, columns, df, error
):
    shop.execute("CREATE TABLE orders_of (n integer PRIMARY KEY)")
    shop.execute(f"CREATE TABLE orders ({columns})")
    with pytest.raises(InputError, match=error) as failed:
        make_sink().write(spark.sql(df), epoch=1)
    assert "secret" not in str(failed.value)
    assert shop.execute("SELECT count(*) FROM orders") == [(0,)]
    assert shop.staging_tables() == []


def test_defaults_enums_domains_and_other_case_are_the_tables_own(spark, make_sink, shop):
    shop.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    shop.execute("CREATE DOMAIN short AS varchar(3) NOT NULL")
    shop.execute(
        'CREATE TABLE orders (id serial, "Mood" mood, code short, extra json, key uuid, '
        "made timestamptz NOT NULL DEFAULT now())"
    )
    df = spark.sql("SELECT 'ok' AS mood, 'abc' AS code, '{\"a\": 1}' AS extra, uuid() AS key")
    make_sink().write(df, epoch=1)
    assert shop.execute('SELECT id, "Mood", code, extra FROM orders') == [
        (1, "ok", "abc", {"a": 1})
    ]


def test_triggers_that_leave_rows_out_are_the_tables_own(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (id bigint)")
    shop.execute(
        f"CREATE FUNCTION {shop.schema}.skip() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.id = 1 THEN RETURN NULL; END IF; RETURN NEW; END $$"
    )
    shop.execute(
        f"CREATE TRIGGER skip BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION "
        f"{shop.schema}.skip()"
    )
    assert make_sink().write(spark.range(3), epoch=1).records == 3
    assert shop.execute("SELECT count(*) FROM orders") == [(2,)]


def test_a_lost_log_is_not_taken_for_a_first_run(spark, make_sink, shop, tmp_path):
    make_sink().write(spark.range(3), epoch=1)
    with pytest.raises(NewLineage, match="has rows of it"):
        make_sink(commit_log=str(tmp_path / "other")).write(spark.range(3), epoch=1)


def test_a_database_at_another_address_is_known_by_its_mark(spark, make_sink, shop):
    """It was moved, or is named in another way."""
    moved = shop.conninfo.replace("127.0.0.1", "localhost")
    assert moved != shop.conninfo
    for epoch, conninfo in enumerate((shop.conninfo, moved, shop.conninfo)):
        make_sink(conninfo=conninfo).write(spark.range(3), epoch=epoch)
    assert shop.execute("SELECT count(*) FROM orders") == [(9,)]
    shop.execute("DELETE FROM eos_epochs WHERE version = 3")  # an older copy
    elsewhere = psycopg.conninfo.make_conninfo(
        shop.conninfo, host="db", hostaddr="127.0.0.1", sslmode="disable"
    )
    with pytest.raises(
        NewCluster, match=r"older copy.*right database and table \(conninfo, table\)"
    ):
        make_sink(conninfo=elsewhere).write(spark.range(3), epoch=4)


def another_database(shop: Shop, name: str) -> str:
    """Creates it, with an empty schema as the shop's; returns its conninfo."""
    shop.execute(f'CREATE DATABASE "{name}"')
    conninfo = psycopg.conninfo.make_conninfo(shop.conninfo, dbname=name)
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {shop.schema}")
    return conninfo


def test_a_return_to_an_earlier_database_is_refused(spark, make_sink, shop, name):
    """After a fail-over the old server comes back, without the newest rows."""
    make_sink().write(spark.range(3), epoch=0)
    other = another_database(shop, name)
    with psycopg.connect(other, autocommit=True) as connection:
        for table in ("orders", "eos_epochs"):  # as a replica has them
            place = f"{shop.schema}.{table}"
            (body,) = shop.execute(
                "SELECT string_agg(format('%I %s', attname, format_type(atttypid, atttypmod)), ',')"
                f" FROM pg_attribute WHERE attrelid = '{place}'::regclass AND attnum > 0"
            )
            connection.execute(f"CREATE TABLE {place} ({body[0]})")
            rows = shop.execute(f"SELECT to_jsonb(t)::text FROM {table} t")
            for (row,) in rows:
                connection.execute(
                    f"INSERT INTO {place} SELECT * FROM jsonb_populate_record(NULL::{place}, %s)",
                    [row],
                )
        connection.execute(
            f"ALTER TABLE {shop.schema}.eos_epochs ADD PRIMARY KEY (sink, log, target, version)"
        )
    assert make_sink(conninfo=other).write(spark.range(3), epoch=1).status == "written"
    with pytest.raises(NewCluster, match="older copy"):
        make_sink().write(spark.range(3), epoch=2)
    assert make_sink(conninfo=other).write(spark.range(3), epoch=2).status == "written"
    assert shop.execute("SELECT count(*) FROM orders") == [(3,)]


def test_a_new_database_is_no_older_copy_after_an_empty_epoch(spark, make_sink, shop, name):
    """It has the mark of the log from then on, and no commit."""
    make_sink().write(spark.range(3), epoch=0)
    fresh = another_database(shop, name)
    dies_behind(Step.BEGIN, make_sink(conninfo=fresh), lambda s: s.write(spark.range(3), epoch=1))
    make_sink(conninfo=fresh).write(spark.range(0), epoch=1)
    make_sink().write(spark.range(3), epoch=3)  # and back
    assert make_sink(conninfo=fresh).write(spark.range(3), epoch=2).status == "written"


def test_two_databases_with_tables_of_one_name_have_their_own_versions(
    spark, make_sink, shop, name, monkeypatch
):
    """An attempt begins twice in one of them, as its first answer is lost."""
    other = another_database(shop, name)

    def write(epoch: int) -> None:
        sink = all_or_nothing(make_sink(), make_sink(conninfo=other))
        sink.write(spark.range(3), epoch=epoch)
        sink.close()

    mark, marked = PostgresParticipant._mark, list[str]()

    def once_lost(self: PostgresParticipant, claim: PostgresPart) -> None:
        mark(self, claim)
        marked.append(claim.place)
        if len(marked) == 2:
            raise ConnectionLost("the answer is lost")

    monkeypatch.setattr(PostgresParticipant, "_mark", once_lost)
    for epoch in range(3):
        write(epoch)
    assert len(marked) > 2
    assert shop.execute("SELECT count(*) FROM orders") == [(9,)]


def test_passwords_are_in_no_text(make_sink, spark, shop):
    sink = make_sink(conninfo="postgresql://u:hunter2@127.0.0.1:1/x?connect_timeout=1")
    assert "hunter2" not in repr(sink) + repr(sink.options) + repr(sink.outputs())
    with pytest.raises(Exception, match=r"No connection") as failed:
        make_sink(conninfo="postgresql://u:hunter2@127.0.0.1:1/x", resolve_timeout_s=1).write(
            spark.range(1), epoch=1
        )
    assert "hunter2" not in str(failed.value)
    with pytest.raises(ConfigurationError) as wrong:
        make_sink(conninfo="postgresql://u:hunter2@[x")
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"latest_by": ["a"]}, "need merge_on"),
        ({"merge_on": "id"}, r"list of names: \['id'\]"),
        ({"delete_when": "no such", "merge_on": ["id"]}, "delete_when"),
        ({"delete_when": "id + 1", "merge_on": ["id"]}, "not a condition"),
        ({"staging_schema": "nowhere"}, "no schema 'nowhere'"),
    ],
)
def test_wrong_options_are_named(spark, make_sink, options, error):
    with pytest.raises(ConfigurationError, match=error):
        make_sink(**options).write(spark.range(1), epoch=1)


def test_a_stream_survives_a_killed_server(spark, make_sink, postgres_server, shop, tmp_path):
    """The server dies once in each of three epochs, while tasks copy."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    sink, seen = make_sink(max_attempts=20), []

    def write(df, epoch):
        if epoch in (1, 2) and epoch not in seen:
            seen.append(epoch)
            postgres_server.kill()
            postgres_server.start()
        sink(df.select("value"), epoch)

    query = (
        source.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        while len(query.recentProgress) < 4 and query.isActive:
            query.awaitTermination(0.5)
    finally:
        query.stop()
    assert query.exception() is None
    (row,) = shop.execute("SELECT count(*), count(DISTINCT value) FROM orders")
    assert row[0] == row[1] >= 150


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_a_full_server_is_waited_for(spark, make_sink, monkeypatch, is_restarted):
    """It has no connection left for longer than three quick attempts take."""
    df = spark.range(10, numPartitions=1)
    settings = {"max_connections": "12", "superuser_reserved_connections": "0"}
    with PostgresServer(**settings) as server, ExitStack() as others:
        log_in(monkeypatch, server)
        options = {"conninfo": server.conninfo, "table": "public.orders"}
        sink = make_sink(**options)
        sink.write(df, epoch=1)
        if is_restarted:  # and creates the table if it is gone
            sink.close()
            sink = make_sink(**options, on_new_cluster="continue")
        fill(server, others)
        timer = threading.Timer(5, others.close)
        timer.start()
        assert sink.write(df, epoch=2).status == "written"
        timer.join()
        with psycopg.connect(server.conninfo) as reader:
            rows = reader.execute("SELECT count(*) FROM orders").fetchone()
        assert rows == (20,)


def fill(server, others) -> None:
    """Take all connections of the server, those of sinks, too."""
    killer = others.enter_context(psycopg.connect(server.conninfo, autocommit=True))
    killer.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
        "WHERE starts_with(application_name, 'eos')"
    )
    with suppress(psycopg.OperationalError):
        while True:
            others.enter_context(psycopg.connect(server.conninfo))


@pytest.mark.timeout(600)  # the slower the machine, the more kills meet each attempt
def test_connections_that_are_killed_at_random_cost_no_row(spark, make_sink, postgres_server, shop):
    sink, is_over, pause = make_sink(), threading.Event(), random.Random(7)

    def kill() -> None:
        with psycopg.connect(postgres_server.conninfo, autocommit=True) as killer:
            while not is_over.wait(pause.uniform(0.1, 0.6)):
                killer.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE starts_with(application_name, 'eos') ORDER BY random() LIMIT 1"
                )

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        for epoch in range(20):
            df = spark.range(epoch * 100, epoch * 100 + 100, numPartitions=4)
            while True:
                with suppress(Retriable, InDoubt):
                    sink.write(df, epoch=epoch)
                    break
    finally:
        is_over.set()
        thread.join()
    assert shop.execute("SELECT count(*), count(DISTINCT id) FROM orders") == [(2000, 2000)]


def test_job_failures_leave_nothing(spark, make_sink, shop):
    df = spark.range(10, numPartitions=2).selectExpr(
        "id", "cast(raise_error('no') AS string) AS text"
    )
    with pytest.raises(JobFailed):
        make_sink().write(df, epoch=1)
    assert shop.execute("SELECT count(*) FROM orders") == [(0,)]
    assert shop.staging_tables() == []


_ODD_NAMES = ["a%b", "a%s", "50%", "%(x)s", "{}", 'a"q', "a`b", "a.b", "run", "c0"]


@pytest.mark.parametrize("column", _ODD_NAMES)
def test_columns_may_have_any_name(spark, make_sink, shop, column):
    df = spark.sql("SELECT 1, 'v'").toDF("id", column)
    sink = make_sink(merge_on=[column])
    sink.write(df, epoch=1)
    sink.write(spark.sql("SELECT 2, 'v'").toDF("id", column), epoch=2)
    assert shop.execute("SELECT * FROM orders") == [(2, "v")]


def test_schemas_and_tables_may_have_any_name(spark, make_sink, shop):
    shop.execute("CREATE SCHEMA \"50% 'off'\"")
    sink = make_sink(table="50% 'off'.a%s \"t\"")
    sink.write(spark.range(3), epoch=1)
    assert shop.execute('SELECT count(*) FROM "50% \'off\'"."a%s ""t"""') == [(3,)]
    shop.execute("DROP SCHEMA \"50% 'off'\" CASCADE")


def test_too_long_names_are_refused_not_cut(spark, make_sink):
    with pytest.raises(InputError, match="more than 63 bytes"):
        make_sink().write(spark.range(1).toDF("x" * 64), epoch=1)


def test_a_sink_that_can_not_be_opened_keeps_no_connection(spark, make_sink, shop, name):
    """A query that is started again and again would take all that the server has."""
    sink = make_sink()
    for epoch in range(3):
        with pytest.raises(InputError):
            sink.write(spark.range(1).toDF("x" * 64), epoch=epoch)
    mine = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{f'eos {name}'[:60]}'"
    wait_until(lambda: shop.execute(mine) == [(0,)])
    sink.write(spark.range(1), epoch=3)
    assert shop.execute(mine) == [(1,)]


def test_text_is_the_same_with_large_strings_and_another_encoding(spark, make_sink, shop):
    texts = [(1, "C:\\new\\table\taé€"), (2, None), (3, "x\\")]
    df = spark.createDataFrame(texts, "id int, text string").coalesce(1)
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        make_sink(conninfo=f"{shop.conninfo}&client_encoding=latin1").write(df, epoch=1)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert shop.execute("SELECT * FROM orders ORDER BY id") == texts


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns"])
def test_times_are_exact_in_arrays_and_in_json(spark, make_sink, shop, zone):
    moments = (
        "1850-01-01T00:00:00Z", "2026-10-25T00:30:00.123456Z", "2026-10-25T01:30:00Z",
        "0005-01-02T03:04:05.000001Z", "9998-12-31T23:59:59.999999Z",
    )  # fmt: skip
    listed = ", ".join(f"TIMESTAMP '{one}'" for one in moments)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.sql(f"SELECT array({listed}) AS a, named_struct('t', array({listed})) AS j")
        make_sink().write(df, epoch=1)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    parsed = [dt.datetime.fromisoformat(one) for one in moments]
    ((array, json_value),) = shop.execute("SELECT a, j FROM orders")
    assert array == parsed
    assert [dt.datetime.fromisoformat(one) for one in json_value["t"]] == parsed


@pytest.mark.parametrize("micros", [10**18, -(10**18) * 9])
def test_times_too_far_away_are_not_null_in_arrays(spark, make_sink, shop, micros):
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        df = spark.sql(f"SELECT array(timestamp_micros({micros}L)) AS a")
        with pytest.raises(InputError, match="Times before the year 1"):
            make_sink().write(df, epoch=1)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


@pytest.mark.skipif(not hasattr(types, "VariantType"), reason="PySpark 3 has no VARIANT")
def test_variants_are_the_same_in_arrays(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (one jsonb, a jsonb[])")
    df = spark.sql(
        """SELECT parse_json('"1"') AS one, array(parse_json('"x"'), parse_json('1'), NULL) AS a"""
    )
    make_sink().write(df, epoch=1)
    assert shop.execute("SELECT * FROM orders") == [("1", ["x", 1, None])]


def test_maps_with_keys_that_json_lacks_are_refused(spark, make_sink):
    with pytest.raises(InputError, match="'m' is"):
        make_sink().write(spark.sql("SELECT map(current_timestamp(), 1) AS m"), epoch=1)


def test_a_word_of_the_condition_is_not_a_column(spark, make_sink, shop):
    columns = "id int, deleted boolean, d string, op string"
    df = spark.createDataFrame([(1, True, "x", "a")], columns)
    make_sink(merge_on=["id"], delete_when="op = 'deleted' or op = 'd'").write(df, epoch=1)
    assert shop.execute("SELECT id, deleted, d FROM orders") == [(1, True, "x")]


def test_rows_that_differ_in_a_column_of_the_condition_are_two_changes(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (id int PRIMARY KEY, qty int)")
    df = spark.createDataFrame([(1, 5), (1, 7)], "id int, qty int")
    with pytest.raises(InputError, match="several rows"):
        make_sink(merge_on=["id"], delete_when="qty = 0").write(df, epoch=1)


def test_a_role_with_odd_defaults_writes_the_same(spark, make_sink, shop):
    settings = ("array_nulls = off", "datestyle = 'SQL, DMY'", "statement_timeout = '1s'")
    for setting in (*settings, "default_transaction_isolation = 'serializable'"):
        shop.execute(f"ALTER ROLE postgres SET {setting}")
    try:
        df = spark.sql("SELECT array('a', NULL) AS a, DATE '2026-02-03' AS d")
        make_sink().write(df, epoch=1)
    finally:
        shop.execute("ALTER ROLE postgres RESET ALL")
    assert shop.execute("SELECT * FROM orders") == [(["a", None], dt.date(2026, 2, 3))]


def test_keys_that_only_the_database_calls_equal_are_refused(spark, make_sink, shop):
    shop.execute("CREATE TABLE orders (k uuid PRIMARY KEY, v text)")
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    changes = [(key.upper(), "up", "u"), (key, "low", "d")]
    df = spark.createDataFrame(changes, "k string, v string, op string")
    with pytest.raises(InputError, match="equal for the database"):
        make_sink(merge_on=["k"], delete_when="op = 'd'").write(df, epoch=1)
    assert shop.execute("SELECT count(*) FROM orders") == [(0,)]


@pytest.mark.parametrize("code", ["23514", "22003", "42501", "ZX001"])
def test_texts_of_users_functions_are_in_no_error(spark, make_sink, shop, code):
    shop.execute("CREATE TABLE orders (id bigint)")
    shop.execute(
        f"CREATE FUNCTION {shop.schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'bad value secret' USING errcode = '{code}'; END $$"
    )
    shop.execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION "
        f"{shop.schema}.refuse()"
    )
    with pytest.raises(InputError) as failed:
        make_sink().write(spark.range(1), epoch=1)
    assert "secret" not in str(failed.value)


def test_what_is_no_table_of_the_database_is_refused(spark, make_sink, shop):
    """Another server's commit is not part of the transaction."""
    shop.execute("CREATE VIEW orders AS SELECT 1::bigint AS id")
    with pytest.raises(ConfigurationError, match=r"orders is no table, .* exactly once"):
        make_sink().write(spark.range(1), epoch=1)
    shop.execute("DROP VIEW orders")
    server = f"far_{shop.schema}"
    shop.execute(f"CREATE FOREIGN DATA WRAPPER {server}")
    shop.execute(f"CREATE SERVER {server} FOREIGN DATA WRAPPER {server}")
    try:
        shop.execute("CREATE TABLE orders (id bigint) PARTITION BY RANGE (id)")
        shop.execute("CREATE TABLE near PARTITION OF orders FOR VALUES FROM (0) TO (10)")
        assert make_sink().write(spark.range(1), epoch=1).records == 1
        far = "CREATE FOREIGN TABLE far PARTITION OF orders FOR VALUES FROM (10) TO (20)"
        shop.execute(f"{far} SERVER {server}")
        with pytest.raises(
            ConfigurationError, match=r"far is on another server, so rows of .*orders"
        ):
            make_sink().write(spark.range(1), epoch=2)
        shop.execute("DROP FOREIGN TABLE far")
        shop.execute("ALTER TABLE near SET UNLOGGED")
        with pytest.raises(ConfigurationError, match=r"near is unlogged, so"):
            make_sink().write(spark.range(1), epoch=2)
    finally:
        shop.execute(f"DROP FOREIGN DATA WRAPPER {server} CASCADE")


@pytest.mark.parametrize("is_other", [True, False], ids=["another database", "eos_epochs lost"])
def test_recovery_concludes_nothing_without_the_mark(
    spark, make_sink, shop, tmp_path, name, is_other
):
    dies_behind(EndingStep.PART, make_sink(), lambda sink: sink.write(spark.range(2), epoch="a"))
    assert shop.execute("SELECT count(*) FROM orders") == [(2,)]
    shop.execute("ALTER TABLE eos_epochs RENAME TO hidden")
    if is_other:
        shop.execute("ALTER TABLE orders RENAME TO hidden_orders")
        shop.execute("CREATE TABLE orders (id bigint)")
    with pytest.raises(InDoubt, match="another database, or eos_epochs was lost"):
        resolve(name, commit_log=tmp_path / "log", deadline_s=3)
    if is_other:
        shop.execute("DROP TABLE orders")
        shop.execute("ALTER TABLE hidden_orders RENAME TO orders")
    shop.execute("DROP TABLE IF EXISTS eos_epochs")
    shop.execute("ALTER TABLE hidden RENAME TO eos_epochs")
    resolve(name, commit_log=tmp_path / "log")
    make_sink().write(spark.range(2), epoch="a")
    assert shop.execute("SELECT count(*) FROM orders") == [(2,)]
