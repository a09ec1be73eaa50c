"""``eos recovery subscriptions`` and ``unsubscribe``: what keeps a topic's entries from deletion.

A stream that reads a topic has a durable subscription, which outlives it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eos.admin import AdminClient, Subscription
from eos.cli.exit_codes import Exit
from eos.cli.reports import Facts, Report, age_s, duration, escape
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._report import Plan, PlanStep
from eos.recovery._target import Target

TopicArgument = Annotated[str, typer.Argument(help="A topic, or one ...-partition-n of it.")]


class SubscriptionFacts(Facts):
    """One subscription, over all partitions that have it."""

    name: str
    partitions: int
    backlog: int
    """Messages that it keeps from deletion, about."""
    consumers: int
    acknowledged_at: datetime | None


class SubscriptionsReport(Report):
    """The durable subscriptions of one topic."""

    topic: str
    partitions: int
    subscriptions: list[SubscriptionFacts]

    @property
    def exit(self) -> Exit:
        """It only tells what is there."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """A table, and what to do with one that nobody needs."""
        console.print(
            escape(f"{self.topic}: {len(self.subscriptions)} durable subscriptions."),
            highlight=False,
        )
        if not self.subscriptions:
            return
        table = Table("subscription", "partitions", "backlog", "consumers", "last acknowledged")
        for one in self.subscriptions:
            when = (
                "-"
                if one.acknowledged_at is None
                else f"{duration(age_s(one.acknowledged_at))} ago"
            )
            parts = f"{one.partitions} of {self.partitions}"
            table.add_row(escape(one.name), parts, f"{one.backlog:,}", str(one.consumers), when)
        console.print(table)
        console.print(
            "A stream keeps one entry of each partition when it has read all. Those whose query is "
            f"gone for good keep all that comes: `unsubscribe {escape(self.topic)} NAME` removes "
            "one."
        )


def subscriptions(target: Target, topic: TopicArgument) -> SubscriptionsReport:
    """What keeps the entries of a topic: its durable subscriptions, and how much each keeps.

    Streams of `format("pulsar")` have one each, `eos-source-...` unless they were given a name; it
    is in the query's checkpoint. Needs --admin-url.

        eos recovery subscriptions orders --admin-url http://broker:8080

    Exit codes: 0 shown; 2 something could not be reached; 64 wrong options.
    """
    admin = target.admin()
    topics = _partitions(admin, topic)
    by_name: dict[str, list[Subscription]] = {}
    for _, one in _each(admin, topics):
        by_name.setdefault(one.name, []).append(one)
    return SubscriptionsReport(
        topic=topic,
        partitions=len(topics),
        subscriptions=[
            SubscriptionFacts(
                name=name,
                partitions=len(parts),
                backlog=sum(one.backlog for one in parts),
                consumers=sum(one.consumers for one in parts),
                acknowledged_at=max(
                    (at for one in parts if (at := one.acknowledged_at)), default=None
                ),
            )
            for name, parts in sorted(by_name.items())
        ],
    )


def unsubscribe(
    target: Target,
    topic: TopicArgument,
    name: Annotated[str, typer.Argument(help="The subscription, as `subscriptions` shows it.")],
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Remove a durable subscription from all partitions of a topic: its query is gone for good.

    What only it kept may be deleted then. One with consumers is left alone: stop the query first.
    Needs --admin-url.

        eos recovery unsubscribe orders eos-source-0a1b2c --admin-url http://broker:8080 --apply

    Exit codes: 0 there is none, or removed; 1 a plan with steps, or one is in use; 2 something
    could not be reached; 64 wrong options.
    """
    admin = target.admin()
    found = [
        (exact, one) for exact, one in _each(admin, _partitions(admin, topic)) if one.name == name
    ]
    used = [exact for exact, one in found if one.consumers]
    free = [(exact, one) for exact, one in found if not one.consumers]
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{exact}: remove the subscription {name}.",
                why=f"It keeps {one.backlog:,} messages, which may be deleted then.",
            )
            for exact, one in free
        ],
        refused=[f"{exact}: a consumer uses it. Stop its query first." for exact in used],
    )

    def do(progress: ChangeProgress) -> None:
        for exact, _ in free:
            try:
                admin.remove_subscription(exact, name)
            except EosError as error:
                progress.went_wrong(str(exact), error)
            else:
                progress.done(f"{exact}: {name} is removed")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _partitions(admin: AdminClient, topic: str) -> list[TopicName]:
    try:
        return admin.partitions(TopicName.parse(topic))
    except TopicNotFound:
        raise ConfigurationError(f"There is no topic {topic}.") from None


def _each(admin: AdminClient, topics: list[TopicName]) -> Iterator[tuple[TopicName, Subscription]]:
    missing = 0
    for topic in topics:
        try:
            found = admin.subscription_stats(topic)
        except TopicNotFound:
            missing += 1  # a partition that nobody has used yet
            continue
        yield from ((topic, one) for one in found)
    if missing == len(topics) == 1:
        raise ConfigurationError(f"There is no topic {topics[0]}.")
