"""``eos catalog list``, ``describe``, ``create`` and ``drop``, on a real broker."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from eos.client import PulsarClient
from eos.errors import Unauthorized
from eos.testing import PulsarStandalone
from tests.support import admin
from tests.support.tokens import CONFIG, token

DEFINITION = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "word", "type": ["null", "string"]}],
}
ADMIN = token("admin")


@pytest.fixture
def full(name: str) -> str:
    return f"persistent://public/default/{name}"


@pytest.fixture
def definition(tmp_path) -> str:
    file = tmp_path / "orders.avsc"
    file.write_text(json.dumps(DEFINITION))
    return str(file)


class Terminal(io.StringIO):
    """A user at a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_topic_is_created_and_described_with_its_schema(
    on_broker, client, name, full, definition
):
    made = on_broker(
        "create", name, "--partitions", 3, "--schema", "avro", "--definition", definition
    )
    assert (made.code, made.err) == (0, "")
    assert "3 partitions" in made.out
    client.subscribe_durably(f"{full}-partition-1", "billing")
    with closing(client.entry_producer(f"{full}-partition-1")) as producer:
        producer.send(b"x").result(timeout=20)
        told = on_broker("describe", name, "--json").json
        shown = on_broker("describe", full).out
    assert (told["topic"], told["partitions"], told["schema_type"]) == (full, 3, "avro")
    assert json.loads(told["schema_text"]) == DEFINITION
    assert (told["schema_version"], told["producers"], told["entries"]) == (0, 1, 1)
    assert [one["entries"] for one in told["sizes"]] == [0, 1, 0]
    (subscription,) = told["subscriptions"]
    assert (subscription["name"], subscription["backlog"]) == ("billing", 1)
    for word in (full, "avro, version 0", '"name": "word"', "billing", "1 entry", "deleted"):
        assert word in shown
    again = on_broker("create", name)
    assert (again.code, "already exists" in again.err) == (64, True)


@pytest.mark.parametrize("schema", ["bytes", "string", "int64"])
def test_a_primitive_schema_is_registered(on_broker, name, schema):
    assert on_broker("create", name, "--schema", schema).code == 0
    told = on_broker("describe", name, "--json").json
    assert (told["schema_type"], told["partitions"]) == (schema, 0)


