"""``eos recovery orphans`` and ``heal``: transactions in no log, topics with blocked readers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Final, Literal, NamedTuple

import typer
from rich.console import Console

from eos.admin import AdminClient, OpenTransaction
from eos.cli.reports import Exit, Facts, Report, age_s, counted, duration, escape, table_of, worst
from eos.client import PulsarClient
from eos.errors import EosError, Indeterminate, TopicNotFound
from eos.ids import TopicName, TxnId
from eos.protocol import LogRecord
from eos.pulsar.part import pulsar_part
from eos.pulsar.stuck_partitions import commit_empty
from eos.recovery._change import Apply, ChangeProgress, Plan, PlanStep, Yes, carry_out
from eos.recovery._target import Target, existing_partitions
from eos.retry import Patience, ask_until

_OPENING_S: Final = 2.0  # A driver needs less from the beginning of a transaction to OPEN.


class BlockedTopic(Facts):
    """A topic whose last entries are not readable."""

    topic: str
    # open: a running transaction, which is normal. pinned: a dead one, which needs `heal`. loading:
    # the topic's transaction buffer is not ready yet, so nothing is known.
    cause: Literal["open", "pinned", "loading"]
    txn: str | None
    owner: str | None
    max_read: str
    last_entry: str


def connect_coordinators(target: Target, problems: list[str]) -> None:
    """Connect to all coordinators of the given cluster, or of those that the logs name."""
    # Until a client has connected, they do not load or list transactions (measured).
    for url in target.service_urls():
        try:
            with target.client(url) as client:
                for tc_id in range(client.coordinators.count()):
                    client.coordinators.connect(tc_id)
        except EosError as error:
            problems.append(f"the transaction coordinators: {error}")


def blocked_topic(
    admin: AdminClient,
    topic: TopicName,
    open_: list[OpenTransaction],
    owners: Mapping[TxnId, str],
) -> BlockedTopic | None:
    """Return what blocks the readers of an exact topic; None if nothing does.

    Args:
        open_: the coordinators' open transactions, queried before the topic.
        owners: transactions in the logs; candidates if no open one writes to the topic.
    """
    position = admin.read_position(topic)
    if not position.is_ready:
        cause: Literal["open", "pinned", "loading"] = "loading"
    elif not position.blocks_readers:
        return None
    else:
        cause = "pinned"
    txn: TxnId | None = None
    if cause == "pinned":
        # An open transaction comes first: it is normal, and its commit or abort frees the readers.
        alive = [one.txn for one in open_ if str(topic) in one.topics]
        if not alive:  # one may have begun since, and may have ended before the second look
            alive = [one.txn for one in admin.open_transactions() if str(topic) in one.topics]
            if not alive and admin.read_position(topic).max_read != position.max_read:
                return None
        if alive:
            cause, txn = "open", alive[0]
        else:
            # Newest first: the transaction that pins a topic is seldom old.
            suspects = sorted(owners, reverse=True)
            txn = next((one for one in suspects if admin.is_open_in_buffer(topic, one)), None)
    return BlockedTopic(
        topic=str(topic),
        cause=cause,
        txn=str(txn) if txn else None,
        owner=owners.get(txn) if txn else None,
        max_read=f"{position.max_read.ledger}:{position.max_read.entry}",
        last_entry=f"{position.last_entry.ledger}:{position.last_entry.entry}",
    )


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

    owned: int  # open transactions that are in a log
    orphans: list[Orphan]
    held_back: list[BlockedTopic]
    topics: int  # partitions and topics checked
    problems: list[str]

    @property
    def exit(self) -> Exit:
        """Orphans and pinned topics need action; unanswered queries are unknown."""
        # A topic behind an open transaction is normal: its end frees the readers.
        pinned = any(one.cause == "pinned" for one in self.held_back)
        loading = any(one.cause == "loading" for one in self.held_back)
        return worst(
            Exit.NEEDS_ACTION if self.orphans or pinned else Exit.CLEAN,
            Exit.UNKNOWN if self.problems or loading else Exit.CLEAN,
        )

    def render(self, console: Console) -> None:
        """The transactions, then the topics, each with what to do."""
        console.print(
            f"Open transactions: {self.owned} in a log, {len(self.orphans)} in none; "
            f"{counted(self.topics, 'topic')} checked, {len(self.held_back)} with blocked readers."
        )
        if self.orphans:
            table = table_of("transaction", "status", "age", "expires in", "writes to")
            for orphan in self.orphans:
                topics = ", ".join(orphan.topics) or "nothing yet"
                left = duration(orphan.ttl_left_s)
                cells = orphan.txn, orphan.status, duration(orphan.age_s), left, topics
                table.add_row(*map(escape, cells))
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
    return f"{where}; pinned by {by}. Free it with `heal {shlex.quote(one.topic)}`."


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
    logs, admin = _read_logs(target), target.admin()
    problems: list[str] = []
    connect_coordinators(target, problems)
    open_ = admin.open_transactions()
    opened = {one.txn for one in open_}
    if not opened <= logs.owners.keys():
        # A running driver has begun it since, and appends OPEN after that.
        logs = ask_until(
            lambda: _read_logs(target), lambda logs: opened <= logs.owners.keys(), _OPENING_S
        )
    problems += logs.problems
    touched = {TopicName.parse(name) for one in open_ for name in one.topics}
    named = (exact for name in topic or () for exact in admin.partitions(TopicName.parse(name)))
    topics = sorted({*named, *_topics_of(logs.records), *touched})
    return OrphansReport(
        owned=len(opened & logs.owners.keys()),
        orphans=[_orphan(one) for one in open_ if one.txn not in logs.owners],
        held_back=list(_blocked_topics(admin, topics, open_, logs.owners, problems)),
        topics=len(topics),
        problems=problems,
    )


class _Logs(NamedTuple):
    owners: dict[TxnId, str]
    records: list[LogRecord]
    problems: list[str]


def _read_logs(target: Target) -> _Logs:
    logs = _Logs({}, [], [])
    for sink_id in target.sinks():
        try:
            found = target.log(sink_id).records()
        except EosError as error:
            # Without this log its transactions look like orphans, so the report must say so.
            logs.problems.append(f"the log of sink {sink_id}: {error}")
            continue
        logs.owners.update({txn: sink_id for record in found if (txn := pulsar_part(record).txn)})
        logs.records.extend(found)
    return logs


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


def heal(
    target: Target,
    topic: Annotated[str, typer.Argument(help="A topic, or one ...-partition-n of it.")],
    apply: Apply = False,
    yes: Yes = False,
    wait_s: Annotated[
        float,
        typer.Option(min=0, help="Seconds to keep trying while older transactions are open."),
    ] = 60.0,
) -> Report:
    """Free a partition that is pinned by a dead transaction, by committing an empty one.

    If an abort overtakes a task's write, the aborted transaction may remain in the topic's buffer.
    Readers then do not get the committed data after it. The repair works once no older transaction
    is open on the coordinator; until then the command waits. Needs --admin-url, and --service-url
    or --commit-log.

        eos recovery heal persistent://public/default/orders --admin-url http://broker:8080 \\
            --service-url pulsar://broker:6650 --apply

    Exit codes: 0 nothing is pinned, or all were freed; 1 a plan with steps; 2 still pinned, or
    something could not be reached; 64 wrong options.
    """
    admin = target.admin()
    unknown: list[str] = []
    target.service_url_of(target.recorded_url())  # raises unless there is one cluster to heal
    connect_coordinators(target, unknown)  # or they list no transactions
    open_ = admin.open_transactions()
    seen = _look(admin, existing_partitions(admin, topic), open_)
    pinned = {
        name: one.max_read
        for name, one in seen.items()
        if isinstance(one, BlockedTopic) and one.cause == "pinned"
    }
    unknown += [f"{name}: {one}" for name, one in seen.items() if isinstance(one, EosError)]
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{name}: commit an empty transaction on each coordinator in turn.",
                why="Its readers are blocked although no open transaction writes to it: a dead "
                "one pins it.",
            )
            for name in pinned
        ],
        warnings=_older(open_) if pinned else [],
        unknown=unknown,
    )

    def do(progress: ChangeProgress) -> None:
        with target.client(target.recorded_url()) as client:
            _free(client, admin, pinned, progress, Patience(wait_s))

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _look(
    admin: AdminClient, topics: Iterable[TopicName], open_: list[OpenTransaction]
) -> dict[TopicName, BlockedTopic | EosError | None]:
    """The cause that blocks the readers of each topic; None: there is no cause; an error: it is not
    known."""
    found: dict[TopicName, BlockedTopic | EosError | None] = {}
    for name in topics:
        try:
            found[name] = one = blocked_topic(admin, name, open_, {})
        except TopicNotFound:
            found[name] = None  # a partition that was never used
        except EosError as error:
            found[name] = error
        else:
            if one is not None and one.cause == "loading":
                found[name] = Indeterminate(
                    "The topic's transaction buffer is loading.", hint="Run the command again."
                )
    return found


def _older(open_: list[OpenTransaction]) -> list[str]:
    return [
        f"Transaction {one.txn} is open ({duration(age_s(one.opened_at))} old, expires in "
        f"{duration(-(age_s(one.expires_at) or 0.0))}): the repair works only after its end."
        for one in open_
    ]


def _free(
    client: PulsarClient,
    admin: AdminClient,
    pinned: Mapping[TopicName, str],
    progress: ChangeProgress,
    patience: Patience,
) -> None:
    """Free topics; ``pinned``: up to where each was readable."""
    left = dict(pinned)
    while True:
        for tc_id in range(client.coordinators.count()):
            progress.doing(f"empty transaction on coordinator {tc_id} for {len(left)} topics")
            try:
                commit_empty(client, tc_id, map(str, left))
            except EosError as error:
                progress.failed(f"coordinator {tc_id}", error)
                return
        try:
            seen = _look(admin, left, admin.open_transactions())
        except EosError as error:
            seen = dict.fromkeys(left, error)
        # An empty commit frees a topic only when no older transaction is open on its coordinator
        # (measured), so what is still pinned is tried again.
        for name, one in seen.items():
            if _is_free(one, left[name]):
                progress.done(f"{name}: its readers continue")
                del left[name]
            elif isinstance(one, BlockedTopic) and one.cause == "pinned":
                left[name] = one.max_read  # by the next dead one
        if not left:
            return
        if patience.is_over:
            for name in left:
                progress.failed(str(name), _doubt(seen[name]))
            return
        patience.pause()


def _is_free(seen: BlockedTopic | EosError | None, max_read: str) -> bool:
    # After the dead transaction the next one may be open already.
    return seen is None or (
        isinstance(seen, BlockedTopic) and seen.cause == "open" and seen.max_read != max_read
    )


def _doubt(seen: BlockedTopic | EosError | None) -> EosError:
    if isinstance(seen, EosError):
        return seen
    # Unknown, not failed: the repair works once the older transaction has ended.
    return Indeterminate(
        "The partition is still pinned: an older transaction is open on its coordinator.",
        hint="`orphans` lists open transactions. Retry when they have ended.",
    )
