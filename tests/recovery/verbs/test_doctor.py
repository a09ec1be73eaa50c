"""``doctor``: each check, on a real broker if possible, otherwise on recorded answers."""

from __future__ import annotations

import pytest

from eos.admin import AdminClient, Retention
from eos.client import PulsarClient
from eos.errors import RequestTimeout, TransactionPoisoned, Unauthorized
from eos.ids import TopicName
from eos.pulsar.part import pulsar_part
from eos.recovery.checks.local import check_spark
from eos.recovery.checks.namespace import check_policies, check_receipt_topics, check_retention
from eos.recovery.checks.result import CheckStatus
from eos.recovery.checks.topic_settings import judge
from eos.testing import PulsarStandalone
from eos.transport.auth import Auth
from tests.support import admin
from tests.transport.scripted import wait_until


def verdicts(report) -> dict[str, str]:
    return {check["name"]: check["verdict"] for check in report["checks"]}


def test_healthy_setup_is_clean_with_a_warning_about_authentication(
    recovery, make_driver, root, pulsar_standalone, client, name
):
    make_driver().run("0")
    client.subscribe_durably(f"persistent://public/default/{name}", "reports")
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
    ended = recovery("doctor", *where, "--json")
    found = verdicts(ended.json)
    assert found.pop("authentication") == "warning"
    assert found.pop("Spark settings") == "not checked"
    assert set(found.values()) == {"ok"}, ended.json
    for name in ("log storage", "broker", "transactions", "coordinator 0", "clock"):
        assert name in found
    assert ended.code == 0
    shown = recovery("doctor", *where).out
    assert "anyone who can reach it can end any transaction" in shown
    assert "low-water mark" in shown


def test_without_an_admin_url_much_is_unknown(recovery, make_driver, root):
    make_driver().run("0")
    ended = recovery("doctor", "--commit-log", root, "--json")
    assert ended.code == 2
    assert verdicts(ended.json)["admin API"] == "unknown"


def test_unreachable_broker_is_unknown_and_logs_are_still_checked(recovery, make_driver, root):
    make_driver().run("0")
    ended = recovery(
        "doctor", "--commit-log", root, "--service-url", "pulsar://127.0.0.1:1",
        "--timeout-s", 2, "--json",
    )  # fmt: skip
    found = verdicts(ended.json)
    assert (ended.code, found["broker"], found["commit logs"]) == (2, "unknown", "ok")


def test_before_the_first_write_the_broker_is_checked_and_no_folder_created(
    recovery, pulsar_standalone, tmp_path
):
    missing, url = tmp_path / "log", pulsar_standalone.admin_url
    where = ("--commit-log", missing, "--admin-url", url)
    ended = recovery("doctor", *where, "--service-url", pulsar_standalone.service_url, "--json")
    found = verdicts(ended.json)
    assert (ended.code, found["commit logs"]) == (2, "unknown")
    assert found["transactions"] == found["coordinator 0"] == "ok"
    assert not missing.exists()
    assert recovery("doctor", "orders", *where).code == 64


