"""A driver's decisions: production's, each replaceable by a mutant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from eos.ids import MessageId
from eos.protocol import Action, EndPart, Fate, Run, decide_epoch, next_action
from eos.pulsar.end_rules import Answers, EndAction, Ended, WitnessAnswer, next_end_action
from eos.pulsar.roll_call import find_poison
from eos.task_report import Answer, PartitionFigures, TaskError, TaskSummary
from tests.model.records import QUERY, Entry, Log, history_of, record_of


@dataclass(frozen=True)
class Known(Answers):
    """Answers about the topic's transaction, and about the table's part if there is a table."""

    table: Fate | None = None


Next = Action | EndAction


@lru_cache(None)
def _next_action(entry: Entry, known: Known) -> Next:
    """The committer's next action, and the Pulsar participant's question for its part."""
    fates: list[Fate] = []
    while True:
        action = next_action(record_of(entry), fates)
        if not isinstance(action, EndPart):
            return action
        if action.index:
            if known.table is None:
                return action
            fates.append(known.table)
            continue
        asking = next_end_action(known, commit=action.commit)
        if not isinstance(asking, Ended):
            return asking
        fates.append(asking.fate)


@lru_cache(None)
def _attempt_to_run(log: Log, epoch: int) -> int | None:
    """Return the attempt to open, or None to skip the epoch.

    Raises:
        UnfinishedEpoch: the epoch must not follow the previous one.
    """
    history = history_of(log)
    assert history is not None
    decision = decide_epoch(history, QUERY, str(epoch))
    return decision.attempt if isinstance(decision, Run) else None


@lru_cache(None)
def _is_poisoned(
    copies: tuple[int, ...], errors: tuple[bool, ...], answers: tuple[tuple[int, ...], ...]
) -> bool:
    summaries = [
        TaskSummary(
            spark_partition=task,
            run_id=str(copy) if copy >= 0 else "",
            registered=() if error or copy < 0 else (f"t-{task}",),
            partitions=()
            if error or copy < 0
            else (
                PartitionFigures(f"t-{task}", ("p",), 1, 1, 1, MessageId(1, 1), MessageId(1, 1)),
            ),
            error=TaskError("TransactionPoisoned", "in doubt", "") if error else None,
        )
        for task, (copy, error) in enumerate(zip(copies, errors, strict=True))
    ]
    given = [Answer(task, str(copy)) for task, runs in enumerate(answers) for copy in runs]
    return find_poison(summaries, given) is not None


def _witness(*, mark: bool, sentinel: bool, receipt: bool) -> WitnessAnswer:
    """The conclusion from a read of the receipt topic up to the deadline."""
    if not mark:
        return WitnessAnswer.HISTORY_GONE
    if receipt:
        return WitnessAnswer.READABLE
    return WitnessAnswer.PROVED_ABSENT if sentinel else WitnessAnswer.UNKNOWN


@dataclass(frozen=True)
class Rules:
    """The rules that a driver follows.

    The first four are production's decisions. The others are the order of steps that the
    committer and the tasks keep.
    """

    next_action: Callable[[Entry, Known], Next] = _next_action
    attempt_to_run: Callable[[Log, int], int | None] = _attempt_to_run
    is_poisoned: Callable[
        [tuple[int, ...], tuple[bool, ...], tuple[tuple[int, ...], ...]], bool
    ] = _is_poisoned
    witness: Callable[..., WitnessAnswer] = _witness
    fence: bool = True
    """An append fails if another driver has appended since the last read."""
    claims: bool = True
    """A new driver appends CLAIMED first."""
    finishes_first: bool = True
    """After the claim, all unfinished epochs are ended."""
    answers: bool = True
    """A run answers the roll call before it sends."""
    obeys_roll_call: bool = True
    """A run sends nothing if the roll call is closed or has another run of its task."""
    closes_roll_call: bool = True
    """The driver closes the roll call before it counts the answers."""
    waits_for_receipts: bool = True
    """A task reports only acknowledged rows."""
    resends: bool = False
    """A send whose receipt is missing is sent again."""
    receipt_inside: bool = True
    """The receipt is sent inside the transaction."""
    prepares_first: bool = True
    """PREPARED is appended before END_TXN(commit) goes out."""
    aborts_by_log: bool = True
    """ABORTING is appended before END_TXN(abort) goes out."""
