"""``eos catalog archive``; what it puts into the table is in tests/sources/test_archive.py."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pulsar.schema import AvroSchema

from eos.admin import AdminClient
from eos.errors import BrokerNotReady, ConnectionLost, NotAllowed
from eos.ids import TopicName
from eos.sources._row_format import METADATA, PLACE
from eos.sources.archive import Archive
from eos.transport.auth import Auth
from tests.support.admin import call
from tests.support.judge import quiet_client
from tests.transport.scripted import wait_until

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
    assert partition["entries"] == 1
    assert 0 < partition["stored_bytes"] < 1000
    assert not (tmp_path / "past").exists()
    path = f"/v2/persistent/public/default/{name}/stats"
    # The broker closes the reader's own one a moment later.
    wait_until(lambda: not call(pulsar_standalone.admin_url, "GET", path)["subscriptions"])
    assert "--dry-run" in on_broker("archive", name, tmp_path / "past", "--dry-run").out
    txn.abort()


@pytest.mark.parametrize(
    ("args", "code", "what"),
    [
        (("nothing", "past"), 64, "There is no topic nothing"),
        (("{name}", "past", "--follow", "--dry-run"), 64, "--follow has no end"),
        (("{name}", "past", "--follow", "--check"), 64, "--follow has no end"),
        (("{name}", "past", "--dry-run", "--check"), 64, "exclude each other"),
        (("{name}", "past", "--trim", "--dry-run"), 64, "--trim changes the topic"),
        (("{name}", "past", "--schema", "xml"), 64, "'xml' does not exist"),
        (("{name}", "past", "--until", "soon"), 64, "--until"),
        (("{name}", "ftp://host/past"), 64, "ftp"),
        (("(", "past", "--pattern"), 64, "not a regular expression"),
        (("public/.*/x", "past", "--pattern"), 64, "public/.*"),
        (("nothing-.*", "past", "--pattern"), 64, "no topic nothing-"),
        (("{name}", ""), 64, "TABLE is empty"),
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
    assert (ended.code, "--mode permissive" in ended.err) == (1, True), ended.err
    assert on_broker("archive", name, tmp_path / "past", "--mode", "permissive").code == 0
    table = pa.table(DeltaTable(tmp_path / "past").to_pyarrow_table())
    assert table["__malformedValue"].to_pylist() == [None, b"\x01"]


def test_a_field_named_as_a_column_of_permissive_is_an_error(
    on_broker, pulsar_standalone, name, tmp_path
):
    fields = [{"name": "__malformedValue", "type": "long"}]
    definition = {"type": "record", "name": "O", "fields": fields}
    with closing(quiet_client(pulsar_standalone.service_url)) as plain:
        plain.create_producer(name, schema=AvroSchema(None, schema_definition=definition)).close()
    ended = on_broker("archive", name, tmp_path / "past", "--mode", "permissive")
    assert (ended.code, "also a column of --mode" in ended.err) == (64, True), ended.err


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
            told = json.loads(running.communicate(timeout=120)[0])
        finally:
            running.kill()
    assert (running.returncode, told["rows"] >= 2) == (0, True)


def test_follow_goes_on_after_an_error_that_passes(on_broker, send, name, tmp_path, monkeypatch):
    send({"id": 1, "word": "a"})
    monkeypatch.setattr("eos.catalog.verbs.archiving._PAUSE_S", 0.1)
    add, answers = Archive.add, [ConnectionLost("The broker was away."), None, KeyboardInterrupt()]

    def failing(self):
        if (answer := answers.pop(0)) is None:
            return add(self)
        raise answer

    monkeypatch.setattr(Archive, "add", failing)
    ended = on_broker("archive", name, tmp_path / "past", "--follow")
    assert (ended.code, "Archived 1 row," in ended.out) == (0, True)
    assert "Again in 0 s: The broker was away." in ended.err


def test_trimmed_is_what_is_archived(on_broker, send, name, tmp_path, pulsar_standalone):
    path, url = f"/v2/persistent/public/default/{name}", pulsar_standalone.admin_url
    for number in range(3):
        send({"id": number, "word": "a"}, {"id": number, "word": "b"})
        call(url, "PUT", f"{path}/unload")  # closes the ledger
    assert "newest ledger" in on_broker("archive", name, tmp_path / "past", "--trim").out
    deadline = time.monotonic() + 90
    while len(call(url, "GET", f"{path}/internalStats")["ledgers"]) > 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    # The last one's ledger is there, as the proof that nothing after it was deleted.
    send({"id": 3, "word": "c"})
    assert on_broker("archive", name, tmp_path / "past", "--trim", "--json").json["rows"] == 1
    assert archived(tmp_path) == 7


def _check_policies(one_problem, monkeypatch, path, url):
    quota = {"limitSize": 10**12, "limitTime": -1, "policy": "consumer_backlog_eviction"}
    topic = TopicName.parse(path.removeprefix("/v2/persistent/"))
    admin = AdminClient(url, Auth(), timeout_s=20)
    call(url, "POST", f"{path}/messageTTL?messageTTL=100")
    wait_until(lambda: admin.message_ttl_s(topic) == 100)
    one_problem("expire 100 s after")
    call(url, "DELETE", f"{path}/messageTTL")
    call(url, "POST", f"{path}/backlogQuota?backlogQuotaType=destination_storage", quota)
    wait_until(lambda: not admin.message_ttl_s(topic) and admin.backlog_quotas(topic))
    one_problem("a backlog quota deletes")
    call(url, "DELETE", f"{path}/backlogQuota?backlogQuotaType=destination_storage")
    wait_until(lambda: not admin.backlog_quotas(topic))
    for settings, what in (
        ({"ttlDurationDefaultInSeconds": "100"}, "expire 100 s after"),
        ({"subscriptionExpirationTimeMinutes": "9"}, "idle subscription is deleted after 9 min"),
        (
            {
                "backlogQuotaDefaultRetentionPolicy": quota["policy"],
                "backlogQuotaDefaultLimitSecond": "9",
            },
            "a backlog quota deletes",
        ),
    ):
        with monkeypatch.context() as patched:

            def refuse(*_, **__):
                raise NotAllowed("Topic level policies is disabled")

            patched.setattr(AdminClient, "broker_settings", lambda _, found=settings: found)
            patched.setattr(AdminClient, "message_ttl_s", refuse)
            one_problem(what)


def test_each_state_of_table_and_topic_has_its_name(
    on_broker, send, client, name, tmp_path, pulsar_standalone, monkeypatch
):
    path, url = f"/v2/persistent/public/default/{name}", pulsar_standalone.admin_url
    table = tmp_path / "past"

    def problems(*more: str) -> dict[str, bool]:
        told = on_broker("archive", name, table, "--check", "--json", *more).json
        assert told["exit_code"] == any(one["is_urgent"] for one in told["problems"])
        assert all(one["hint"] for one in told["problems"])
        return {one["what"]: one["is_urgent"] for one in told["problems"]}

    def one_problem(what: str, is_urgent: bool = True) -> None:
        found = problems()
        assert list(found.values()) == [is_urgent], found
        assert what in next(iter(found))

    send({"id": 1, "word": "a"})
    table.mkdir()
    one_problem("There is no Delta table at", is_urgent=False)
    on_broker("archive", name, table)
    assert "nothing is wrong" in on_broker("archive", name, table, "--check").out
    files = DeltaTable(table).file_uris()
    txn = client.transaction(timeout_s=60)
    with client.producer(name) as producer:
        producer.send(b"in", txn=txn)
    one_problem("an open transaction at", is_urgent=False)
    txn.abort()
    monkeypatch.delenv("EOS_ADMIN_URL")
    one_problem("were not looked at", is_urgent=False)
    monkeypatch.setenv("EOS_ADMIN_URL", url)
    _check_policies(one_problem, monkeypatch, path, url)
    subscription = f"eos-archive-{DeltaTable(table).metadata().id}"
    with client.cursor(f"persistent://public/default/{name}", subscription, exclusive=True) as held:
        held.place()
        one_problem("an archive is running", is_urgent=False)
    send({"id": 2, "word": "a"})
    call(url, "POST", f"{path}/subscription/{subscription}/skip_all")
    one_problem("no longer keeps what follows")
    on_broker("archive", name, table)
    assert problems() == {}
    call(url, "DELETE", f"{path}/subscription/{subscription}?force=true")
    one_problem(f"no subscription {subscription}")
    Path(files[0]).rename(tmp_path / "gone")
    assert any("1 files of the table are missing" in one for one in problems())
    (tmp_path / "gone").rename(files[0])
    call(url, "DELETE", f"{path}?force=true")
    send({"id": 1, "word": "a"})
    assert any("was recreated" in one or "no longer exist" in one for one in problems())
    told = on_broker("archive", name, table, "--check").out
    assert "--no-fail-on-data-loss" in told
    assert "failOnDataLoss" not in told
    other = pa.table({"id": ["text"]})
    write_deltalake(table, other, mode="overwrite", schema_mode="overwrite")
    assert any("id" in one and "string" in one for one in problems())
    table = tmp_path / "foreign"
    write_deltalake(table, other)
    assert any("no archive has written" in one for one in problems())


def test_losses_and_failures_are_shown_and_are_in_the_json(
    on_broker, send, client, name, tmp_path, pulsar_standalone, monkeypatch
):
    past = tmp_path / "past"
    send({"id": 1, "word": "a"})
    assert on_broker("archive", name, past).code == 0
    path, url = f"/v2/persistent/public/default/{name}", pulsar_standalone.admin_url
    call(url, "DELETE", f"{path}?force=true")
    send({"id": 2, "word": "b"})
    with closing(client.entry_producer(name)) as producer:
        producer.send(b"\x01").result(timeout=20)

    def refuse(_, topic):
        raise BrokerNotReady(f"{topic} is \x1b[2Jbusy.")

    monkeypatch.setattr(AdminClient, "trim", refuse)
    options = ("--no-fail-on-data-loss", "--mode", "dropmalformed", "--trim")
    ended = on_broker("archive", name, past, *options, "--json")
    assert (ended.code, ended.json["trimmed"], ended.json["rows"]) == (0, False, 1)
    lost, left_out, busy = ended.json["warnings"]
    assert "no longer exist" in lost
    assert "1 messages with unreadable values are left out" in left_out
    assert "could not be trimmed" in busy
    assert "\x1b" not in busy + ended.err
    assert all(f"Warning: {text.split()[0]}" in ended.err for text in (lost, left_out, busy))


def archived(folder) -> int:
    """The rows of the table so far."""
    if not DeltaTable.is_deltatable(str(folder / "past")):
        return 0
    return DeltaTable(folder / "past").to_pyarrow_dataset().count_rows()


def test_changes_by_others_are_named(on_broker, send, name, tmp_path):
    table = tmp_path / "past"

    def changes() -> list[str]:
        told = on_broker("archive", name, table, "--check", "--json").json
        assert told["exit_code"] == 0  # archiving goes on
        return [one["what"] for one in told["problems"]]

    for number in range(3):
        send({"id": number, "word": "a"})
    on_broker("archive", name, table)
    again = on_broker("archive", name, table, "--dry-run", "--json").json["partitions"][0]
    assert (again["entries"], again["stored_bytes"]) == (0, 0)
    archived = DeltaTable(table)
    archived.optimize.compact()
    assert changes() == []
    DeltaTable(table).delete("id = 1")
    assert ["changed its rows by DELETE" in one for one in changes()] == [True]
    kept = DeltaTable(table).to_pyarrow_table()
    write_deltalake(table, kept, mode="append")
    write_deltalake(table, kept, mode="overwrite")
    assert ["WRITE" in one for one in changes()] == [True, True, False]
    DeltaTable(table).restore(archived.version())
    assert changes() == []
    send({"id": 3, "word": "a"})
    on_broker("archive", name, table)
    assert changes() == []
    assert sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3]
    written_ms = DeltaTable(table).history()[1]["timestamp"]
    DeltaTable(table).restore(datetime.fromtimestamp(written_ms / 1000, UTC))
    newest = max((table / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in newest.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:  # as Spark writes it
            action["commitInfo"]["operationParameters"]["version"] = None
    newest.write_text("\n".join(map(json.dumps, actions)))
    told = on_broker("archive", name, table, "--check", "--json").json
    assert any("what it was restored to can't be found" in one["what"] for one in told["problems"])