def test_rates_that_cause_timeouts_are_in_the_error_and_the_report(
    recovery, make_driver, root, pulsar_standalone, name
):
    url, namespace = pulsar_standalone.admin_url, f"public/{name}"
    admin.call(url, "PUT", f"/v2/namespaces/{namespace}")
    make_driver(receipt_namespace=namespace).run("0")
    rate = {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 10_000}
    admin.call(url, "POST", f"/v2/namespaces/{namespace}/publishRate", rate)
    dispatch = {
        "dispatchThrottlingRateInMsg": 77, "dispatchThrottlingRateInByte": -1,
        "ratePeriodInSecond": 1,
    }  # fmt: skip
    topic = f"persistent/public/default/{name}"
    admin.call(url, "POST", f"/v2/{topic}/dispatchRate", dispatch)
    where = ("doctor", "--commit-log", root, "--admin-url", url, "--json")
    wait_until(lambda: "77 messages/s" in recovery(*where).raw)  # a topic's policies take a while
    told = {one["name"]: one for one in recovery(*where).json["checks"]}
    ours = told[f"rates in {namespace}"]
    assert (ours["verdict"], ours["found"]) == ("warning", "publish rate: 10,000 bytes/s")
    assert "request_timeout_s" in ours["hint"]
    assert "dispatch rate: 77" in told[f"rates of {topic.replace('t/', 't://', 1)}"]["found"]
    assert told["rates of the broker"]["verdict"] == "ok"

    with PulsarClient(pulsar_standalone.service_url, timeout_s=20) as client:
        producer = client.entry_producer(f"persistent://{namespace}/slow", create=True)
        producer._window._timeout_s = 2
        said, txn = r"publish rate.*request_timeout_s.*doctor", client.transaction()
        for _ in range(3):  # each takes 10 s at this rate
            producer.send(b"x" * 100_000, txn=txn)
        with pytest.raises(RequestTimeout, match=said):
            producer.flush()
        with pytest.raises(TransactionPoisoned, match=said):
            txn.check()


def test_unreadable_broker_settings_are_unknown(monkeypatch):
    def refuse(*_):
        raise Unauthorized("The admin API answered 403.")

    monkeypatch.setattr(AdminClient, "broker_settings", refuse)
    monkeypatch.setattr(AdminClient, "policies", lambda *_: {})
    monkeypatch.setattr(AdminClient, "subscriptions", lambda *_: ["eos-receipts"])
    monkeypatch.setattr(AdminClient, "backlog_quotas", refuse)
    receipts = {TopicName.parse("persistent://t/n/r"): True}
    client = AdminClient("http://127.0.0.1:1", Auth(), timeout_s=1)
    told = {one.name: one.verdict for one in check_receipt_topics(client, receipts)}
    assert told.pop("broker settings") == "unknown"
    assert told.pop("retention in t/n") == "unknown"
    assert told.pop("quotas of persistent://t/n/r") == "not checked"
    assert told == {"namespace t/n": "ok", "receipts r": "ok"}


def test_a_broken_log_fails(recovery, root, pulsar_standalone):
    folder = root / "broken" / "_delta_log"
    folder.mkdir(parents=True)
    (folder / "00000000000000000000.json").write_text("{")
    ended = recovery("doctor", "--commit-log", root, "--json")
    assert ended.code == 1
    assert verdicts(ended.json)["log of broken"] == "failed"


@pytest.mark.broker
def test_a_broker_without_transactions_fails(recovery, tmp_path):
    with PulsarStandalone(transactions=False) as broker:
        ended = recovery("doctor", "--service-url", broker.service_url, "--json")
    assert verdicts(ended.json)["broker"] == "failed"
    hints = [check["hint"] for check in ended.json["checks"]]
    assert any("transactionCoordinatorEnabled" in hint for hint in hints)
    assert ended.code == 1


def test_expiry_set_on_the_namespace_of_the_receipts_is_found(
    recovery, make_driver, root, pulsar_standalone
):
    make_driver().run("0")
    url = pulsar_standalone.admin_url
    path = "/v2/namespaces/public/default/messageTTL"
    where = ("--commit-log", root, "--admin-url", url, "--json")
    admin.call(url, "POST", path, 3600)
    try:
        ended = recovery("doctor", *where)
    finally:
        admin.call(url, "DELETE", path)
    assert ended.code == 1
    assert verdicts(ended.json)["namespace public/default"] == "failed"


def test_a_receipt_topic_without_its_subscription_is_found(
    recovery, make_driver, root, pulsar_standalone
):
    driver = make_driver()
    driver.run("0")
    url, topic = pulsar_standalone.admin_url, pulsar_part(driver.records()[-1]).receipt_topic
    path = topic.removeprefix("persistent://")
    admin.call(url, "DELETE", f"/v2/persistent/{path}/subscription/eos-receipts?force=true")
    ended = recovery("doctor", "--commit-log", root, "--admin-url", url, "--json")
    assert ended.code == 1
    (check,) = [c for c in ended.json["checks"] if c["name"].startswith("receipts")]
    assert "no subscription" in check["found"]