def test_a_topic_that_was_created_without_its_schema_is_named(on_broker, name, full, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise Unauthorized("The role may not produce.")

    create = ("create", name, "--schema", "string")
    with monkeypatch.context() as patch:
        patch.setattr(PulsarClient, "entry_producers", refuse)
        failed = on_broker(*create)
    assert failed.code == 2
    for words in ("may not produce", "created, but without its schema", "Drop the topic before"):
        assert words in " ".join(failed.err.split())
    assert on_broker("drop", name, "--confirm", full).code == 0
    assert on_broker(*create).code == 0
    assert on_broker("describe", name, "--json").json["schema_type"] == "string"


def test_namespaces_and_topics_are_listed(on_broker, client, name, definition):
    on_broker("create", name, "--partitions", 2, "--schema", "json", "--definition", definition)
    client.create_unpartitioned(f"{name}:key:v1")
    assert "public/default" in on_broker("list").out.split()
    assert on_broker("list", "--tenant", "public", "--json").json["namespaces"]
    found = on_broker("list", "public/default", "--sizes", "--json").json["topics"]
    mine = {one["topic"].rpartition("/")[2]: one for one in found if name in one["topic"]}
    assert [(key, one["partitions"], one["schema_type"]) for key, one in mine.items()] == [
        (name, 2, "json"), (f"{name}:key:v1", 0, "bytes"),
    ]  # fmt: skip
    assert mine[name]["storage_bytes"] == 0
    shown = on_broker("list", "public/default").out
    assert f"{name}:key:v1" in shown
    assert "size" not in shown


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("list", "public/nowhere"), "namespace public/nowhere"),
        (("list", "--tenant", "nobody"), "tenant nobody"),
        (("describe", "nothing"), "topic persistent://public/default/nothing"),
        (("describe", "no/where/nothing"), "topic persistent://no/where/nothing"),
        (("drop", "nothing"), "topic persistent://public/default/nothing"),
        (("create", "public/nowhere/orders"), "namespace public/nowhere"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_missing_things_exit_with_64(on_broker, args, what):
    ended = on_broker(*args)
    assert (ended.code, ended.out) == (64, "")
    assert f"There is no {what}." in ended.err


def test_a_narrow_terminal_shows_everything(on_broker, client, name, full, monkeypatch):
    client.create_unpartitioned(full)
    client.subscribe_durably(full, "a-subscription-with-a-long-name")
    monkeypatch.setenv("COLUMNS", "45")
    for args in (("describe", name), ("list", "public/default")):
        ended = on_broker(*args)
        assert max(map(len, ended.raw.splitlines())) <= 45
        squeezed = "".join(char for char in ended.raw if char.isalnum() or char == "-")
        assert name in squeezed


def test_drop_asks_for_the_full_name(on_broker, client, name, full, monkeypatch):
    with client.producer(name, create=True) as producer:
        producer.send(b"kept")
    client.subscribe_durably(full, "billing")
    monkeypatch.setattr("sys.stdin", Terminal(f"{name}\n"))
    ended = on_broker("drop", name)
    assert ended.code == 64
    for word in ("for all users", "1 entry", "billing", "1 unacknowledged message"):
        assert word in ended.err
    assert client.exists(full)
    monkeypatch.setattr("sys.stdin", Terminal(f" {full}\n"))
    ended = on_broker("drop", name)
    assert (ended.code, "Dropped" in ended.out) == (0, True)
    assert not client.exists(full)


def test_drop_without_a_confirmation_deletes_nothing(on_broker, client, name, full, monkeypatch):
    client.create_unpartitioned(full)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{full}\n"))
    ended = on_broker("drop", name)
    assert (ended.code, f"--confirm {full}" in ended.err) == (64, True)
    for confirm in (name, f"{full}x", full.upper(), "", "yes"):
        ended = on_broker("drop", name, "--confirm", confirm)
        assert (ended.code, "for all users" in ended.err) == (64, True)
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert on_broker("drop", name).code == 1
    assert client.exists(full)
    dropped = on_broker("drop", name, "--confirm", full, "--json")
    assert (dropped.code, dropped.json["topic"]) == (0, full)
    assert not client.exists(full)


@pytest.mark.parametrize("user", ["producer", "consumer", "reader"])
def test_a_topic_in_use_is_not_dropped(on_broker, client, name, full, user):
    on_broker("create", name, "--partitions", 3)
    one = f"{full}-partition-1"
    open_one = {
        "producer": lambda: closing(client.entry_producer(one)),
        "consumer": lambda: client.consumer(one, "billing"),
        "reader": lambda: client.reader(one),
    }[user]
    with open_one():
        ended = on_broker("drop", name, "--confirm", full)
        assert (ended.code, ended.out) == (1, "")
        assert f"in use: 1 {user}" in ended.err
        told = on_broker("describe", name, "--json").json
        assert told["partitions"] == 3
    ended = on_broker("drop", f"{name}-partition-1", "--confirm", one)
    assert (ended.code, f"Drop {full}." in ended.err) == (64, True)


@pytest.fixture(scope="module")
def guarded() -> Iterator[PulsarStandalone]:
    """A broker with authorization, and without topic-level policies."""
    config = {**CONFIG, "authorizationEnabled": "true", "topicLevelPoliciesEnabled": "false"}
    with PulsarStandalone(config=config, admin_token=ADMIN) as running:
        yield running


@pytest.mark.broker
def test_a_role_without_permission_gets_an_error_without_its_token(
    guarded, cli, name, tmp_path, monkeypatch
):
    monkeypatch.setenv("EOS_SERVICE_URL", guarded.service_url)
    monkeypatch.setenv("EOS_ADMIN_URL", guarded.admin_url)
    (tmp_path / "admin").write_text(ADMIN)
    assert cli("create", name, "--token-file", tmp_path / "admin").code == 0
    secret = token("reader")
    monkeypatch.setenv("EOS_TOKEN", secret)
    for args in (("list",), ("list", "public/default"), ("describe", name), ("peek", name)):
        ended = cli(*args)
        assert (ended.code, ended.out) == (2, "")
        assert "permissions of its role" in ended.err
        assert secret not in ended.err
    admin.call(
        guarded.admin_url,
        "POST",
        f"/v2/persistent/public/default/{name}/permissions/reader",
        ["consume"],
        token=ADMIN,
    )
    assert cli("peek", name).code == 0


@pytest.mark.broker
def test_without_topic_level_policies_only_the_retention_is_unknown(
    guarded, cli, name, full, monkeypatch
):
    monkeypatch.setenv("EOS_SERVICE_URL", guarded.service_url)
    monkeypatch.setenv("EOS_ADMIN_URL", guarded.admin_url)
    monkeypatch.setenv("EOS_TOKEN", ADMIN)
    assert cli("create", name, "--partitions", 2).code == 0
    told = cli("describe", name, "--json").json
    assert (told["partitions"], told["retention_minutes"]) == (2, None)
    assert "unknown: topic-level policies" in cli("describe", name).out
    assert cli("drop", name, "--confirm", full).code == 0
