"""Checks of topics: are their messages kept, and do rates or quotas slow them down?"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from eos.admin import AdminClient, Retention
from eos.cli.reports import duration
from eos.errors import EosError, TopicNotFound
from eos.ids import TopicName
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.checks.result import Check, failed, not_checked, of_error, ok, unknown, warning


def check_data_topics(
    target: Target, admin: AdminClient | None, newest: list[LogRecord]
) -> list[Check]:
    """Check each topic that has the newest rows of a sink."""
    names = dict.fromkeys(topic for record in newest for topic in _written(target, record))
    if names and admin is None:
        hint = "Pass --admin-url to check retention, expiry and subscriptions."
        return [unknown("data topics", "not checked", hint)]
    assert admin is not None or not names
    checks = [
        _check_kept(admin, TopicName.parse(name)) for name in list(names)[:MOST_TOPICS] if admin
    ]
    if len(names) > MOST_TOPICS:
        hint = "Pass a sink to check fewer topics."
        checks.append(unknown("data topics", f"{len(names) - MOST_TOPICS} more, not checked", hint))
    return checks


def _written(target: Target, record: LogRecord) -> Collection[str]:
    last = target.log(record.sink_id).history.last_written
    return pulsar_part(last).topics if last else ()


def _check_kept(admin: AdminClient, topic: TopicName) -> Check:
    name = f"topic {topic.local[:40]}"
    try:
        subscriptions = admin.subscriptions(topic)
        retention, ttl_s = admin.retention(topic), admin.message_ttl_s(topic)
    except TopicNotFound:
        return failed(
            name,
            f"{topic} does not exist: it was deleted with its messages, or this is another cluster",
            "Check service_url and --admin-url. `verify` reports what was lost; write those rows "
            "again under a separate batch key.",
        )
    except EosError as error:
        return of_error(name, error)
    return judge(name, topic, subscriptions, retention, ttl_s)


def judge(
    name: str, topic: TopicName, subscriptions: list[str], retention: Retention, ttl_s: int
) -> Check:
    """Check whether the messages of one topic are kept.

    Args:
        ttl_s: the time to live; 0 if there is none.
    """
    command = (
        f"pulsar-admin namespaces set-retention {topic.namespace_name} --time 7d --size -1 (or, "
        f"for this topic only, pulsar-admin topicPolicies set-retention {topic} --time 7d --size "
        "-1)"
    )
    if 0 not in (retention.minutes, retention.megabytes):  # 0 keeps nothing, -1 everything
        limits = [duration(retention.minutes * 60)] * (retention.minutes > 0)
        limits += [f"{retention.megabytes} MB"] * (retention.megabytes > 0)
        kept = f"for {' and up to '.join(limits)}" if limits else "forever"
        return ok(name, f"its messages are kept {kept} (retention)")
    # The broker deletes such messages when their ledger is closed: by a restart, an unload, or its
    # size. Measured: within two minutes.
    if not subscriptions:
        return warning(
            name,
            "its messages are not kept by a subscription or retention: the broker deletes them, "
            "committed or not, minutes after a restart or an unload",
            f"Subscribe before writing, or run {command}",
        )
    named = ", ".join(subscriptions[:5]) + (", ..." if len(subscriptions) > 5 else "")
    if ttl_s > 0:  # the broker then acknowledges them itself, on every subscription
        return warning(
            name,
            f"its messages expire after {duration(ttl_s)} (time to live), even if subscription "
            f"{named} has not received them",
            f"Unset the time to live, or run {command}",
        )
    return ok(name, f"messages are kept until {named} acknowledges them; there is no retention")


# The backlog quota policies that refuse producers; the third one evicts messages.
REFUSING: Final = ("producer_request_hold", "producer_exception")

_OF_NAMESPACES: Final = {
    "publishMaxMessageRate": "publish rate",
    "topicDispatchRate": "dispatch rate",
    "subscriptionDispatchRate": "dispatch rate of a subscription",
}
_OF_TOPICS: Final = {
    "publishRate": "publish rate",
    "dispatchRate": "dispatch rate",
    "subscriptionDispatchRate": "dispatch rate of a subscription",
}
_OF_BROKERS: Final = {
    "maxPublishRatePerTopicInMessages": "publish rate of a topic, in messages",
    "maxPublishRatePerTopicInBytes": "publish rate of a topic, in bytes",
    "brokerPublisherThrottlingMaxMessageRate": "publish rate of the broker, in messages",
    "brokerPublisherThrottlingMaxByteRate": "publish rate of the broker, in bytes",
    "dispatchThrottlingRateInMsg": "dispatch rate of the broker, in messages",
    "dispatchThrottlingRateInByte": "dispatch rate of the broker, in bytes",
    "dispatchThrottlingRatePerTopicInMsg": "dispatch rate of a topic, in messages",
    "dispatchThrottlingRatePerTopicInByte": "dispatch rate of a topic, in bytes",
    "dispatchThrottlingRatePerSubscriptionInMsg": "dispatch rate of a subscription, in messages",
    "dispatchThrottlingRatePerSubscriptionInByte": "dispatch rate of a subscription, in bytes",
}
# The check of the data topics reports how many are left out.
MOST_TOPICS: Final = 50

# A broker stops reading from a connection that exceeds a publish rate until it is below again. If
# that takes longer than the request timeout, the epoch fails with "no answer" (measured).
_SLOW: Final = (
    "A sink's request_timeout_s must be above max_batch_bytes divided by the publish rate, because "
    "an entry also waits for the entry sent before it. transaction_ttl_s must be above an epoch's "
    "bytes divided by the rate."
)


def check_rates(target: Target, admin: AdminClient | None, newest: list[LogRecord]) -> list[Check]:
    """Check the topics of the newest rows, the receipt topics, their namespaces and the broker."""
    if admin is None:
        return []
    names: dict[str, None] = {}
    for record in newest:
        names[pulsar_part(record).receipt_topic] = None
        names.update(dict.fromkeys(_written(target, record)))
    topics = [TopicName.parse(name) for name in names][:MOST_TOPICS]
    checks = [_of_namespace(admin, one) for one in sorted({one.namespace_name for one in topics})]
    checks += [check for topic in topics for check in _of_topic(admin, topic)]
    return [*checks, _of_broker(admin)] if topics else []


def _of_namespace(admin: AdminClient, namespace: str) -> Check:
    name = f"rates in {namespace}"
    try:
        policies = admin.policies(namespace)
    except EosError as error:
        return of_error(name, error)
    found = [
        f"{what}: {limits}"
        for policy, what in _OF_NAMESPACES.items()
        for rate in (policies.get(policy) or {}).values()
        if (limits := _limits(rate))
    ]
    found += [
        f"producers are refused above a backlog of {quota['limitSize']:,} bytes"
        for quota in (policies.get("backlog_quota_map") or {}).values()
        if quota.get("policy") in REFUSING and quota.get("limitSize", -1) > 0
    ]
    return _slow(name, found) or ok(name, "no rates or backlog size quotas are set")


def _of_topic(admin: AdminClient, topic: TopicName) -> Iterator[Check]:
    name = f"rates of {topic}"
    found = []
    try:
        for kind, what in _OF_TOPICS.items():
            if limits := _limits(admin.rate(topic, kind)):
                found.append(f"{what}: {limits}")
    except EosError as error:  # topic policies may be disabled, or not visible to this role
        yield not_checked(name, error.message)
        return
    if slow := _slow(name, found):
        yield slow


def _of_broker(admin: AdminClient) -> Check:
    name = "rates of the broker"
    try:
        settings = admin.broker_settings()
    except EosError as error:
        return unknown(name, error.message, error.hint)
    if not settings.keys() & _OF_BROKERS.keys():
        return unknown(name, "the broker does not report them")
    limits = ((what, settings.get(setting, "0")) for setting, what in _OF_BROKERS.items())
    found = [f"{what}: {limit}/s" for what, limit in limits if limit.isdecimal() and int(limit)]
    return _slow(name, found) or ok(name, "none are set")


def _slow(name: str, found: list[str]) -> Check | None:
    return warning(name, "; ".join(found), _SLOW) if found else None


def _limits(rate: Mapping[str, Any]) -> str:
    units = (("InMsg", "messages/s"), ("InByte", "bytes/s"))
    return ", ".join(
        f"{limit:,} {unit}"
        for ending, unit in units
        for field, limit in rate.items()
        if field.endswith(ending) and limit > 0
    )
