"""Ledgers in S3 are read without the broker, and are what ``pulsar-client`` reads through it."""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any

import boto3
import numpy as np
import pulsar
import pytest
from pyarrow import fs

from eos import TieredStorage, testing
from eos.client import PulsarClient, Reader
from eos.delta.folder import Bucket
from eos.errors import ConfigurationError, ProtocolError, TopicNotFound
from eos.ids import MessageId, TopicName
from eos.sources import tiered_storage
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._history_files import HistoryRange, read_history
from eos.sources._range_reader import read_range
from eos.sources._row_format import METADATA, RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._value_format import ValueFormat
from eos.sources.archive import Archive
from eos.testing import PulsarStandalone
from eos.wire.checksum import crc32c
from eos.wire.commands import MessageMetadata
from eos.wire.decoding import DeliveredEntry, TopicDecoder
from eos.wire.offloaded import DataParser, LedgerIndex
from tests.commit_log.test_s3 import KEYS, served, serving
from tests.support.admin import call
from tests.support.judge import drain, quiet_client
from tests.support.offloader import offloading_to_s3

BUCKET = "cold"
PER_LEDGER = 20
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """The S3 server's client; this process and the broker have its keys in their environment."""
    with served("examples.past.s3_server", "{port}") as url, pytest.MonkeyPatch.context() as patch:
        environment = {**KEYS, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1"}
        environment |= {"AWS_ALLOW_HTTP": "true", "ACCESS_KEY_ID": KEYS["AWS_ACCESS_KEY_ID"]}
        environment |= {"ACCESS_KEY_SECRET": KEYS["AWS_SECRET_ACCESS_KEY"]}
        for name, value in environment.items():
            patch.setenv(name, value)
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture(scope="module")
def broker(store, tmp_path_factory) -> Iterator[PulsarStandalone]:
    """A broker that offloads on demand, and adds its own metadata to entries."""
    folder = tmp_path_factory.mktemp("tiered")
    url = store.meta.endpoint_url
    config = offloading_to_s3(folder, url, BUCKET, entries_per_ledger=PER_LEDGER)
    interceptors = ("AppendIndexMetadataInterceptor", "AppendBrokerTimestampMetadataInterceptor")
    config["brokerEntryMetadataInterceptors"] = ",".join(
        f"org.apache.pulsar.common.intercept.{name}" for name in interceptors
    )
    # Else it would read what a test has damaged.
    config["managedLedgerDataReadPriority"] = "bookkeeper-first"
    with PulsarStandalone(config=config) as running:
        yield running


@pytest.fixture
def path(name: str) -> str:
    return f"/v2/persistent/public/default/{name}"


@pytest.fixture
def topic(broker, name, path) -> str:
    """A topic that keeps its messages."""
    with PulsarClient(broker.service_url, timeout_s=20) as client:
        client.entry_producer(name, create=True).close()
    first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
    call(broker.admin_url, "PUT", f"{path}/subscription/keeps-it", first)
    return name


@pytest.fixture
def offload(broker, path, topic, store) -> Callable[[], list[str]]:
    """Offloads all full ledgers; returns the names of the data objects, in order."""

    def offload() -> list[str]:
        testing.offload(broker, f"persistent://public/default/{topic}")
        stored = call(broker.admin_url, "GET", f"{path}/internal-info")["ledgers"]
        return [
            f"{one['offloadedContextUuid']}-ledger-{one['ledgerId']}"
            for one in sorted(stored, key=lambda one: one["ledgerId"])
            if one["isOffloaded"]
        ]

    return offload


@pytest.fixture
def asked(monkeypatch) -> list[Any]:
    """What of ranges was read through the broker. Each ledger is large enough for direct reads."""
    asked: list[Any] = []
    through = Reader._read_to

    def noted(reader: Any, end: MessageId) -> Any:
        if reader._returned is None or reader._returned <= end.place:
            asked.append((reader._returned, end.place))
        return through(reader, end)

    monkeypatch.setattr(Reader, "_read_to", noted)
    monkeypatch.setattr(tiered_storage, "_MIN_BYTES", 0)
    return asked


@pytest.fixture
def read(broker) -> Callable[..., list[Row]]:
    """Reads a topic in this process, with tiered storage; returns its rows."""

    def read(topic: str, **more: str | None) -> list[Row]:
        chosen = given(broker, topic) | more
        options = SourceOptions.parse({k: v for k, v in chosen.items() if v is not None})
        form = RowFormat(ValueFormat(None, None, options.mode), ("value", *METADATA))
        with closing(EpochPlanner(options, form)) as planner:
            tasks = planner.tasks(planner.bounded())
        batches: list[Any] = []
        for task in tasks:
            if isinstance(task, HistoryRange):
                batches += read_history(options, form, task)
            else:
                batches += chain.from_iterable(read_range(options, form, one) for one in task)
        found = []
        for row in chain.from_iterable(batch.to_pylist() for batch in batches):
            place = pulsar.MessageId.deserialize(row["__messageId"])
            found.append(
                (
                    (place.ledger_id(), place.entry_id(), place.batch_index()),
                    row["value"] or b"",
                    (row["__key"] or b"").decode(),
                    dict(row["__messageProperties"] or ()),
                )
            )
        return [row for row in found if "judge" not in row[-1]]  # sentinels of `drain`

    return read


def given(broker: PulsarStandalone, topic: str) -> dict[str, str]:
    """The options of a read with tiered storage."""
    return {
        "serviceUrl": broker.service_url,
        "adminUrl": broker.admin_url,
        "topic": topic,
        "tieredStorage": f"s3://{BUCKET}",
    }


def expected(broker: PulsarStandalone, topic: str) -> list[Row]:
    """The same rows by ``pulsar-client``, without the sentinels of ``drain``."""
    return [
        (one.position, one.value, one.key, one.properties)
        for one in drain(broker.service_url, topic)
    ]


def write_mix(broker: PulsarStandalone, topic: str, seed: int) -> None:
    """Messages of many kinds by ``pulsar-client`` and by eos, in and out of transactions."""
    chance = random.Random(seed)
    kinds = pulsar.CompressionType
    with (
        closing(quiet_client(broker.service_url)) as plain,
        PulsarClient(broker.service_url, timeout_s=20) as client,
    ):
        open_ones: list[Any] = []
        for number in range(30):
            if chance.random() < 0.4:
                codec = chance.choice([kinds.NONE, kinds.LZ4, kinds.ZLib, kinds.ZSTD, kinds.SNAPPY])
                producer = plain.create_producer(
                    topic,
                    compression_type=codec,
                    batching_enabled=chance.random() < 0.7,
                    batching_max_messages=chance.randint(2, 9),
                )
                for index in range(chance.randint(1, 12)):
                    size = chance.choice([0, 1, 100, 100, 5000])
                    producer.send_async(
                        b"%d %d " % (number, index) + chance.randbytes(size),
                        lambda *_: None,
                        partition_key=chance.choice([None, "k", "schlüssel"]),
                        properties=chance.choice([None, {"a": "b", "ü": ""}]),
                    )
                producer.flush()
                producer.close()
                continue
            if chance.random() < 0.4:
                open_ones.append(client.transaction(timeout_s=600))
            txn = chance.choice([None, *open_ones])
            with closing(client.entry_producer(topic)) as producer:
                for index in range(chance.randint(1, 7)):
                    value = b"%d %d" % (number, index) + bytes(chance.choice([10, 300_000]))
                    producer.send(value, txn=txn).result(timeout=20)
            if open_ones and chance.random() < 0.5:
                ended = open_ones.pop(chance.randrange(len(open_ones)))
                chance.choice([ended.commit, ended.abort])()
        for txn in open_ones:
            chance.choice([txn.commit, txn.abort])()


@pytest.mark.parametrize("seed", range(int(os.environ.get("EOS_RANDOM_TOPICS", "2"))))
def test_random_topics_are_the_same_by_each_way(
    broker, topic, offload, read, asked, tmp_path, seed
):
    """Through the broker, from the bucket, an archive and the rest; by ``pulsar-client``."""
    write_mix(broker, topic, seed)
    objects = offload()
    assert len(objects) >= 3
    with Archive(given(broker, topic), str(tmp_path / "past"), part_bytes=300_000) as archive:
        archive.limit()
        while archive.add():
            pass
    write_mix(broker, topic, seed + 1_000_000)
    wanted = expected(broker, topic)
    assert len(wanted) > 100
    asked.clear()
    assert read(topic) == wanted
    # Only the rest that is in no object.
    assert [place > (int(objects[-1].rpartition("-")[2]), 0) for place, _ in asked] == [True]
    for more in ({"minPartitions": "3"}, {"minPartitions": "7"}, {"tieredStorage": None}):
        assert read(topic, **more) == wanted
    found = read(topic, history=str(tmp_path / "past"))
    assert sorted(found, key=lambda row: row[0]) == wanted
    values = [row[1] for row in wanted]
    assert list(by_reader(broker, topic, interruptions=5)) == values
    asked.clear()
    assert list(by_reader(broker, topic, interruptions=0)) == values
    assert asked == []  # it waits for what comes after storage, and is not sent what is there


def by_reader(broker: PulsarStandalone, topic: str, *, interruptions: int) -> Iterator[bytes]:
    """Values by a client's reader, which is left after a batch and begun again, and then waits."""
    storage = TieredStorage(f"s3://{BUCKET}", admin_url=broker.admin_url)
    with (
        PulsarClient(broker.service_url, timeout_s=20) as client,
        client.reader(topic, columns=("value", "properties"), storage=storage) as reader,
    ):
        batches = iter(())
        for _ in range(interruptions):
            batch = next(reader.read_to(reader.last_id))
            batches = chain(batches, [batch])
        for batch in chain(batches, to_its_end(reader)):
            for row in batch.to_pylist():
                if "judge" not in dict(row["properties"] or ()):
                    yield row["value"] or b""


def to_its_end(reader: Reader) -> Iterator[Any]:
    """Read without an end, and stop after the entry that is the last one now."""
    last = reader.last_id
    for batch in reader.read(idle_s=20):
        yield batch
        if last is not None and reader.next_id is not None and reader.next_id > last:
            return


def plain_entries(broker: PulsarStandalone, topic: str, count: int, size: int = 10) -> None:
    with (
        PulsarClient(broker.service_url, timeout_s=20) as client,
        closing(client.entry_producer(topic)) as producer,
    ):
        for number in range(count):
            producer.send(b"%d " % number + bytes(size)).result(timeout=20)


def delete_data(store, names):
    store.delete_object(Bucket=BUCKET, Key=names[1])


def delete_index(store, names):
    store.delete_object(Bucket=BUCKET, Key=f"{names[1]}-index")


def changed(store, key: str, change: Callable[[bytes], bytes]) -> None:
    body = store.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    store.put_object(Bucket=BUCKET, Key=key, Body=change(body))


def cut(store, names):
    changed(store, names[1], lambda body: body[:-200])


def flip_a_value(store, names):
    # The end of the last value: the broker's own metadata have no checksum.
    changed(store, names[1], lambda body: body[:-5] + bytes([body[-5] ^ 1]) + body[-4:])


def flip_an_entry_id(store, names):
    changed(store, names[1], lambda body: body[:139] + b"\7" + body[140:])


def other_version(store, names):
    changed(store, f"{names[1]}-index", lambda body: b"\x3d\x1f\xb0\xbc" + body[4:])


def empty_index(store, names):
    changed(store, f"{names[1]}-index", lambda _: b"")


@pytest.mark.parametrize(
    "damage",
    [delete_data, delete_index, cut, flip_a_value, flip_an_entry_id, other_version, empty_index],
)
def test_what_is_wrong_in_the_bucket_is_read_through_the_broker(
    broker, topic, offload, read, asked, store, caplog, damage
):
    plain_entries(broker, topic, 3 * PER_LEDGER + 5)
    wanted = expected(broker, topic)  # from the bookies, which still have all
    names = offload()
    assert read(topic) == wanted
    assert len(asked) == 1
    asked.clear()
    damage(store, names)
    assert read(topic) == wanted
    assert len(asked) == 1
    assert asked[0][0] == (int(names[0].rpartition("-")[2]), PER_LEDGER)
    assert "can't be read from tiered storage" in caplog.text


def test_an_object_of_another_topic_is_not_taken(
    broker, topic, offload, read, asked, store, caplog, name
):
    plain_entries(broker, topic, PER_LEDGER + 1)
    wanted = expected(broker, topic)
    (mine,) = offload()
    for key in (mine, f"{mine}-index"):
        changed(store, key, lambda body: body)
    changed(store, f"{mine}-index", lambda body: body.replace(name.encode(), b"x" * len(name)))
    assert read(topic) == wanted
    assert "its object is of 'public/default/persistent/xxx" in caplog.text


@pytest.mark.parametrize("size", [300_000, 600_000])
@pytest.mark.parametrize("more", [0, 1])
def test_data_of_another_ledger_are_not_taken(
    broker, topic, offload, read, asked, store, caplog, size, more
):
    """With as many entries and, thanks to the padding of blocks, about as many bytes."""
    plain_entries(broker, topic, PER_LEDGER, size=size)
    plain_entries(broker, topic, PER_LEDGER - 1, size=size + 1)
    plain_entries(broker, topic, 1, size=size + 1 + more * 5)
    plain_entries(broker, topic, 1)
    wanted = expected(broker, topic)
    one, other = offload()
    foreign = store.get_object(Bucket=BUCKET, Key=other)["Body"].read()
    changed(store, one, lambda body: foreign[: len(body)])
    if size == 300_000:  # Seen before a row is given.
        assert read(topic) == wanted
        assert "can't be read from tiered storage" in caplog.text
    else:
        with pytest.raises(ProtocolError, match="has other data for ledger"):
            read(topic)


def test_a_transaction_that_the_broker_does_not_know_costs_no_read(
    broker, topic, offload, read, asked, monkeypatch
):
    """The admin API answers 404 while a topic is not loaded."""
    with (
        PulsarClient(broker.service_url, timeout_s=20) as client,
        closing(client.entry_producer(topic)) as producer,
        client.transaction(timeout_s=60) as txn,
    ):
        for number in range(PER_LEDGER + 1):
            producer.send(b"%d" % number, txn=txn).result(timeout=20)
        offload()
    wanted = expected(broker, topic)

    def refuse(*_: object) -> bool:
        raise TopicNotFound("not loaded")

    monkeypatch.setattr("eos.admin._admin_client.AdminClient.is_aborted", refuse)
    assert read(topic) == wanted
    assert len(wanted) == PER_LEDGER + 1


@pytest.mark.parametrize("loaded", [[None, 2], [1, None], [1, 2], [1, 1]])
def test_a_broker_that_is_loading_the_topic_is_not_believed(
    broker, topic, offload, read, asked, monkeypatch, caplog, loaded
):
    """It calls no transaction aborted, until it has replayed the topic; or open, within that."""
    with (
        PulsarClient(broker.service_url, timeout_s=20) as client,
        closing(client.entry_producer(topic)) as producer,
    ):
        txn = client.transaction(timeout_s=60)
        for number in range(PER_LEDGER + 1):
            producer.send(b"%d" % number, txn=txn).result(timeout=20)
        txn.abort()
    plain_entries(broker, topic, PER_LEDGER)
    offload()
    wanted = expected(broker, topic)
    is_open = loaded == [1, 1]
    client_type, times = "eos.admin._admin_client.AdminClient", iter(loaded)
    monkeypatch.setattr(f"{client_type}.is_aborted", lambda *_: None if is_open else False)
    monkeypatch.setattr(f"{client_type}.buffer_loaded_ms", lambda *_: next(times))
    assert read(topic) == wanted
    assert len(wanted) == PER_LEDGER
    assert "does not know yet how transaction" in caplog.text


def test_blocks_and_small_memory(broker, topic, offload, read, asked, monkeypatch):
    plain_entries(broker, topic, PER_LEDGER, size=400_000)
    with PulsarClient(broker.service_url, timeout_s=20) as client:
        one, other = client.transaction(timeout_s=60), client.transaction(timeout_s=60)
        with closing(client.entry_producer(topic)) as producer:
            for number in range(PER_LEDGER):
                txn = (one, other, None)[number % 3]
                producer.send(b"%d" % number + bytes(400_000), txn=txn).result(timeout=20)
        one.commit()
        other.abort()
    plain_entries(broker, topic, PER_LEDGER)
    names = offload()
    wanted = expected(broker, topic)
    for held in (64 << 20, 1):
        monkeypatch.setattr(tiered_storage, "_MAX_HELD_BYTES", held)
        assert read(topic) == wanted
    assert len(names) == 3
    assert all(place > (int(names[-1].rpartition("-")[2]), 0) for place, _ in asked)


def test_a_range_that_begins_late_in_a_block_comes_from_the_broker(
    broker, topic, offload, read, asked
):
    plain_entries(broker, topic, 3 * PER_LEDGER)
    first = int(offload()[0].rpartition("-")[2])
    rows = read(topic, startingOffsets=f'{{"{topic}": "{first}:15"}}')
    assert rows == [row for row in expected(broker, topic) if row[0] >= (first, 15)]
    assert asked[0][0] == (first, 15)


def test_a_store_that_does_not_answer_costs_a_warning(
    broker, topic, offload, read, asked, caplog, monkeypatch
):
    plain_entries(broker, topic, PER_LEDGER + 1)
    offload()
    wanted = expected(broker, topic)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert read(topic) == wanted
    assert "can't be read from tiered storage" in caplog.text
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in caplog.text


def google(url: str) -> tuple[dict[str, str], Any]:
    """What clients' environment needs for the server, and how the bucket is made there."""
    where = {"endpoint_override": url.partition("://")[2], "scheme": "http", "anonymous": True}
    return {"STORAGE_EMULATOR_HOST": url}, lambda: fs.GcsFileSystem(project_id="test", **where)


def azure(url: str) -> tuple[dict[str, str], Any]:
    """The same; account and key are those of all emulators."""
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
    server = {"AZURITE_BLOB_STORAGE_URL": url, "AZURE_STORAGE_ACCOUNT_KEY": key}
    return server, lambda: Bucket(AZURE)._open()


AZURE = f"abfss://{BUCKET}@devstoreaccount1.dfs.core.windows.net"
AZURITE = "azurite-blob --blobPort {port} --inMemoryPersistence --disableTelemetry --silent"
FAKE_GCS = "fake-gcs-server -scheme http -host 127.0.0.1 -port {port} -public-host 127.0.0.1:{port}"
CLOUDS = [
    (f"{FAKE_GCS} -backend memory", google, f"gs://{BUCKET}"),
    (f"{AZURITE} --skipApiVersionCheck", azure, AZURE),
]


@pytest.mark.parametrize(("command", "cloud", "uri"), CLOUDS, ids=["google", "azure"])
def test_other_clouds_have_the_same_objects(
    command, cloud, uri, broker, topic, offload, read, asked, store, monkeypatch
):
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"{command.split()[0]} is not installed")
    plain_entries(broker, topic, 2 * PER_LEDGER + 3)
    names = offload()
    wanted = expected(broker, topic)
    with serving(*command.split()) as url:
        server, open_system = cloud(url)
        for name, value in server.items():
            monkeypatch.setenv(name, value)
        system = open_system()
        system.create_dir(BUCKET)
        for name in (*names, *(f"{name}-index" for name in names)):
            with system.open_output_stream(f"{BUCKET}/{name}") as stream:
                stream.write(store.get_object(Bucket=BUCKET, Key=name)["Body"].read())
        asked.clear()
        assert read(topic, tieredStorage=uri) == wanted
    assert [place > (int(names[-1].rpartition("-")[2]), 0) for place, _ in asked] == [True]


