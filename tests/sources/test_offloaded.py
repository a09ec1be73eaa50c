"""Ledgers in tiered storage, which the bookies no longer have, are read like all others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from eos import testing
from eos.client import PulsarClient
from eos.testing import PulsarStandalone
from tests.sources.conftest import run_to_end
from tests.support.admin import call
from tests.support.judge import drain
from tests.support.offloader import offloading

TOPIC = "offloaded"
PATH = f"/v2/persistent/public/default/{TOPIC}"
NAMESPACE = "/v2/namespaces/public/default"
PER_LEDGER = 20
Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[PulsarStandalone]:
    """A broker whose ledgers have ``PER_LEDGER`` entries, and which offloads on demand."""
    folder = tmp_path_factory.mktemp("offloaded")
    with PulsarStandalone(config=offloading(folder, entries_per_ledger=PER_LEDGER)) as running:
        yield running


@pytest.fixture(scope="module")
def ask(broker) -> Ask:
    return lambda method, path, body=None: call(broker.admin_url, method, PATH + path, body)


def write(broker: PulsarStandalone, rounds: range) -> None:
    """Write a few plain entries, committed and aborted transactions, in turn."""
    with PulsarClient(broker.service_url, timeout_s=20) as client:
        for number in rounds:
            producer = client.entry_producer(TOPIC, create=True)
            sent = [producer.send(b"plain %d %d" % (number, n)) for n in range(6)]
            for word, end in ((b"committed", "commit"), (b"aborted", "abort")):
                txn = client.transaction()
                inner = client.entry_producer(TOPIC)
                [inner.send(b"%s %d %d" % (word, number, n), txn=txn) for n in range(5)]
                inner.close()
                getattr(txn, end)()
            producer.close()
            assert all(one.result(timeout=20) for one in sent)


def offload(broker: PulsarStandalone, ask: Ask) -> int:
    """Offload all full ledgers; return how many are, after the bookies have deleted them."""
    deadline = time.monotonic() + 60
    testing.offload(broker, f"persistent://public/default/{TOPIC}")
    with deleting(broker):
        return deleted(ask, deadline)


@contextmanager
def deleting(broker: PulsarStandalone) -> Iterator[None]:
    """Delete offloaded ledgers from bookies. While this policy is set, the broker has no driver,
    so it can't offload or read; the broker's own setting has no effect (measured)."""
    call(broker.admin_url, "PUT", f"{NAMESPACE}/offloadDeletionLagMs", 0)
    try:
        yield
    finally:
        call(broker.admin_url, "DELETE", f"{NAMESPACE}/removeOffloadPolicies")
        call(broker.admin_url, "PUT", f"{PATH}/unload")


def deleted(ask: Ask, deadline: float) -> int:
    """Return the number of offloaded ledgers, once no bookie has one of them."""
    while True:
        ask("PUT", "/unload")
        ledgers = ask("GET", "/internalStats?metadata=true")["ledgers"]
        away = [one for one in ledgers if one["offloaded"]]
        if not any("metadata" in one for one in away):  # the bookies' own storage
            return len(away)
        assert time.monotonic() < deadline, ledgers
        ask("POST", "/trim")
        time.sleep(1)


@pytest.fixture(scope="module")
def away(broker, ask) -> int:
    """A topic with 6 rounds, all but its newest ledger offloaded."""
    with PulsarClient(broker.service_url, timeout_s=20) as client:
        client.entry_producer(TOPIC, create=True).close()
    ask("PUT", "/subscription/keeps-it", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1})
    write(broker, range(6))
    return offload(broker, ask)


def expected(broker: PulsarStandalone) -> list[bytes]:
    """The values that a plain client reads."""
    return without_sentinels([one.value for one in drain(broker.service_url, TOPIC)])


def without_sentinels(values: list[bytes]) -> list[bytes]:
    """Remove the sentinels of ``drain``, which have no values."""
    return [value for value in values if value]


@pytest.mark.parametrize("split", [{}, {"minPartitions": 4}], ids=["whole", "split"])
def test_a_batch_reads_offloaded_ledgers(spark, broker, away, split):
    assert away >= 4
    read = spark.read.format("pulsar").options(
        serviceUrl=broker.service_url, adminUrl=broker.admin_url, topic=TOPIC, **split
    )
    found = [bytes(row.value) for row in read.load().collect()]
    assert without_sentinels(found) == expected(broker)
    assert len(expected(broker)) == 6 * 11


def test_a_client_reads_offloaded_ledgers(broker, away):
    with PulsarClient(broker.service_url) as client, client.reader(TOPIC) as reader:
        found = [
            value.as_py() for batch in reader.read_to(reader.last_id) for value in batch["value"]
        ]
    assert without_sentinels(found) == expected(broker)


def test_a_stream_continues_in_an_offloaded_ledger(spark, broker, ask, away, tmp_path):
    epochs: dict[int, list[bytes]] = {}

    def note(df, epoch):
        epochs[epoch] = [bytes(row.value) for row in df.collect()]

    def run() -> None:
        read = spark.readStream.format("pulsar").options(
            serviceUrl=broker.service_url,
            adminUrl=broker.admin_url,
            topic=TOPIC,
            startingOffsets="earliest",
            maxEntriesPerTrigger=15,
        )
        run_to_end(read.load().writeStream.foreachBatch(note), tmp_path / "checkpoint", epochs)

    run()
    assert len(epochs) > away
    write(broker, range(6, 12))
    assert offload(broker, ask) > away
    run()
    found = [value for _, values in sorted(epochs.items()) for value in values]
    assert without_sentinels(found) == expected(broker)
    assert len(expected(broker)) == 12 * 11
