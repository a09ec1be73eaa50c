"""``eos catalog archive``; what it puts into the table is in tests/sources/test_archive.py."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pulsar.schema import AvroSchema

from eos.sources._row_format import METADATA, PLACE
from tests.support.admin import call
from tests.support.judge import quiet_client

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"]}],
}


@pytest.fixture
def send(pulsar_standalone, name):
    """Sends Avro values by ``pulsar-client``."""

    def send(*rows: dict[str, object]) -> None:
        with closing(quiet_client(pulsar_standalone.service_url)) as plain:
            schema = AvroSchema(None, schema_definition=ORDER)
            producer = plain.create_producer(name, schema=schema, batching_enabled=False)
            for row in rows:
                producer.send(row)
            producer.close()

    return send


def test_a_topic_with_a_schema_becomes_columns(on_broker, send, client, name, tmp_path):
    send({"id": 1, "word": "a"}, {"id": 2, "word": None})
    told = on_broker("archive", name, tmp_path / "past", "--json").json
    assert (told["rows"], told["commits"], told["exit_code"]) == (2, 1, 0)
    table = pa.table(DeltaTable(tmp_path / "past").to_pyarrow_table())
    assert table.column_names == ["id", "word", *METADATA, *PLACE]
    assert table.select(["id", "word"]).to_pylist() == [
        {"id": 1, "word": "a"},
        {"id": 2, "word": None},
    ]
    shown = on_broker("archive", name, tmp_path / "past").out
    assert "Archived 0 rows" in shown
    last = table["__ledger"][-1].as_py(), table["__entry"][-1].as_py()
    assert f"{last[0]}:{last[1] + 1}" in shown


def test_a_dry_run_changes_nothing(on_broker, send, client, name, tmp_path, pulsar_standalone):
    send({"id": 1, "word": "a"})
    txn = client.transaction(timeout_s=60)
    with client.producer(name) as producer:
        producer.send(b"in", txn=txn)
    told = on_broker("archive", name, tmp_path / "past", "--dry-run", "--json").json
    (partition,) = told["partitions"]
    assert partition["archived"] == "earliest"
    assert partition["to"] == partition["open_transaction"]
    assert not (tmp_path / "past").exists()
    path = f"/v2/persistent/public/default/{name}/stats"
    assert call(pulsar_standalone.admin_url, "GET", path)["subscriptions"] == {}
    assert "--dry-run" in on_broker("archive", name, tmp_path / "past", "--dry-run").out
    txn.abort()


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("nothing", "past"), 64, "There is no topic nothing"),
        (("{name}", "past", "--follow", "--dry-run"), 64, "--follow has no end"),
        (("{name}", "past", "--schema", "xml"), 64, "'xml' does not exist"),
        (("{name}", "past", "--until", "soon"), 64, "endingTime"),
        (("{name}", "ftp://host/past"), 64, "ftp"),
        (("(", "past", "--pattern"), 64, "not a regular expression"),
    ],
)
def test_wrong_arguments_are_named(on_broker, send, name, tmp_path, monkeypatch, args, code, what):
    monkeypatch.chdir(tmp_path)
    send({"id": 1, "word": "a"})
    ended = on_broker("archive", *(one.format(name=name) for one in args))
    assert (ended.code, what in ended.err) == (code, True), ended.err
    assert not (tmp_path / "past").exists()


def test_a_value_that_cannot_be_read_is_kept_on_request(on_broker, send, client, name, tmp_path):
    send({"id": 1, "word": "a"})
    with closing(client.entry_producer(name)) as producer:
        producer.send(b"\x01").result(timeout=20)
    ended = on_broker("archive", name, tmp_path / "past")
    assert (ended.code, "mode=permissive" in ended.err) == (1, True), ended.err
    assert on_broker("archive", name, tmp_path / "past", "--mode", "permissive").code == 0
    table = pa.table(DeltaTable(tmp_path / "past").to_pyarrow_table())
    assert table["__malformedValue"].to_pylist() == [None, b"\x01"]


def test_a_definition_that_is_not_text_is_an_error(on_broker, send, name, tmp_path):
    send({"id": 1, "word": "a"})
    (tmp_path / "odd.avsc").write_bytes(b"\xff")
    more = ("--schema", "avro", "--definition", tmp_path / "odd.avsc")
    ended = on_broker("archive", name, tmp_path / "past", *more)
    assert (ended.code, "UnicodeDecodeError" in ended.err) == (64, True)


def test_follow_goes_on_until_it_is_interrupted(pulsar_standalone, send, client, name, tmp_path):
    send({"id": 1, "word": "a"})
    command = [sys.executable, "-m", "eos", "catalog", "archive", name, str(tmp_path / "past")]
    url = ["--service-url", pulsar_standalone.service_url]
    with subprocess.Popen(
        [*command, "--follow", "--json", *url], stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            for wanted in (1, 2):
                deadline = time.monotonic() + 60
                while archived(tmp_path) < wanted and time.monotonic() < deadline:
                    time.sleep(0.2)
                assert archived(tmp_path) == wanted
                send({"id": 2, "word": "b"})
            running.send_signal(signal.SIGINT)
            told = json.loads(running.communicate(timeout=30)[0])
        finally:
            running.kill()
    assert (running.returncode, told["rows"] >= 2) == (0, True)


def archived(folder) -> int:
    """The rows of the table so far."""
    if not DeltaTable.is_deltatable(str(folder / "past")):
        return 0
    return DeltaTable(folder / "past").to_pyarrow_dataset().count_rows()
