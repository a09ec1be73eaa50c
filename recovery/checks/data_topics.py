"""Checks that the messages of the sinks' topics are kept.

A broker deletes messages that no subscription and no retention policy keeps, committed or not,
after their ledger is closed: by a restart, an unload, or its size.
"""

from __future__ import annotations

from typing import Final

from eos.admin import AdminClient, Retention
from eos.cli.reports import duration
from eos.errors import EosError, TopicNotFound
from eos.ids import TopicName
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._target import Target
from eos.recovery.checks.check_result import Check, failed, of_error, ok, unknown, warning

_MOST: Final = 50


def check_data_topics(
    target: Target, admin: AdminClient | None, newest: list[LogRecord]
) -> list[Check]:
    """Check each topic that has the newest rows of a sink."""
    names: dict[str, None] = {}
    for record in newest:
        written = target.log(record.sink_id).history.last_written
        names.update(dict.fromkeys(pulsar_part(written).topics if written else ()))
    if names and admin is None:
        hint = "Pass --admin-url to check retention, expiry and subscriptions."
        return [unknown("data topics", "not checked", hint)]
    assert admin is not None or not names
    checks = [_check(admin, TopicName.parse(name)) for name in list(names)[:_MOST] if admin]
    if len(names) > _MOST:
        hint = "Pass a sink to check fewer topics."
        checks.append(unknown("data topics", f"{len(names) - _MOST} more, not checked", hint))
    return checks


def _check(admin: AdminClient, topic: TopicName) -> Check:
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
        ttl_s: the time to live, after which the broker acknowledges messages on all
            subscriptions; 0 if there is none.
    """
    command = (
        f"pulsar-admin namespaces set-retention {topic.namespace_name} --time 7d --size -1 (or, "
        f"for this topic only, pulsar-admin topicPolicies set-retention {topic} --time 7d --size "
        "-1)"
    )
    if 0 not in (retention.minutes, retention.megabytes):
        limits = [duration(retention.minutes * 60)] * (retention.minutes > 0)
        limits += [f"{retention.megabytes} MB"] * (retention.megabytes > 0)
        kept = f"for {' and up to '.join(limits)}" if limits else "forever"
        return ok(name, f"its messages are kept {kept} (retention)")
    if not subscriptions:
        return warning(
            name,
            "its messages are not kept by a subscription or retention: the broker deletes them, "
            "committed or not, minutes after a restart or an unload",
            f"Subscribe before writing, or run {command}",
        )
    named = ", ".join(subscriptions[:5]) + (", ..." if len(subscriptions) > 5 else "")
    if ttl_s > 0:
        return warning(
            name,
            f"its messages expire after {duration(ttl_s)} (time to live), even if subscription "
            f"{named} has not received them",
            f"Unset the time to live, or run {command}",
        )
    return ok(name, f"messages are kept until {named} acknowledges them; there is no retention")