def test_age_quota_is_a_warning_with_the_command_to_remove_it(
    recovery, make_driver, root, pulsar_standalone
):
    driver = make_driver()
    driver.run("0")
    url, topic = pulsar_standalone.admin_url, pulsar_part(driver.records()[-1]).receipt_topic
    where = ("--commit-log", root, "--admin-url", url, "--json")
    quota = {"limitSize": -1, "limitTime": 86_400, "policy": "producer_exception"}
    place = "/v2/namespaces/public/default/backlogQuota?backlogQuotaType=message_age"
    admin.call(url, "POST", place, quota)
    try:
        ended = recovery("doctor", *where)
        admin.call(url, "POST", place, {**quota, "limitTime": 0})
        mended = recovery("doctor", *where)
    finally:
        admin.call(url, "DELETE", place)
    (check,) = [c for c in ended.json["checks"] if c["name"] == "namespace public/default"]
    assert (ended.code, check["verdict"]) == (0, "warning")
    assert "remove-backlog-quota --type message_age public/default" in check["hint"]
    assert verdicts(mended.json)["namespace public/default"] == "ok"

    place = f"/v2/{topic.replace('://', '/')}/backlogQuota?backlogQuotaType=message_age"
    admin.call(url, "POST", place, quota)
    command = f"pulsar-admin topicPolicies remove-backlog-quota --type message_age {topic}"
    wait_until(lambda: command in recovery("doctor", *where).raw)  # a topic's policies take a while


def test_missing_receipt_topic_fails_with_the_command_to_create_it(
    recovery, make_driver, root, pulsar_standalone
):
    driver = make_driver()
    driver.run("0")
    url, topic = pulsar_standalone.admin_url, pulsar_part(driver.records()[-1]).receipt_topic
    driver.close()
    admin.delete_topic(url, topic.removeprefix("persistent://"))
    place = "/v2/namespaces/public/default/autoTopicCreation"
    command = f"pulsar-admin topics create {topic}"

    def found() -> str:
        ended = recovery("doctor", "--commit-log", root, "--admin-url", url, "--json")
        (check,) = [c for c in ended.json["checks"] if c["name"].startswith("receipts")]
        assert (ended.code, check["verdict"]) == (1, "failed")
        assert "the log has transactions with it: this is another cluster" in check["found"]
        return check["found"] + check["hint"]

    assert "The next claim creates it" in found()
    try:
        admin.call(url, "POST", place, {"allowAutoTopicCreation": False})
        assert "allowAutoTopicCreation=false" in found()
        assert command in found()
        partitioned = {"topicType": "partitioned", "defaultNumPartitions": 4}
        admin.call(url, "POST", place, {"allowAutoTopicCreation": True, **partitioned})
        assert "allowAutoTopicCreationType=partitioned" in found()
        assert command in found()
    finally:
        admin.call(url, "DELETE", place)


@pytest.mark.parametrize(
    ("policies", "settings", "mends"),
    [
        ({}, {"backlogQuotaDefaultLimitSecond": "-1"}, None),
        ({}, {"backlogQuotaDefaultLimitSecond": "60"}, "set-backlog-quota t/n"),
        ({"message_age": {"limitTime": 0}}, {"backlogQuotaDefaultLimitSecond": "60"}, None),
        ({"message_age": {"limitTime": 9}}, {}, "remove-backlog-quota --type message_age t/n"),
        ({"destination_storage": {"limitTime": 9}}, {}, None),
    ],
)
@pytest.mark.parametrize("policy", ["producer_exception", "producer_request_hold"])
def test_age_quota_refuses_receipts_of_an_idle_sink(policies, settings, mends, policy):
    quotas = {kind: {"policy": policy, **quota} for kind, quota in policies.items()}
    settings = {"backlogQuotaDefaultRetentionPolicy": policy, **settings}
    (check,) = check_policies("t/n", {"backlog_quota_map": quotas}, settings)
    assert check.verdict is (CheckStatus.WARNING if mends else CheckStatus.OK)
    assert (mends or "") in check.hint


