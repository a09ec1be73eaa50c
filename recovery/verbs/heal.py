"""``eos recovery heal``: free a partition whose readers are blocked by a dead transaction."""

from __future__ import annotations

from typing import Annotated

import typer

from eos.admin import AdminClient, OpenTransaction
from eos.cli.reports import Report, age_s, duration
from eos.client import PulsarClient
from eos.errors import ConfigurationError, EosError, Indeterminate, TopicNotFound
from eos.ids import TopicName
from eos.pulsar.stuck_partitions import commit_empty
from eos.recovery._blocked_readers import blocked_topic, connect_coordinators
from eos.recovery._change import Apply, ChangeProgress, Yes, carry_out
from eos.recovery._plan import Plan, PlanStep
from eos.recovery._target import Target
from eos.retry import Patience


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
    is open on the coordinator; until then the command waits. Needs --admin-url.

        eos recovery heal persistent://public/default/orders --admin-url http://broker:8080 --apply

    Exit codes: 0 nothing is pinned, or all were freed; 1 a plan with steps; 2 still pinned, or
    something could not be reached; 64 wrong options.
    """
    admin = target.admin()
    problems: list[str] = []
    connect_coordinators(target, [], problems)
    open_ = admin.open_transactions()
    try:
        topics = admin.partitions(TopicName.parse(topic))
    except TopicNotFound:
        raise ConfigurationError(f"Topic {topic} does not exist.") from None
    pinned = _pinned(admin, topics, open_)
    plan = Plan(
        steps=[
            PlanStep(
                what=f"{name}: commit an empty transaction on each coordinator in turn.",
                why="Its readers are blocked although no open transaction writes to it: a dead "
                "one pins it.",
            )
            for name in pinned
        ],
        warnings=[*(_older(open_) if pinned else []), *problems],
    )

    def do(progress: ChangeProgress) -> None:
        with target.client() as client:
            _free(client, admin, pinned, progress, Patience(wait_s))

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _pinned(
    admin: AdminClient, topics: list[TopicName], open_: list[OpenTransaction]
) -> list[TopicName]:
    found = []
    for name in topics:
        try:
            state = blocked_topic(admin, name, open_, {})
        except TopicNotFound:
            continue  # a partition that was never used
        if state is not None and state.cause == "pinned":
            found.append(name)
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
    topics: list[TopicName],
    progress: ChangeProgress,
    patience: Patience,
) -> None:
    left = topics
    while left:
        for tc_id in range(client.coordinators.count()):
            progress.doing(f"empty transaction on coordinator {tc_id} for {len(left)} topics")
            try:
                commit_empty(client, tc_id, [str(name) for name in left])
            except EosError as error:
                progress.failed(f"coordinator {tc_id}", error)
                return
        still = _pinned(admin, left, admin.open_transactions())
        for name in left:
            if name not in still:
                progress.done(f"{name}: its readers continue")
        left = still
        if left and patience.is_over:
            for name in left:
                older = Indeterminate(
                    "The partition is still pinned: an older transaction is open on its "
                    "coordinator.",
                    hint="`orphans` lists open transactions. Retry when they have ended.",
                )
                progress.failed(str(name), older)
            return
        if left:
            patience.pause()
