"""Checks that receipts are kept: policies of the receipt topics' namespaces, and subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from eos.admin import (
    MESSAGE_AGE,
    AdminClient,
    Expiry,
    backlog_quotas,
    expiry,
    first_int,
    quota_limit,
)
from eos.errors import EosError, TopicNotFound
from eos.ids import TopicName
from eos.protocol import History
from eos.pulsar.part import EMPTY_PART, pulsar_part
from eos.pulsar.receipts import SUBSCRIPTION, is_receipt_subscription
from eos.recovery.checks.result import Check, failed, not_checked, of_error, ok, unknown, warning
from eos.recovery.checks.topic_settings import REFUSING


def receipt_topics(histories: Iterable[History]) -> dict[TopicName, bool]:
    """The receipt topics, and whether their log has a transaction begun with them."""
    found: dict[TopicName, bool] = {}
    for history in histories:
        part = EMPTY_PART if history.last is None else pulsar_part(history.last)
        if part.receipt_topic:
            last = history.last_begun(part.key)
            found[TopicName.parse(part.receipt_topic)] = last is not None
    return found


def check_receipt_topics(
    admin: AdminClient | None, receipts: Mapping[TopicName, bool]
) -> list[Check]:
    """Check each receipt topic and its namespace.

    Args:
        receipts: as returned by ``receipt_topics``.
    """
    topics = sorted(receipts)
    if not topics:
        return []
    if admin is None:
        hint = "Pass --admin-url to check retention, expiry and deletion of receipts."
        return [unknown("receipt topics", "not checked", hint)]
    checks: list[Check] = []
    try:
        settings = admin.broker_settings()
    except EosError as error:
        # Only superusers see them; the namespaces' own policies are still checked.
        settings = {}
        found = f"the broker's default policies were not readable: {error.message}"
        checks.append(unknown("broker settings", found, error.hint))
    for namespace in sorted({topic.namespace_name for topic in topics}):
        try:
            policies = admin.policies(namespace)
            checks += check_policies(namespace, policies, settings)
            checks.append(check_retention(namespace, policies, settings))
        except EosError as error:
            policies = {}
            checks.append(of_error(f"namespace {namespace}", error))
        mine = [topic for topic in topics if topic.namespace_name == namespace]
        checks += [
            check
            for topic in mine
            for check in _check_topic(admin, topic, policies, settings, has_begun=receipts[topic])
        ]
    return checks


def check_policies(
    namespace: str, policies: dict[str, Any], settings: dict[str, str]
) -> list[Check]:
    """Check whether the policies of a namespace, or the broker's defaults, remove receipts.

    Args:
        policies: from the admin API, without those that are not set.
        settings: the broker's, as text; {} if they are not readable.
    """
    # The durable subscription keeps receipts through unload and trim. These policies remove them
    # nevertheless, and an epoch without its receipt stays in doubt.
    risks = _removals(expiry(policies, settings))
    if (idle := _inactivity(policies, settings)) is not None:
        risks.append(idle)
    risks += _refusals(policies, settings)
    name = f"namespace {namespace}"
    checks = [failed(name, what, hint) for what, hint in risks]
    if (age := _age_quota(policies, settings)) is not None:
        whose, seconds = age
        command = (
            f"pulsar-admin namespaces remove-backlog-quota --type message_age {namespace}"
            if whose == "namespace"
            else f"pulsar-admin namespaces set-backlog-quota {namespace} --type message_age "
            f"--limitTime 0 --policy {REFUSING[0]}"
        )
        checks.append(_refused_by_age(name, f"the {whose}'s", seconds, command))
    clusters = policies.get("replication_clusters") or ()
    if len(clusters) > 1:
        checks.append(_replicated(name, clusters))
    whose = "its policies" if settings else "its own policies"
    return checks or [ok(name, f"{whose} do not remove receipts")]


def _age_quota(policies: dict[str, Any], settings: dict[str, str]) -> tuple[str, int] | None:
    is_own = MESSAGE_AGE in (policies.get("backlog_quota_map") or {})
    seconds = _refusing_after(backlog_quotas(policies, settings)[MESSAGE_AGE])
    return ("namespace" if is_own else "broker", seconds) if seconds else None


def _refusing_after(quota: Mapping[str, Any]) -> int:
    """Seconds after which a ``message_age`` quota refuses producers; 0 for never."""
    return max(quota_limit(MESSAGE_AGE, quota), 0) if quota.get("policy") in REFUSING else 0


def _refused_by_age(name: str, whose: str, seconds: int, command: str) -> Check:
    return warning(
        name,
        f"{whose} backlog quota refuses producers when a message is older than {seconds} s",
        "The last receipt of a sink that is idle for longer stays unacknowledged, and the sink "
        f"can't open a producer on its receipt topic. Run {command}",
    )


def _replicated(name: str, clusters: Sequence[str]) -> Check:
    return warning(
        name,
        f"receipts are replicated between {', '.join(sorted(clusters))}",
        "Copies prove nothing elsewhere, and cost traffic. Set receipt_namespace to a namespace of "
        "one cluster.",
    )


def check_retention(namespace: str, policies: dict[str, Any], settings: dict[str, str]) -> Check:
    """Report how long acknowledged receipts are kept; never a risk to an epoch in doubt."""
    # The subscription keeps unacknowledged receipts, independent of retention. Receipts of decided
    # epochs have one use: to detect that a log was replaced by an older copy.
    own = policies.get("retention_policies") or {}
    if not own and not settings:
        return unknown(
            f"retention in {namespace}", "not set, and the broker's default is not readable"
        )
    minutes = first_int(
        own.get("retentionTimeInMinutes"), settings.get("defaultRetentionTimeInMinutes")
    )
    megabytes = first_int(own.get("retentionSizeInMB"), settings.get("defaultRetentionSizeInMB"))
    limits = [f"for {minutes} min"] * (minutes > 0) + [f"up to {megabytes} MB"] * (megabytes > 0)
    if 0 in (minutes, megabytes):  # 0 keeps nothing, -1 everything
        kept = "may be removed; those of epochs in doubt are kept by the subscription"
    else:
        kept = f"are kept {' and '.join(limits) or 'forever'}"
    return ok(f"retention in {namespace}", f"receipts of decided epochs {kept}")


def _inactivity(policies: dict[str, Any], settings: dict[str, str]) -> tuple[str, str] | None:
    own = policies.get("inactive_topic_policies") or {}
    enabled = own.get("deleteWhileInactive", settings.get("brokerDeleteInactiveTopicsEnabled"))
    mode = own.get("inactiveTopicDeleteMode", settings.get("brokerDeleteInactiveTopicsMode"))
    # delete_when_no_subscriptions never deletes a receipt topic: its subscription stays.
    if str(enabled).lower() != "true" or mode != "delete_when_subscriptions_caught_up":
        return None
    return (
        "idle topics are deleted once their subscriptions have caught up",
        "Use delete_when_no_subscriptions for the receipt namespace, or no deletion.",
    )


def _refusals(policies: dict[str, Any], settings: dict[str, str]) -> Iterator[tuple[str, str]]:
    """What keeps a driver and recovery from asking the receipt topic, and the way out."""
    hint = "Take this back, or set receipt_namespace: the outcome of an epoch can't be proved."
    required = policies.get("encryption_required") or settings.get("encryptionRequireOnProducer")
    if str(required).lower() == "true":
        yield "only encrypted messages are accepted, and marks are not encrypted", hint
    types = policies.get("subscription_types_enabled") or ["Exclusive"]
    if "Exclusive" not in types:
        yield f"readers are refused: exclusive subscriptions are not enabled ({types})", hint
    limit = first_int(
        policies.get("max_subscriptions_per_topic"), settings.get("maxSubscriptionsPerTopic")
    )
    if limit == 1:  # 0: no limit
        yield "readers are refused: a topic may have one subscription, which keeps receipts", hint


def _removals(found: Expiry) -> list[tuple[str, str]]:
    """What removes receipts, and the way out."""
    risks = []
    if found.ttl_s:
        what = f"messages expire after {found.ttl_s} s, including receipts"
        hint = (
            "Unset the message TTL of this namespace, or set receipt_namespace to one without it: "
            "an epoch that is in doubt for longer stays in doubt."
        )
        risks.append((what, hint))
    if found.evicting:
        what = f"a full backlog is evicted ({', '.join(found.evicting)})"
        hint = (
            "Use producer_exception or producer_request_hold in the receipt namespace: eviction "
            "removes receipts."
        )
        risks.append((what, hint))
    if found.subscription_min:
        what = f"an idle subscription is deleted after {found.subscription_min} min, with receipts"
        risks.append((what, "Turn off subscription expiration for the receipt namespace (0)."))
    return risks


def _check_topic(
    admin: AdminClient,
    topic: TopicName,
    policies: dict[str, Any],
    settings: dict[str, str],
    *,
    has_begun: bool,
) -> list[Check]:
    name = f"receipts {topic.local.removeprefix('__eos-receipts-')[:40]}"
    try:
        subscriptions = admin.subscriptions(topic)
    except TopicNotFound:
        obstacle = _creation_obstacle(policies, settings)
        return [_missing(name, topic, obstacle, has_begun=has_begun)]
    except EosError as error:
        return [of_error(name, error)]
    checks = [
        _check_subscriptions(name, topic, sorted(filter(is_receipt_subscription, subscriptions)))
    ]
    try:
        seconds = _refusing_after(admin.backlog_quotas(topic).get(MESSAGE_AGE) or {})
    except EosError as error:  # topic policies may be disabled, or not visible to this role
        return [*checks, not_checked(f"quotas of {topic}", error.message)]
    if seconds:
        command = f"pulsar-admin topicPolicies remove-backlog-quota --type message_age {topic}"
        checks.append(_refused_by_age(name, "the topic's", seconds, command))
    return checks


def _missing(name: str, topic: TopicName, obstacle: str | None, *, has_begun: bool) -> Check:
    found = f"{topic} does not exist"
    remedy = "The next claim creates it."
    if obstacle is not None:
        found += f", and {obstacle}"
        remedy = f"Drivers can't create it. Run pulsar-admin topics create {topic}"
    # Before the first transaction nothing is lost. After it, its witness is.
    if not has_begun:
        return warning(name, found, remedy)
    return failed(
        name,
        f"{found}, but the log has transactions with it: this is another cluster, or the topic was "
        "deleted",
        "Check service_url and --admin-url. If it was deleted, `resolve` ends unfinished epochs, "
        "or names those that need `decide`, "
        'and a driver continues with on_new_cluster="continue" once. ' + remedy,
    )


def _check_subscriptions(name: str, topic: TopicName, found: list[str]) -> Check:
    # Without it the broker may trim the receipts, by which an outcome is proved.
    if not found:
        return failed(
            name,
            f"{topic} has no subscription {SUBSCRIPTION}: the broker may trim or delete it",
            "Restart the sink's query: its claim creates the subscription.",
        )
    if len(found) > 1:
        return warning(
            name,
            f"the topic has the subscriptions {' and '.join(found)}, with different prefixes: only "
            "the one with the sink's subscription_prefix acknowledges; the others keep all "
            "receipts",
            f"Remove the others: eos recovery unsubscribe {topic} NAME --apply",
        )
    return ok(name, f"the topic and its subscription {found[0]} exist")


def _creation_obstacle(policies: dict[str, Any], settings: dict[str, str]) -> str | None:
    own = policies.get("autoTopicCreationOverride") or {}
    allowed = own.get("allowAutoTopicCreation", settings.get("allowAutoTopicCreation", "true"))
    kind = own.get("topicType") or settings.get("allowAutoTopicCreationType")
    if str(allowed).lower() == "false":
        return "clients may not create topics in its namespace (allowAutoTopicCreation=false)"
    if kind == "partitioned":  # a receipt topic must not be
        return "topics are created as partitioned (allowAutoTopicCreationType=partitioned)"
    return None