HARMFUL = {
    "encryption": ({"encryption_required": True}, {}),
    "encryption by default": ({}, {"encryptionRequireOnProducer": "true"}),
    "no exclusive readers": ({"subscription_types_enabled": ["Shared"]}, {}),
    "no place for a reader": ({"max_subscriptions_per_topic": 1}, {}),
    "expiry": ({"message_ttl_in_seconds": 60}, {}),
    "expiry by default": ({}, {"ttlDurationDefaultInSeconds": "60"}),
    "eviction": (
        {
            "backlog_quota_map": {
                "message_age": {"policy": "consumer_backlog_eviction", "limitTime": 60}
            }
        },
        {},
    ),
    "eviction by default": (
        {},
        {
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
            "backlogQuotaDefaultLimitBytes": "1000",
        },
    ),
    "eviction by a default in GB": (
        {},
        {
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
            "backlogQuotaDefaultLimitBytes": "-1",
            "backlogQuotaDefaultLimitGB": "0.5",
        },
    ),
    "eviction by default, of the kind that has no quota": (
        {"backlog_quota_map": {"destination_storage": {"policy": "producer_exception"}}},
        {
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
            "backlogQuotaDefaultLimitSecond": "3600",
        },
    ),
    "deletion of idle topics": (
        {
            "inactive_topic_policies": {
                "deleteWhileInactive": True,
                "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
            }
        },
        {},
    ),
    "expiry of subscriptions": ({"subscription_expiration_time_minutes": 5}, {}),
    "expiry of subscriptions by default": ({}, {"subscriptionExpirationTimeMinutes": "5"}),
}
HARMLESS = {
    "nothing set": ({}, {}),
    "expiry off here": ({"message_ttl_in_seconds": 0}, {"ttlDurationDefaultInSeconds": "60"}),
    "a quota that refuses": (
        {"backlog_quota_map": {"destination_storage": {"policy": "producer_exception"}}},
        {},
    ),
    "eviction without a limit": (
        {},
        {
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
            "backlogQuotaDefaultLimitBytes": "-1",
            "backlogQuotaDefaultLimitSecond": "-1",
        },
    ),
    "deletion without subscriptions": (
        {},
        {
            "brokerDeleteInactiveTopicsEnabled": "true",
            "brokerDeleteInactiveTopicsMode": "delete_when_no_subscriptions",
        },
    ),
}


@pytest.mark.parametrize("case", HARMFUL)
def test_policies_that_remove_receipts_fail(case):
    (check,) = check_policies("t/n", *HARMFUL[case])
    assert check.verdict is CheckStatus.FAILED
    assert check.hint


def test_receipts_that_are_replicated_are_a_warning():
    assert check_policies("t/n", {"replication_clusters": ["a"]}, {})[0].verdict is CheckStatus.OK
    (check,) = check_policies("t/n", {"replication_clusters": ["b", "a"]}, {})
    assert check.verdict is CheckStatus.WARNING
    assert "between a, b" in check.found
    assert "receipt_namespace" in check.hint


@pytest.mark.parametrize("case", HARMLESS)
def test_policies_that_keep_receipts_are_ok(case):
    (check,) = check_policies("t/n", *HARMLESS[case])
    assert check.verdict is CheckStatus.OK


