"""The policies by which a broker deletes messages that a subscription has not acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

MESSAGE_AGE: Final = "message_age"
_STORAGE: Final = "destination_storage"
_JAVAS_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class Expiry:
    """What deletes unacknowledged messages; an empty one deletes nothing."""

    ttl_s: int = 0  # messages expire; 0: never
    evicting: tuple[str, ...] = ()  # the kinds of backlog quotas that do
    subscription_min: int = 0  # idle subscriptions are deleted; 0: never


def backlog_quotas(
    policies: Mapping[str, Any],
    settings: Mapping[str, str],
    of_topic: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Mapping[str, Any]]:
    """Return the backlog quotas in effect, by kind: for each kind the topic's own one, else the
    namespace's, else the broker's.

    Args:
        policies: the namespace's (``AdminClient.policies``).
        settings: the broker's (``AdminClient.broker_settings``); {} if they are not readable.
        of_topic: the topic's own (``AdminClient.backlog_quotas``).
    """
    policy = settings.get("backlogQuotaDefaultRetentionPolicy")
    size = _default_bytes(settings)
    age_s = settings.get("backlogQuotaDefaultLimitSecond")
    return {
        _STORAGE: {"policy": policy, "limitSize": size},
        MESSAGE_AGE: {"policy": policy, "limitTime": age_s},
        **(policies.get("backlog_quota_map") or {}),
        **(of_topic or {}),
    }


def expiry(
    policies: Mapping[str, Any],
    settings: Mapping[str, str],
    of_topic: Mapping[str, Mapping[str, Any]] | None = None,
    ttl_s: int | None = None,
) -> Expiry:
    """Return what deletes unacknowledged messages of a topic, or by default in its namespace.

    Args:
        policies: as for ``backlog_quotas``, like ``settings`` and ``of_topic``.
        ttl_s: the topic's time to live in effect, where it is known.
    """
    quotas = backlog_quotas(policies, settings, of_topic)
    if ttl_s is None:
        default_s = settings.get("ttlDurationDefaultInSeconds")
        ttl_s = first_int(policies.get("message_ttl_in_seconds"), default_s)
    default_min = settings.get("subscriptionExpirationTimeMinutes")
    minutes = first_int(policies.get("subscription_expiration_time_minutes"), default_min)
    evicting = (
        kind
        for kind, quota in quotas.items()
        if quota.get("policy") == "consumer_backlog_eviction" and quota_limit(kind, quota) > 0
    )
    return Expiry(max(ttl_s, 0), tuple(evicting), max(minutes, 0))


def _default_bytes(settings: Mapping[str, str]) -> object:
    # As in Pulsar's ``BacklogQuotaManager``; releases before 2.8 know only the older name.
    with suppress(ValueError):
        older = float(settings.get("backlogQuotaDefaultLimitGB", ""))
        if older > 0:
            return int(min(older * (1 << 30), _JAVAS_LARGEST))  # also of infinity
    return settings.get("backlogQuotaDefaultLimitBytes")


def quota_limit(kind: str, quota: Mapping[str, Any]) -> int:
    """Return the bytes or seconds that a backlog quota of a kind allows; 0 or less: any."""
    return first_int(quota.get("limitTime" if kind == MESSAGE_AGE else "limitSize"))


def first_int(*values: object) -> int:
    """Return the first of ``values`` that is a whole number or the text of one; else 0."""
    for value in values:
        try:
            return int(str(value))
        except ValueError:
            continue
    return 0
