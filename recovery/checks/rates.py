"""Checks of publish rates, dispatch rates and backlog quotas that slow topics down.

A broker stops reading from a connection that exceeds a publish rate until it is below again. If
that takes longer than the request timeout, the epoch fails with "no answer" (measured).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from eos.admin import AdminClient
from eos.errors import EosError
from eos.ids import TopicName
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.checks.check_result import Check, not_checked, of_error, ok, unknown, warning

REFUSING: Final = ("producer_request_hold", "producer_exception")
"""The backlog quota policies that refuse producers."""

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
MOST_TOPICS: Final = 50
"""The check of the data topics reports how many are left out."""

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
        written = target.log(record.sink_id).history.last_written
        names[pulsar_part(record).receipt_topic] = None
        names.update(dict.fromkeys(pulsar_part(written).topics if written else ()))
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
