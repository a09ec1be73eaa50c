"""``eos recovery subscriptions`` and ``unsubscribe``: durable subscriptions of a topic."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console

from eos.admin import AdminClient, Subscription
from eos.cli.reports import Exit, Facts, Report, age_s, ago, escape, table_of
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName
from eos.recovery._change import Apply, ChangeProgress, Plan, PlanStep, Yes, carry_out
from eos.recovery._target import Target, existing_partitions
from eos.waiting import parallel_map

TopicArgument = Annotated[
    str, typer.Argument(help="A topic, or one of its partitions (...-partition-n).")
]


class SubscriptionFacts(Facts):
    """One subscription, summed over its partitions."""

    name: str
    partitions: int
    backlog: int  # approximate number of messages that it keeps
    consumers: int
    acknowledged_at: datetime | None


class SubscriptionsReport(Report):
    """The durable subscriptions of one topic."""

    topic: str
    partitions: int
    subscriptions: list[SubscriptionFacts]

    @property
    def exit(self) -> Exit:
        """Always clean: nothing is judged."""
        return Exit.CLEAN

    def render(self, console: Console) -> None:
        """A table, and how to remove an unused subscription."""
        console.print(
            escape(f"{self.topic}: {len(self.subscriptions)} durable subscriptions."),
            highlight=False,
        )
        if not self.subscriptions:
            return
        table = table_of("subscription", "partitions", "backlog", "consumers", "last acknowledged")
        for one in self.subscriptions:
            when = "-" if one.acknowledged_at is None else ago(age_s(one.acknowledged_at))
            parts = f"{one.partitions} of {self.partitions}"
            table.add_row(escape(one.name), parts, f"{one.backlog:,}", str(one.consumers), when)
        console.print(table)
        console.print(
            "A stream that has read everything keeps one entry of each partition. A subscription "
            "whose query no longer exists keeps every new message. Remove it with "
            f"`unsubscribe {escape(self.topic)} NAME`."
        )


def subscriptions(target: Target, topic: TopicArgument) -> SubscriptionsReport:
    """List the durable subscriptions of a topic, and how many messages each one keeps.

    Each stream of `format("pulsar")` has one. Its name is in the query's checkpoint:
    `eos-source-...`, unless a name was given. Needs --admin-url.

        eos recovery subscriptions orders --admin-url http://broker:8080

    Exit codes: 0 shown; 2 something could not be reached; 64 wrong options.
    """
    admin = target.admin()
    topics = existing_partitions(admin, topic)
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
    name: Annotated[str, typer.Argument(help="The subscription, as shown by `subscriptions`.")],
    apply: Apply = False,
    yes: Yes = False,
) -> Report:
    """Remove a durable subscription from all partitions of a topic.

    For a query that will not run again: messages kept only by this subscription may then be
    deleted. Refused while the subscription has consumers; stop the query first. Needs --admin-url.

        eos recovery unsubscribe orders eos-source-0a1b2c --admin-url http://broker:8080 --apply

    Exit codes: 0 removed, or it does not exist; 1 a plan with steps, or it is in use; 2 something
    could not be reached; 64 wrong options.
    """
    admin = target.admin()
    topics = existing_partitions(admin, topic)
    everyone = _each(admin, topics)
    found = [(exact, one) for exact, one in everyone if one.name == name]
    others = ", ".join(sorted({one.name for _, one in everyone})) or "none"
    used = _refusals(everyone, name)
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{exact}: remove the subscription {name}.",
                why=f"It keeps {one.backlog:,} messages, which may then be deleted.",
            )
            for exact, one in found
            if not used
        ],
        refused=used,
        warnings=[] if found else [f"There is no subscription {name}. Those of {topic}: {others}."],
    )

    def do(progress: ChangeProgress) -> None:
        # A query may have started since the plan.
        if late := _refusals(_each(admin, topics), name):
            for why in late:
                progress.refused(why)
            return
        for exact, _ in found:
            try:
                admin.remove_subscription(exact, name)
            except EosError as error:
                progress.failed(str(exact), error)
            else:
                progress.done(f"{exact}: removed {name}")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _refusals(everyone: Iterable[tuple[TopicName, Subscription]], name: str) -> list[str]:
    # A stream's subscription remains when its query ends; a consumer shows that it has not ended.
    # One is enough: an unloaded partition has none until the query's next epoch.
    used = [exact for exact, one in everyone if one.name == name and one.consumers]
    return [f"{exact}: the subscription has a consumer. Stop its query first." for exact in used]


def _each(admin: AdminClient, topics: list[TopicName]) -> list[tuple[TopicName, Subscription]]:
    def all_of(topic: TopicName) -> list[tuple[TopicName, Subscription]] | None:
        try:
            return [(topic, one) for one in admin.subscription_stats(topic)]
        except TopicNotFound:
            return None  # a partition that was never used

    found = parallel_map(all_of, topics)
    # Of a partitioned topic, unused partitions need not exist; a single topic must.
    if found == [None]:
        raise ConfigurationError(f"Topic {topics[0]} does not exist.")
    return [pair for pairs in found for pair in pairs or ()]
