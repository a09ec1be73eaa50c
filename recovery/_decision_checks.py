"""What speaks against a person's decision. Pure: by the log's record and what was seen."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from eos.cli.reports import duration
from eos.protocol import FINAL, OWING, Known, LogRecord, State
from eos.pulsar.end_queries import MarkAnswer, WitnessAnswer
from eos.recovery._evidence import AtCoordinator, Evidence


class Verdict(StrEnum):
    """What a person may say that became of an epoch."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Objection:
    """One reason to refuse. ``is_unknown``: only an answer is missing."""

    text: str
    is_unknown: bool = False


def objections(
    record: LogRecord, verdict: Verdict, evidence: Evidence, give_up: Collection[str] = ()
) -> list[Objection]:
    """Why ``verdict`` can't be recorded of the epoch whose newest record is ``record``.

    Args:
        give_up: outputs of which somebody says that they will never answer again.
    """
    of_state = _of_state(record.state, verdict)
    if of_state is not None:
        return [Objection(of_state)]
    if verdict is Verdict.ABANDONED:
        return []
    silent = list(_of_silence(evidence, give_up))
    if silent:
        return silent
    several = len(record.participants) > 1
    if several and verdict is Verdict.COMMITTED and evidence.witness is WitnessAnswer.READABLE:
        return []  # the first output is committed: what is asked for is to go on without another
    if evidence.txn is None:
        return list(_of_outputs(verdict, evidence))
    return [*_of_proofs(verdict, evidence), *_of_the_transaction(verdict, evidence)]


def _of_silence(seen: Evidence, give_up: Collection[str]) -> Iterator[Objection]:
    for one in seen.outputs:
        if not one.has_answered and one.output not in give_up:
            yield Objection(
                f"{one.output} gives no answer now, and may have the epoch or still take it. Make "
                f"it reachable and repeat; if it never will be: --give-up {one.output}",
                is_unknown=True,
            )


def _of_outputs(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    """Of an epoch without a topic: the first output decides, and can't expire."""
    has_it = [one for one in seen.outputs if one.known is Known.COMMITTED]
    if verdict is Verdict.ABORTED:
        for one in has_it:
            yield Objection(f"It is in {one.output}: it is committed.")
        return
    first = seen.outputs[0]
    if len(has_it) == len(seen.outputs):
        yield Objection("Every output has it: `resolve` proves it.")
    elif first.is_provable and first.known is not Known.COMMITTED:
        yield Objection(
            f"It is not in {first.output}: `resolve` ends it. Where that can't be, --as aborted "
            "has it written again."
        )


def _of_state(state: State, verdict: Verdict) -> str | None:
    if state in FINAL:
        return f"The epoch is {state.value}: that is final."
    if state in (State.OPEN, State.ABORTING):
        return (
            f"The epoch is {state.value}: nobody decided to commit it, so nobody can have. "
            "`resolve` ends it as ABORTED, whatever has become of its receipt topic."
        )
    if verdict is Verdict.ABANDONED:
        if state in OWING:
            return None
        if state is State.ABANDONED:
            return "Its rows are given up already."
        return (
            "The epoch is PREPARED: readers may have its rows. `resolve` proves it, or decide "
            "--as committed or --as aborted; what is aborted can be abandoned then."
        )
    if state is State.PREPARED:
        return None
    return (
        f"The epoch is {state.value}: nothing of it is in doubt. It is written by the next run of "
        "its query; to go on without its rows, decide --as abandoned."
    )


def _of_proofs(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    is_read = seen.witness is WitnessAnswer.READABLE
    if seen.mark is MarkAnswer.UNKNOWN or seen.witness is WitnessAnswer.UNKNOWN:
        yield Objection(
            "The receipt topic may prove what happened, and gives no answer now. Make the broker "
            "well and repeat.",
            is_unknown=True,
        )
    unread = [part.topic for part in seen.partitions if part.readable is None]
    if unread:
        yield Objection(
            f"The epoch's messages in {', '.join(unread)} can't be looked for now.", is_unknown=True
        )
    if verdict is Verdict.ABORTED and is_read:
        yield Objection("Its receipt is readable: it is committed.")
    elif verdict is Verdict.ABORTED and seen.readable:
        yield Objection(
            f"{seen.readable:,} messages of its transaction are readable: it is committed."
        )
    if verdict is Verdict.COMMITTED and seen.witness is WitnessAnswer.PROVED_ABSENT:
        yield Objection("Its receipt is proved absent: it was never committed.")
    # A partition that was terminated keeps the broker from ever answering END_TXN (measured).
    is_stuck = is_read and not seen.is_whole and verdict is Verdict.COMMITTED
    if seen.mark is MarkAnswer.FOUND and not is_stuck:
        yield Objection("Its mark is found: `resolve` ends it, or proves what happened.")
    elif seen.mark is MarkAnswer.ABSENT and seen.is_whole and verdict is Verdict.COMMITTED:
        yield Objection("All of its messages are readable: `resolve` proves by them what happened.")


def _of_the_transaction(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    left = seen.ttl_left_s or 0.0
    if left >= 0:
        yield Objection(
            f"Its time to live has {duration(left)} left: until then the transaction may be open, "
            "and a driver that comes back, or is only slow, may commit it. Repeat when it is over."
        )
    match seen.at_coordinator, verdict:
        case AtCoordinator.UNKNOWN, _:
            yield Objection(
                "The coordinator gives no answer about it now. Repeat; if it never does, leave "
                "--admin-url out.",
                is_unknown=True,
            )
        case AtCoordinator.OPEN, _:
            yield Objection("The transaction is open still, as its coordinator says. Repeat later.")
        case AtCoordinator.COMMITTING, Verdict.ABORTED:
            yield Objection("Its coordinator is about to commit it.")
        case AtCoordinator.ABORTING, Verdict.COMMITTED:
            yield Objection("Its coordinator is about to abort it.")
