"""Advertised listeners: brokers whose own address is not reached from here."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from eos import PulsarSink
from eos.catalog.cli import main as catalog_main
from eos.client import PulsarClient
from eos.client.aio import AsyncPulsarClient
from eos.errors import ConnectionLost
from eos.recovery.cli import main as recovery_main
from eos.testing import PulsarCluster
from eos.transport.address import ClusterRules
from tests.support.command_line import command_line
from tests.support.gate import gate
from tests.support.plain_driver import PlainDriver

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(400)]
EXTERNAL = ClusterRules(listener_name="external")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def cluster() -> Iterator[PulsarCluster]:
    """A broker whose internal address admits only the broker itself. A standalone would not do: it
    always sends its clients to the service URL."""
    port = free_port()
    running: list[PulsarCluster] = []
    with gate(port, lambda: running[0].brokers[0].pid) as inside:
        config = {
            "advertisedListeners": f"internal:pulsar://127.0.0.1:{inside},"
            f"external:pulsar://127.0.0.1:{port}",
            "internalListenerName": "internal",
        }
        running.append(PulsarCluster(1, 1, config=config, port=port))
        with running[0] as cluster:
            yield cluster


@pytest.fixture
def topic(cluster: PulsarCluster, name: str) -> str:
    cluster.admin("PUT", f"/v2/persistent/public/default/{name}/partitions", 2)
    return f"persistent://public/default/{name}"


def test_without_the_listener_the_internal_address_is_named(cluster, topic):
    without, said = PulsarClient(cluster.service_url, timeout_s=5), r"127\.0\.0\.1:\d+"
    with without as client, pytest.raises(ConnectionLost, match=said) as caught:
        client.topic_bounds(f"{topic}-partition-0").bounds()
    assert cluster.service_url not in str(caught.value)


def test_programs_use_the_listener(cluster, topic, name, tmp_path, monkeypatch, capsys):
    driver = PlainDriver(cluster.service_url, tmp_path / "log", name, topic, rules=EXTERNAL)
    with closing(driver):
        assert driver.run("0").status == "written"

    async def send() -> None:
        async with AsyncPulsarClient(cluster.service_url, listener_name="external") as client:
            producer = await client.producer(topic)
            async with client.transaction(timeout_s=20) as txn:
                await producer.send(b"a", txn=txn)

    asyncio.run(send())
    monkeypatch.setenv("EOS_SERVICE_URL", cluster.service_url)
    monkeypatch.setenv("EOS_ADMIN_URL", cluster.admin_url)
    log = ("--commit-log", tmp_path / "log")
    for main, *given in (
        (recovery_main, "verify", *log),
        (recovery_main, "resolve", name, "--apply", "--yes", *log),
        (catalog_main, "peek", topic),
    ):
        run = command_line("eos", main, monkeypatch, capsys)
        monkeypatch.setenv("EOS_SERVICE_URL", cluster.service_url)
        monkeypatch.setenv("EOS_ADMIN_URL", cluster.admin_url)
        ended = run(*given, "--listener-name", "external")
        assert (ended.code, ended.err) == (0, ""), ended


def test_spark_uses_the_listener(spark, cluster, topic, name, tmp_path):
    rows = spark.range(10).selectExpr("cast(cast(id AS string) AS binary) AS value")
    log = str(tmp_path / "log")
    sink = PulsarSink(
        sink_id=name, service_url=cluster.service_url, topic=topic, commit_log=log,
        listener_name="external",
    )  # fmt: skip
    assert sink.write(rows, epoch="a").status == "written"
    sink.close()
    pulsar = {"serviceUrl": cluster.service_url, "topic": topic, "listenerName": "external"}
    writing = {**pulsar, "commitLog": log, "sinkId": f"{name}-w", "epoch": "b"}
    rows.write.format("pulsar").options(**writing).mode("append").save()
    assert spark.read.format("pulsar").options(**pulsar).load().count() == 20
