"""``eos recovery orphans``: transactions that are in no log, and topics with blocked readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from eos.admin import AdminClient, OpenTransaction
from eos.cli.reports import Exit, Facts, Report, age_s, duration, escape, worst
from eos.errors import EosError, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.recovery._blocked_readers import BlockedTopic, blocked_topic, connect_coordinators
from eos.recovery._target import Target


class Orphan(Facts):
    """A transaction that is open at the broker and in no log below the root."""

    txn: str
    status: str
    opened_at: datetime
    age_s: float
    ttl_left_s: float
    topics: list[str]


class OrphansReport(Report):
    """Open transactions that are in no log, and blocked topics."""

    owned: int
    """Number of open transactions that are in a log."""
    orphans: list[Orphan]
    held_back: list[BlockedTopic]
    topics: int
    """Number of partitions and topics checked."""
    problems: list[str]

    @property
    def exit(self) -> Exit:
        """Orphans and pinned topics need action; unanswered queries are unknown."""
        pinned = any(one.cause == "pinned" for one in self.held_back)
        loading = any(one.cause == "loading" for one in self.held_back)
        return worst(
            Exit.NEEDS_ACTION if self.orphans or pinned else Exit.CLEAN,
            Exit.UNKNOWN if self.problems or loading else Exit.CLEAN,
        )

    def render(self, console: Console) -> None:
        """The transactions, then the topics, each with what to do."""
        console.print(
            f"{self.owned} open transactions are in a log, {len(self.orphans)} are not; "
            f"{self.topics} topics checked, {len(self.held_back)} with blocked readers."
        )
        if self.orphans:
            table = Table("transaction", "status", "age", "expires in", "writes to")
            for orphan in self.orphans:
                topics = ", ".join(orphan.topics) or "nothing yet"
                left = duration(orphan.ttl_left_s)
                table.add_row(orphan.txn, orphan.status, duration(orphan.age_s), left, topics)
            console.print(table)
            console.print(
                "These belong to another application, to a log elsewhere, or to a driver that died "
                "before writing OPEN. Each blocks the readers of its topics until it expires; "
                "`abort --txn` ends one now."
            )
        for one in self.held_back:
            console.print(escape(_sentence(one)))
        for problem in self.problems:
            console.print(f"[yellow]Unknown:[/] {escape(problem)}")


def _sentence(one: BlockedTopic) -> str:
    where = f"{one.topic}: readable up to {one.max_read}, last entry {one.last_entry}"
    match one.cause:
        case "open":
            owner = f" of sink {one.owner}" if one.owner else ""
            return f"{where}; transaction {one.txn}{owner} is open; this is normal."
        case "loading":
            return f"{where}; the topic's transaction buffer is loading. Run the command again."
    by = f"the ended transaction {one.txn}" if one.txn else "a transaction that has ended"
    return f"{where}; pinned by {by}. Free it with `heal {one.topic}`."


def orphans(
    target: Target,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic to check in addition to those in the logs; repeatable."),
    ] = None,
) -> OrphansReport:
    """List open transactions that are in no commit log, and topics with blocked readers.

    Needs --admin-url. Checks every topic in the logs, including receipt topics, and every topic
    that an open transaction writes to.

        eos recovery orphans --commit-log /data/eos --admin-url http://broker:8080

    Exit codes: 0 none found; 1 an orphan or a pinned topic; 2 something could not be reached; 64
    wrong options.
    """
    sink_ids, admin = target.sinks(), target.admin()
    problems: list[str] = []
    owners: dict[TxnId, str] = {}
    names = [TopicName.parse(text) for text in topic or ()]
    records: list[LogRecord] = []
    for sink_id in sink_ids:
        try:
            found = target.log(sink_id).records()
        except EosError as error:
            problems.append(f"the log of sink {sink_id}: {error}")
            continue
        owners.update({txn: sink_id for record in found if (txn := pulsar_part(record).txn)})
        records.extend(found)
    connect_coordinators(target, records, problems)
    open_ = admin.open_transactions()
    touched = {TopicName.parse(name) for one in open_ for name in one.topics}
    topics = sorted({*_exact(admin, names), *_topics_of(records), *touched})
    return OrphansReport(
        owned=sum(one.txn in owners for one in open_),
        orphans=[_orphan(one) for one in open_ if one.txn not in owners],
        held_back=list(_blocked_topics(admin, topics, open_, owners, problems)),
        topics=len(topics),
        problems=problems,
    )


def _orphan(one: OpenTransaction) -> Orphan:
    age = age_s(one.opened_at) or 0.0
    return Orphan(
        txn=str(one.txn),
        status=one.status,
        opened_at=one.opened_at,
        age_s=age,
        ttl_left_s=round(one.ttl_s - age, 1),
        topics=list(one.topics),
    )


def _topics_of(records: Iterable[LogRecord]) -> set[TopicName]:
    names = {topic for record in records if (topic := pulsar_part(record).receipt_topic)}
    names |= {part.topic for record in records for part in pulsar_part(record).partitions}
    return {TopicName.parse(name) for name in names}


def _exact(admin: AdminClient, names: Iterable[TopicName]) -> list[TopicName]:
    return [exact for name in names for exact in admin.partitions(name)]


def _blocked_topics(
    admin: AdminClient,
    topics: Iterable[TopicName],
    open_: list[OpenTransaction],
    owners: Mapping[TxnId, str],
    problems: list[str],
) -> Iterable[BlockedTopic]:
    for topic in topics:
        try:
            found = blocked_topic(admin, topic, open_, owners)
        except TopicNotFound:
            continue  # deleted: `verify` reports what was lost
        except EosError as error:
            problems.append(f"{topic}: {error}")
        else:
            if found is not None:
                yield found
