"""What the doctor asks about the topics that sinks write to: what keeps their messages?

A broker deletes what no subscription and no retention policy holds, committed or not, once the
ledger that it is in is closed: by a restart, an unload, or its size.
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
from eos.recovery.checks.check import Check, failed, of_error, ok, unknown, warning

_MOST: Final = 50


def check_data_topics(
    target: Target, admin: AdminClient | None, newest: list[LogRecord]
) -> list[Check]:
    """A check for each topic that the newest rows of a sink are in."""
    names: dict[str, None] = {}
    for record in newest:
        written = target.log(record.sink_id).history.last_written
        names.update(dict.fromkeys(pulsar_part(written).topics if written else ()))
    if names and admin is None:
        hint = "Pass --admin-url: retention, expiry and subscriptions are seen there."
        return [unknown("data topics", "not looked at", hint)]
    assert admin is not None or not names
    checks = [_check(admin, TopicName.parse(name)) for name in list(names)[:_MOST] if admin]
    if len(names) > _MOST:
        hint = "Name a sink to look at fewer."
        checks.append(unknown("data topics", f"{len(names) - _MOST} more, not looked at", hint))
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
            "Check service_url and --admin-url. `verify` counts what is gone; write it from "
            "elsewhere with a batch key of its own.",
        )
    except EosError as error:
        return of_error(name, error)
    return judge(name, topic, subscriptions, retention, ttl_s)


def judge(
    name: str, topic: TopicName, subscriptions: list[str], retention: Retention, ttl_s: int
) -> Check:
    """What keeps the messages of one topic.

    Args:
        ttl_s: after how many seconds the broker acknowledges for everybody; 0: never.
    """
    command = (
        f"pulsar-admin namespaces set-retention {topic.namespace_name} --time 7d --size -1 (or, of "
        f"this topic alone, topicPolicies set-retention {topic} with the same)"
    )
    if 0 not in (retention.minutes, retention.megabytes):
        limits = [duration(retention.minutes * 60)] * (retention.minutes > 0)
        limits += [f"{retention.megabytes} MB"] * (retention.megabytes > 0)
        kept = f"for {' and up to '.join(limits)}" if limits else "for ever"
        return ok(name, f"its messages are kept {kept} (retention)")
    if not subscriptions:
        return warning(
            name,
            "no subscription and no retention keep its messages: the broker deletes them, "
            "committed or not, minutes after a restart or an unload",
            f"Subscribe before you write, or {command}",
        )
    named = ", ".join(subscriptions[:5]) + (", ..." if len(subscriptions) > 5 else "")
    if ttl_s > 0:
        return warning(
            name,
            f"its messages expire after {duration(ttl_s)} (time to live), whether subscription "
            f"{named} has them or not",
            f"Unset the time to live, or {command}",
        )
    return ok(name, f"messages are kept until {named} acknowledged them; no retention after that")
