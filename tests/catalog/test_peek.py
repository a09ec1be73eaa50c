"""``eos catalog peek``: which messages it shows and how; it does not hang, and cleans up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, JsonSchema, Record, String

from eos.admin import AdminClient, Ledger
from eos.catalog import _peek_reader
from eos.catalog._json_values import ValueDecoder
from eos.catalog._peek_reader import RawMessage, _backwards
from eos.client import Bounds, PulsarClient
from eos.ids import MessageId, TopicName
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from eos.wire.commands import SchemaInfo, SchemaType
from tests.support import admin
from tests.support.encrypted import send_encrypted
from tests.support.hostile import send_inflating

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mred\x7f\u202e\nfaked: line"


class Order(Record):
    """A record of another producer."""

    id = Integer(required=True)
    name = String()


class LaterOrder(Record):
    """With one more field."""

    id = Integer(required=True)
    name = String()
    note = String(required_default=True)


@pytest.fixture
def produce(pulsar_standalone: PulsarStandalone, name: str) -> Callable[..., None]:
    """Sends values by ``pulsar-client``."""

    def produce(*values, schema=None, topic=name, **how):
        client = pulsar.Client(pulsar_standalone.service_url)
        schema = schema or pulsar.schema.BytesSchema()
        try:
            producer = client.create_producer(topic, schema=schema, **how)
            for value in values:
                producer.send(value, partition_key="k")
        finally:
            client.close()

    return produce


def fill(client: PulsarClient, topic: str, count: int, *, batch: int = 1) -> None:
    """Send values ``0`` to ``count`` - 1, ``batch`` of them in an entry."""
    with client.producer(
        topic, create=True, linger_ms=10_000, max_batch_messages=batch
    ) as producer:
        for number in range(count):
            producer.send(str(number).encode(), key="k")


def values(ended) -> list[object]:
    assert ended.code == 0, ended.err
    return [one["value"] for one in ended.json["messages"]]


@pytest.mark.parametrize("batch", [1, 7, 100])
def test_the_last_messages_and_the_first_ones(on_broker, client, name, batch):
    fill(client, name, 50, batch=batch)
    everything = [str(number) for number in range(50)]
    for count in (1, 3, 49, 50, 1000):
        last = on_broker("peek", name, "-n", count, "--json")
        assert values(last) == everything[-count:]
        first = on_broker("peek", name, "-n", count, "--from", "earliest", "--json")
        assert values(first) == everything[:count]


def test_messages_from_a_place_or_a_time(on_broker, client, name):
    fill(client, name, 3)
    time.sleep(0.01)  # so that the time is in between
    between = time.time_ns() // 1_000_000
    fill(client, name, 2)
    found = on_broker("peek", name, "--json").json["messages"]
    ledger, entry, *_ = found[1]["id"].split(":")
    assert values(on_broker("peek", name, "--from", f"{ledger}:{entry}", "-n", 2, "--json")) == [
        "1", "2",
    ]  # fmt: skip
    for moment in (between, "2020-01-01T00:00:00Z", "2100-01-01T00:00:00+01:00"):
        shown = values(on_broker("peek", name, "--from", moment, "--json"))
        assert len(shown) == {between: 2, "2020-01-01T00:00:00Z": 5}.get(moment, 0)
    assert values(on_broker("peek", name, "--from", f"{int(ledger) + 10**6}:0", "--json")) == []
    ended = on_broker("peek", name, "--from", "2026-11-24T10:00:00")
    assert (ended.code, "with its zone" in ended.err) == (64, True)


def test_the_last_messages_are_found_over_ledgers_and_aborted_ones(
    on_broker, pulsar_standalone, client, name
):
    fill(client, name, 4)
    for _ in range(2):
        admin.call(
            pulsar_standalone.admin_url, "PUT", f"/v2/persistent/public/default/{name}/unload"
        )
        fill(client, name, 2)
    with client.producer(name) as producer:
        txn = client.transaction(timeout_s=60)
        for _ in range(30):
            producer.send(b"aborted", txn=txn)
        txn.abort()
        producer.send(b"end")
    assert values(on_broker("peek", name, "-n", 4, "--json")) == ["1", "0", "1", "end"]
    assert len(values(on_broker("peek", name, "-n", 50, "--json"))) == 9


def test_an_open_transaction_is_not_waited_for(on_broker, client, name):
    fill(client, name, 2)
    txn = client.transaction(timeout_s=60)
    with client.producer(name) as producer:
        producer.send(b"open", txn=txn).result(timeout=20)
        producer.send(b"behind").result(timeout=20)
        for where in ("latest", "earliest", "2020-01-01T00:00:00Z"):
            begun = time.monotonic()
            assert values(on_broker("peek", name, "--from", where, "--json")) == ["0", "1"]
            assert time.monotonic() - begun < 18
        txn.abort()


@pytest.mark.parametrize("partitions", [0, 3])
def test_an_empty_topic_is_no_error(on_broker, name, partitions):
    assert on_broker("create", name, "--partitions", partitions).code == 0
    for where in ("latest", "earliest", "2020-01-01T00:00:00Z"):
        assert on_broker("peek", name, "--from", where, "--json").json["messages"] == []
    assert "nothing to read" in on_broker("peek", name).out


def test_a_topic_with_only_an_open_transaction_is_empty(on_broker, client, name):
    with client.producer(name, create=True) as producer:
        txn = client.transaction(timeout_s=60)
        producer.send(b"open", txn=txn).result(timeout=20)
        assert on_broker("peek", name, "--json").json["messages"] == []
        txn.abort()


def test_partitions_are_merged(on_broker, client, name):
    assert on_broker("create", name, "--partitions", 3).code == 0
    for number in range(12):
        with closing(client.entry_producer(f"{name}-partition-{number % 3}")) as producer:
            producer.send(str(number).encode()).result(timeout=20)
    everything = [str(number) for number in range(12)]
    assert values(on_broker("peek", name, "-n", 5, "--json")) == everything[-5:]
    assert (
        values(on_broker("peek", name, "-n", 5, "--from", "earliest", "--json")) == (everything[:5])
    )
    found = on_broker("peek", name, "-n", 1, "--json").json["messages"]
    assert (found[0]["partition"], found[0]["id"].split(":")[2]) == (2, "2")
    assert values(on_broker("peek", f"{name}-partition-1", "--json")) == everything[1::3]
    place = ":".join(found[0]["id"].split(":")[:2])
    ended = on_broker("peek", name, "--from", place)
    assert (ended.code, f"{name}-partition-0" in ended.err) == (64, True)
    assert values(on_broker("peek", f"{name}-partition-2", "--from", place, "--json")) == ["11"]


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_each_message_is_decoded_by_its_own_version(on_broker, produce, name, kind):
    produce(Order(id=1, name="one"), schema=kind(Order))
    produce(LaterOrder(id=2, name="two", note="n"), schema=kind(LaterOrder))
    found = on_broker("peek", name, "--json").json["messages"]
    assert [one["value"] for one in found] == [
        {"id": 1, "name": "one"}, {"id": 2, "name": "two", "note": "n"},
    ]  # fmt: skip
    assert [one["schema_version"] for one in found] == [0, 1]
    assert found[0]["schema_type"] == kind.__name__.removesuffix("Schema").lower()
    shown = on_broker("peek", name).out
    assert '{"id": 1, "name": "one"}' in shown
    assert "key=k" in shown


def test_undecodable_values_are_shown_with_the_reason(on_broker, client, produce, name):
    produce(Order(id=1, name="one"), schema=JsonSchema(Order))
    with client.producer(name) as producer:
        producer.send(b"no json")
        producer.send(b"\xff\x00")
    found = on_broker("peek", name, "--json").json["messages"]
    assert [(one["value"], one["value_hex"]) for one in found[1:]] == [
        ("no json", None), (None, "ff00"),
    ]  # fmt: skip
    assert all(one["problem"] for one in found[1:])
    shown = on_broker("peek", name)
    assert shown.code == 0
    assert found[1]["problem"] in shown.out
    assert "0xff00" in shown.out


def test_an_unreadable_entry_is_named_and_skipped(
    on_broker, pulsar_standalone, client, name, tmp_path
):
    fill(client, name, 1)
    send_encrypted(pulsar_standalone.service_url, name, tmp_path)
    fill(client, name, 1)
    for where in ("latest", "earliest"):
        found = on_broker("peek", name, "--from", where, "--json").json["messages"]
        assert [one["value"] for one in found] == ["0", None, "0"]
        assert "encrypted" in found[1]["problem"]
    assert values(on_broker("peek", name, "-n", 1, "--json")) == ["0"]


def test_bytes_are_shown_as_text_or_hexadecimal(on_broker, client, name):
    with closing(client.entry_producer(name, create=True)) as producer:
        for value in ("Grüße".encode(), b"\xff\xfe", b"\x00\x01", b""):
            producer.send(value).result(timeout=20)
    found = on_broker("peek", name, "--json").json["messages"]
    assert [(one["value"], one["value_hex"]) for one in found] == [
        ("Grüße", None), (None, "fffe"), (None, "0001"), ("", None),
    ]  # fmt: skip


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_control_characters_never_reach_the_terminal(on_broker, pulsar_standalone, name, more):
    sender = pulsar.Client(pulsar_standalone.service_url)
    try:
        producer = sender.create_producer(name)
        properties = {HOSTILE: HOSTILE}
        producer.send(HOSTILE.encode(), partition_key=HOSTILE, properties=properties)
        producer = sender.create_producer(
            name + "-schema", schema=pulsar.schema.StringSchema(), producer_name=None
        )
        producer.send(HOSTILE)
    finally:
        sender.close()
    for topic in (name, name + "-schema"):
        ended = on_broker("peek", topic, *more)
        assert ended.code == 0
        assert "owned" in ended.raw
        assert all(char.isprintable() or char == "\n" for char in ended.raw)
        assert not any(line.startswith("faked") for line in ended.raw.splitlines())
        if more:
            assert ended.json["messages"][0]["value"] == HOSTILE


def test_long_values_are_cut_at_the_terminals_width(on_broker, client, name, monkeypatch):
    with client.producer(name, create=True) as producer:
        producer.send(b"x" * 100_000)
    monkeypatch.setenv("COLUMNS", "40")
    assert max(map(len, on_broker("peek", name).raw.splitlines())) <= 40
    assert len(values(on_broker("peek", name, "--json"))[0]) == 100_000


def test_no_subscription_remains(on_broker, pulsar_standalone, client, name):
    fill(client, name, 20)
    for where in ("latest", "earliest", "2020-01-01T00:00:00Z"):
        on_broker("peek", name, "-n", 2, "--from", where)
    api = AdminClient(pulsar_standalone.admin_url, Auth(), timeout_s=20)
    topic = TopicName.parse(name)
    deadline = time.monotonic() + 60
    while (stats := api.topic_stats(topic, is_partitioned=False)).readers:
        assert time.monotonic() < deadline
    assert stats.subscriptions == ()
    assert api.subscriptions(topic) == []


def test_memory_is_bounded_with_a_note(on_broker, client, name, monkeypatch):
    fill(client, name, 20)
    monkeypatch.setattr(_peek_reader, "MAX_BYTES", 3 << 20)
    with client.producer(name) as producer:
        for number in range(4):
            producer.send(str(number).encode() * (1 << 20))
    for where, first in (("latest", "2"), ("earliest", "0")):
        ended = on_broker("peek", name, "-n", 100, "--from", where, "--json")
        assert ended.code == 2
        assert "More than 3 MiB" in ended.json["notes"][0]
        assert ended.json["messages"][0]["value"][0] == first


def test_a_long_value_is_not_shown(on_broker, client, name):
    send_inflating(client, name, [b"before", bytes(50 << 20), b"behind"])
    for where in ("latest", "earliest"):
        ended = on_broker("peek", name, "-n", 3, "--from", where, "--json")
        before, long, behind = ended.json["messages"]
        assert (ended.code, before["value"], behind["value"]) == (0, "before", "behind")
        assert (long["value"], long["value_hex"]) == (None, None)
        assert long["problem"] == "The value of 52,428,800 bytes is too long to be shown."


def test_large_decoded_values_are_not_shown():
    """Each item of a list is one byte, and 32 as an object."""
    items, version = b"\x80\xea\x30" + bytes(400_000) + b"\0", bytes(8)
    field = {"name": "a", "type": {"type": "array", "items": "int"}}
    definition = json.dumps({"type": "record", "name": "r", "fields": [field]}).encode()
    info = SchemaInfo(type=SchemaType.AVRO, data=definition)
    lookup = SimpleNamespace(schema=lambda *_: (info, version))
    decoder = ValueDecoder(SimpleNamespace(lookup=lookup), TopicName.parse("t"))
    message = RawMessage(MessageId(1, 1), value=items, schema_version=version)
    shown = [decoder.decode(message) for _ in range(3)]
    assert shown[0].value == {"a": [0] * 400_000}
    assert [(one.value, one.problem) for one in shown[1:]] == [
        (None, "The decoded value is too large to be shown.")
    ] * 2


def test_it_ends_at_the_timeout_with_a_note(on_broker, client, name, monkeypatch):
    fill(client, name, 5)
    for looks in range(6):
        clock = iter([0.0] * looks)
        stopped = SimpleNamespace(monotonic=lambda clock=clock: next(clock, float("inf")))
        monkeypatch.setattr(_peek_reader, "time", stopped)
        for where in ("latest", "earliest"):
            ended = on_broker("peek", name, "-n", 5, "--from", where, "--json")
            if ended.code == 0:
                assert len(ended.json["messages"]) == 5
                continue
            assert (ended.code, "--timeout-s" in str(ended.json["notes"])) == (2, True)


def test_a_missing_topic_exits_with_64_and_is_not_created(on_broker, name):
    for topic in (name, f"{name}-partition-3", f"public/nowhere/{name}"):
        ended = on_broker("peek", topic)
        assert ended.code == 64
        assert f"There is no topic persistent://public/{topic.removeprefix('public/')}" in (
            ended.err.replace("public/default/", "public/")
        )
    assert on_broker("peek", name).code == 64


def test_spans_go_back_over_ledgers_and_grow():
    ledgers = [Ledger(1, 5, 0), Ledger(3, 0, 0), Ledger(4, 9, 0)]
    spans = list(_backwards(ledgers, Bounds((1, 2), MessageId(4, 6)), 2))
    assert spans == [((4, 5), (4, 6)), ((4, 1), (4, 4)), ((4, 0), (4, 0)), ((1, 2), (1, 4))]
    assert list(_backwards(ledgers, Bounds((4, -1), MessageId(4, 0)), 5)) == [((4, 0), (4, 0))]