def test_without_the_admin_api_the_broker_is_asked(broker, topic, tmp_path, caplog):
    with PulsarClient(broker.service_url) as client:
        producer = client.entry_producer(topic, create=True)
        producer.send(b"all of it").result()
        producer.close()
        storage = TieredStorage(str(tmp_path), admin_url="http://127.0.0.1:1", timeout_s=1)
        with client.reader(topic, storage=storage) as reader:
            batches = list(reader.read_to(reader.last_id))
    assert [row for one in batches for row in one.column(0).to_pylist()] == [b"all of it"]
    assert "Tiered storage is not used" in caplog.text


@pytest.mark.parametrize("uri", ["gs://", "gs://a/b", "abfss://c@a.blob.core.windows.net", "cold"])
def test_what_is_no_bucket_is_refused(uri):
    options = {"serviceUrl": "pulsar://h:1", "adminUrl": "http://h:1", "topic": "t"}
    with pytest.raises(ConfigurationError, match="tieredStorage names no bucket"):
        SourceOptions.parse(options | {"tieredStorage": uri})


def test_spark_reads_large_ledgers_directly(spark, broker, topic, offload, store, tmp_path):
    """From a folder with the bucket's objects: the session has no keys."""
    plain_entries(broker, topic, PER_LEDGER + 3, size=600_000)
    (data,) = offload()
    for key in (data, f"{data}-index"):
        store.download_file(BUCKET, key, str(tmp_path / key))
    wanted = [row[1] for row in expected(broker, topic)]
    frame = spark.read.format("pulsar").options(
        serviceUrl=broker.service_url,
        adminUrl=broker.admin_url,
        topic=topic,
        tieredStorage=str(tmp_path),
    )

    def values() -> list[bytes]:
        return [row.value for row in frame.load().collect() if row.value]

    assert values() == wanted
    # Other values prove where they come from.
    parser = DataParser(LedgerIndex.parse((tmp_path / f"{data}-index").read_bytes()), 0)
    changed_body = bytearray((tmp_path / data).read_bytes())
    for entry in parser.parse(memoryview(bytes(changed_body))):
        changed_body[entry.end - 1] = ord("x")
        start = changed_body.index(b"\x0e\x01", entry.start) + 6
        crc = crc32c(memoryview(changed_body)[start : entry.end])
        changed_body[start - 4 : start] = struct.pack(">I", crc)
    (tmp_path / data).write_bytes(changed_body)
    assert [one[-1:] for one in values()] == [b"x"] * PER_LEDGER + [b"\0"] * 3


def test_plain_rows_do_not_belong_to_transaction_zero():
    """(0,0) is the first transaction of a cluster; an entry outside of transactions has no id."""

    def no_admin() -> Any:
        raise AssertionError

    decoder = TopicDecoder(("value",))
    waiting = tiered_storage._Waiting(no_admin, TopicName.parse("t"), decoder)

    def entry(number: int, **more: Any) -> DeliveredEntry:
        metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=0, **more)
        start = number * 10
        parsed = MessageMetadata.parse(metadata.encode())
        return DeliveredEntry(MessageId(1, number), parsed, start, start + 10)

    zero = {"txnid_most": 0, "txnid_least": 0}
    buffer = np.frombuffer(b"0123456789" * 3 + bytes(8), np.uint8)
    plain, inside, marker = entry(0), entry(1, **zero), entry(2, **zero, marker_type=22)
    found = list(waiting.add(buffer, [plain, inside]))
    assert [one.batch["value"].to_pylist() for one in found] == [[b"0123456789"]]
    assert list(waiting.add(buffer, [marker])) == []
    assert list(waiting.rest()) == []
    (last,) = waiting.add(buffer, [plain, inside])
    assert last.batch.num_rows == 1
