"""Names required by operators: a prefix of every subscription. The broker refuses all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import pytest

from eos import PulsarCatalog, PulsarSink
from eos.catalog.cli import main as catalog_main
from eos.client import PulsarClient
from eos.client.aio import AsyncPulsarClient
from eos.errors import ConfigurationError, Unauthorized
from eos.recovery.cli import main as recovery_main
from eos.recovery.resolve import resolve
from eos.testing import PulsarStandalone
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth
from tests.support import admin
from tests.support.command_line import Ended, command_line
from tests.support.plain_driver import PlainDriver
from tests.support.tokens import CONFIG, token

ADMIN, WRITER = token("admin"), token("writer")
NAMESPACE = "public/dictated"
RULES = {"subscription_prefix": "writer"}
CAMEL = {"subscriptionPrefix": "writer-"}


@pytest.fixture(scope="module")
def broker() -> Iterator[PulsarStandalone]:
    config = {**CONFIG, "authorizationEnabled": "true"}
    with PulsarStandalone(config=config, admin_token=ADMIN) as running:
        call = partial(admin.call, running.admin_url, token=ADMIN)
        call("PUT", f"/v2/namespaces/{NAMESPACE}")
        call("POST", f"/v2/namespaces/{NAMESPACE}/subscriptionAuthMode", "Prefix")
        for namespace in (NAMESPACE, "pulsar/system"):
            path = f"/v2/namespaces/{namespace}/permissions/writer"
            call("POST", path, ["produce", "consume"])
        yield running


@pytest.fixture
def connect(broker: PulsarStandalone) -> Callable[..., PulsarClient]:
    """A client of the role ``writer``, with these rules."""
    return partial(PulsarClient, broker.service_url, auth=Auth(token=WRITER), timeout_s=10)


@pytest.fixture
def topic(broker: PulsarStandalone, name: str) -> str:
    path = f"/v2/persistent/{NAMESPACE}/{name}/partitions"
    admin.call(broker.admin_url, "PUT", path, 2, token=ADMIN)
    return f"persistent://{NAMESPACE}/{name}"


def subscriptions(broker: PulsarStandalone, topic: str) -> list[str]:
    path = f"/v2/{topic.replace('://', '/')}/subscriptions"
    found = admin.call(broker.admin_url, "GET", path, token=ADMIN)
    assert all(one.startswith(("writer-", "old-")) for one in found)
    return sorted(one for one in found if "-eos-reader-" not in one)


@pytest.fixture
def cli(broker, monkeypatch, capsys, tmp_path) -> Callable[..., Ended]:
    """``cli(main, "verb", ...)`` by the rules, as the role ``writer``."""

    def run(main: Callable[[], None], *args: object) -> Ended:
        run_it = command_line("eos", main, monkeypatch, capsys)
        monkeypatch.setenv("EOS_TOKEN", WRITER)
        monkeypatch.setenv("EOS_SERVICE_URL", broker.service_url)
        monkeypatch.setenv("EOS_ADMIN_URL", broker.admin_url)
        monkeypatch.setenv("EOS_SUBSCRIPTION_PREFIX", "writer")
        if main is recovery_main:
            monkeypatch.setenv("EOS_COMMIT_LOG", str(tmp_path / "log"))
        return run_it(*args)

    return run


@pytest.mark.timeout(400)  # much of Spark, and the machine may be busy
def test_sinks_sources_and_sql_follow_the_rules(spark, broker, topic, name, tmp_path, cli):
    login = {"serviceUrl": broker.service_url, "token": WRITER, **CAMEL}
    log = str(tmp_path / "log")
    given = {
        "service_url": broker.service_url,
        "commit_log": log,
        "auth": Auth(token=WRITER),
        **RULES,
    }
    rows = spark.range(4, numPartitions=1).selectExpr("binary(string(id)) AS value")
    with closing(PulsarSink(sink_id=name, topic=topic, **given)) as sink:
        assert sink.write(rows, epoch="a").status == "written"
    one = f"{topic}-partition-0"
    source = spark.readStream.format("pulsar").options(
        **login, topic=topic, startingOffsets="earliest", maxEntriesPerTrigger="2",
        adminUrl=broker.admin_url,
    )  # fmt: skip
    copy = f"{topic}-copy"
    admin.call(broker.admin_url, "PUT", f"/v2/{copy.replace('://', '/')}", token=ADMIN)
    writer = source.load().writeStream.format("pulsar").options(**login, topic=copy)
    writer = writer.options(commitLog=log, sinkId=f"{name}-w")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    assert writer.trigger(availableNow=True).start().awaitTermination(300)
    catalog = PulsarCatalog(
        spark, broker.service_url, broker.admin_url, commit_log=log,
        auth=Auth(token=WRITER), **RULES,
    )  # fmt: skip
    table = catalog.register(copy)
    spark.sql(f"INSERT INTO {table} WITH (epoch='c') SELECT binary('x') AS value")
    assert spark.sql(f"SELECT count(*) FROM {table}").first()[0] == 5
    spark.sql(f"DROP TABLE {table}")

    (kept,) = subscriptions(broker, one)
    assert kept.startswith("writer-eos-source-")
    peeked = cli(catalog_main, "peek", copy, "-n", 3, "--json")
    assert (peeked.code, peeked.err) == (0, "")
    assert len(peeked.json["messages"]) == 3
    for verb in ("verify", "status"):
        ended = cli(recovery_main, verb, "--json")
        assert (ended.code, ended.err) == (0, ""), ended


# --- recovery ---------------------------------------------------------------------------------


def test_recovery_follows_the_rules(broker, topic, name, tmp_path, cli):
    driver = PlainDriver(
        broker.service_url, tmp_path / "log", name, f"{topic}-partition-0",
        auth=Auth(token=WRITER), rules=ClusterRules(**RULES), receipt_namespace=NAMESPACE,
        deadline_s=20,
    )  # fmt: skip
    with closing(driver):
        assert driver.run("0").status == "written"
        receipts = driver.log.history.last.participants[0].receipt_topic
        assert subscriptions(broker, receipts) == ["writer-eos-receipts"]
        for verb in (("verify",), ("resolve", name, "--apply", "--yes")):
            ended = cli(recovery_main, *verb)
            assert (ended.code, ended.err) == (0, ""), ended
        resolve(
            name, commit_log=tmp_path / "log", service_url=broker.service_url,
            auth=Auth(token=WRITER), **RULES,
        )  # fmt: skip
        checks = {one["name"]: one for one in cli(recovery_main, "doctor", "--json").json["checks"]}
        (mine,) = (one for title, one in checks.items() if title.startswith("receipts "))
        assert "writer-eos-receipts exist" in mine["found"]


def test_another_prefix_loses_nothing_and_the_old_subscription_is_named(
    broker, topic, name, tmp_path, cli
):
    def driver(prefix: str, at: str) -> PlainDriver:
        return PlainDriver(
            broker.service_url, tmp_path / "log", name, f"{topic}-partition-0",
            auth=Auth(token=at),
            rules=ClusterRules(subscription_prefix=prefix),
            receipt_namespace=NAMESPACE, deadline_s=20,
        )  # fmt: skip

    # The policy does not bind an administrator, who may have begun with any prefix.
    with closing(driver("old", ADMIN)) as first:
        first.run("0")
    with closing(driver("writer", ADMIN)) as second:
        assert second.run("0").status == "skipped"
        assert second.run("1").status == "written"
        receipts = second.log.history.last.participants[0].receipt_topic
    assert subscriptions(broker, receipts) == ["old-eos-receipts", "writer-eos-receipts"]
    assert cli(recovery_main, "verify").code == 0
    checks = cli(recovery_main, "doctor", "--json").json["checks"]
    (mine,) = (one for one in checks if one["name"].startswith("receipts "))
    assert mine["verdict"] == "warning"
    assert "old-eos-receipts and writer-eos-receipts" in mine["found"]
    assert f"eos recovery unsubscribe {receipts} NAME" in mine["hint"]


# --- the client -------------------------------------------------------------------------------


def test_without_the_prefix_the_error_names_the_policy(connect, topic):
    one = f"{topic}-partition-0"
    with connect() as client:
        client.entry_producer(one).send(b"a").result(timeout=20)
        for ask in (
            lambda: client.reader(one),
            lambda: client.entry_reader(one),
            lambda: client.topic_bounds(one).bounds(),
            lambda: client.cursor(one, "mine").place(),
            lambda: client.subscribe_durably(one, "mine"),
            lambda: client.consumer(one, "mine"),
        ):
            with pytest.raises(Unauthorized, match=r"code 4.*=Prefix.*set subscription_prefix"):
                ask()
    with connect(**RULES) as client:
        assert client.topic_bounds(one).last_id() is not None
        with client.reader(one) as reader:
            assert sum(batch.num_rows for batch in reader.read_to(reader.last_id)) == 1
        client.consumer(one, "writer-mine").close()  # a chosen name is taken as it is


def test_asyncio_follows_the_rules(broker, topic):
    async def send() -> None:
        async with AsyncPulsarClient(
            broker.service_url, auth=Auth(token=WRITER), **RULES
        ) as client:
            producer = await client.producer(topic)
            async with client.transaction(timeout_s=20) as txn:
                await producer.send(b"a", txn=txn)

    asyncio.run(send())


@pytest.mark.parametrize("value", ["", " ", "a\nb", "a\x1b"])
@pytest.mark.parametrize("name", ["listener_name", "subscription_prefix"])
def test_an_empty_or_unprintable_name_is_refused(name, value):
    with pytest.raises(ConfigurationError, match=name):
        PulsarClient("pulsar://127.0.0.1:1", **{name: value})


def test_a_prefix_is_added_only_once():
    for prefix in ("role", "role-"):
        rules = ClusterRules(subscription_prefix=prefix)
        assert rules.subscription("eos-x") == rules.subscription("role-eos-x") == "role-eos-x"
    assert ClusterRules().subscription("eos-x") == "eos-x"