@pytest.mark.parametrize(
    ("own", "default", "says"),
    [
        (None, "0", "may be removed"),
        ((60, -1), "0", "are kept for 60 min"),
        ((60, 512), "0", "are kept for 60 min and up to 512 MB"),
        ((0, 512), "-1", "may be removed"),
        ((-1, -1), "0", "are kept forever"),
        (None, "-1", "are kept forever"),
    ],
)
def test_retention_of_receipts_is_reported(own, default, says):
    settings = {
        "defaultRetentionTimeInMinutes": default,
        "defaultRetentionSizeInMB": default,
    }
    keys = ("retentionTimeInMinutes", "retentionSizeInMB")
    policies = {"retention_policies": dict(zip(keys, own, strict=True))} if own else {}
    check = check_retention("t/n", policies, settings)
    assert check.verdict is CheckStatus.OK
    assert says in check.found


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("spark.speculation true", CheckStatus.FAILED),
        ("spark.speculation=true", CheckStatus.FAILED),
        ("# spark.speculation true\nspark.master local", CheckStatus.OK),
        ("spark.speculation   false\n", CheckStatus.OK),
        ("spark.speculation\ttrue", CheckStatus.FAILED),
        ("spark.speculation:true", CheckStatus.FAILED),
        ("spark.speculation : TRUE ", CheckStatus.FAILED),
        ("\f spark.specu\\\n   lation = \\\r\n true", CheckStatus.FAILED),
        ("spark.specul\\u0061tion true", CheckStatus.FAILED),
        ("spark.speculation true\nspark.speculation=false", CheckStatus.OK),
        ("! spark.speculation true\rspark.a b\\\\", CheckStatus.OK),
        ("spark.speculation.interval true", CheckStatus.OK),
        ("spark\\ speculation true", CheckStatus.OK),
        ("spark.x \\u00", CheckStatus.UNKNOWN),
        (None, CheckStatus.NOT_CHECKED),
    ],
)
def test_speculation_in_sparks_defaults_is_found(tmp_path, text, verdict):
    if text is not None:
        (tmp_path / "spark-defaults.conf").write_bytes(text.encode())
    assert check_spark(str(tmp_path)).verdict is verdict


TOPIC = TopicName.parse("orders")


@pytest.mark.parametrize(
    ("subscriptions", "retention", "ttl_s", "verdict", "says"),
    [
        ([], (0, 0), 0, "warning", "its messages are not kept by a subscription or retention"),
        ([], (0, -1), 0, "warning", "not kept by a subscription or retention"),
        ([], (60, 0), 0, "warning", "not kept by a subscription or retention"),
        (["a"], (0, 0), 0, "ok", "until a acknowledges them"),
        (["a", "b"], (0, 0), 7200, "warning", "expire after 2 h (time to live), even if subscr"),
        ([], (-1, -1), 7200, "ok", "kept forever (retention)"),
        ([], (10080, -1), 0, "ok", "kept for 7 d (retention)"),
        (["a"], (60, 512), 0, "ok", "kept for 60 min and up to 512 MB (retention)"),
    ],
)
def test_message_retention_of_a_topic_is_checked(subscriptions, retention, ttl_s, verdict, says):
    check = judge("topic orders", TOPIC, subscriptions, Retention(*retention), ttl_s)
    assert (check.verdict, says in check.found) == (verdict, True), check
    assert ("set-retention public/default" in check.hint) is (verdict == "warning")


def test_data_topic_without_retention_or_subscription_is_a_warning(
    recovery, make_driver, root, pulsar_standalone, client, name
):
    url, topic = pulsar_standalone.admin_url, f"persistent://public/default/{name}"
    make_driver().run("0")

    def found() -> tuple[str, str]:
        ended = recovery("doctor", "--commit-log", root, "--admin-url", url, "--json")
        assert ended.code == 0
        (check,) = [c for c in ended.json["checks"] if c["name"] == f"topic {name}"]
        return check["verdict"], check["found"]

    assert found() == ("warning", found()[1])
    assert "minutes after a restart" in found()[1]
    client.subscribe_durably(topic, "reports")
    assert found() == (
        "ok",
        "messages are kept until reports acknowledges them; there is no retention",
    )
    path = f"/v2/persistent/public/default/{name}"
    admin.call(url, "POST", f"{path}/messageTTL?messageTTL=3600")
    wait_until(lambda: found()[0] == "warning")
    assert "expire after 60 min" in found()[1]
    policy = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    admin.call(url, "POST", f"{path}/retention", policy)
    wait_until(lambda: found() == ("ok", "its messages are kept forever (retention)"))
