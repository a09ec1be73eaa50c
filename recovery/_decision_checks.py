"""Objections to a person's decision, from the log's record and the evidence. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from eos.cli.reports import duration
from eos.protocol import FINAL, OWING, Known, LogRecord, State
from eos.pulsar.end_rules import MarkAnswer, WitnessAnswer
from eos.recovery._evidence import SAME_CLOCK, AtCoordinator, Evidence, OutputEvidence


class Verdict(StrEnum):
    """The outcomes that a person may record."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    ABANDONED = "abandoned"


@dataclass(frozen=True)
class Objection:
    """A reason to refuse."""

    text: str
    is_unknown: bool = False  # only because an answer is missing


def objections(
    record: LogRecord, verdict: Verdict, evidence: Evidence, give_up: Collection[str] = ()
) -> list[Objection]:
    """Return the reasons why ``verdict`` can't be recorded for the epoch of ``record``.

    Args:
        record: the epoch's newest.
        give_up: outputs that, according to the person, will never answer again.
    """
    by_state = _by_state(record.state, verdict)
    if by_state is not None:
        return [Objection(by_state)]
    if verdict is Verdict.ABANDONED:
        return []  # its state alone proves that none of its rows is readable
    # A silent output may hold the epoch, so without it no other evidence is conclusive.
    silent = list(_by_silence(evidence, give_up))
    if silent:
        return silent
    newer = [
        one
        for one in evidence.outputs
        if one.known is Known.OVERTAKEN and one.output not in give_up
    ]
    if newer:
        text = f"{newer[0].output} has later commits: this log is an older copy."
        return [Objection(f"{text} Restore the newest one; or add {_give_up(newer[0])}")]
    is_whole = evidence.mark is MarkAnswer.ABSENT and evidence.is_whole
    is_there = evidence.witness is WitnessAnswer.READABLE or is_whole
    if len(record.participants) > 1 and verdict is Verdict.COMMITTED and is_there:
        return []  # the first output is committed; the decision is to continue without another one
    if evidence.txn is None:  # no topic: the other outputs prove it
        return list(_by_outputs(verdict, evidence))
    return [*_by_proofs(verdict, evidence), *_by_transaction(verdict, evidence)]


def _give_up(one: OutputEvidence) -> str:
    return f"--give-up {shlex.quote(one.output)}"


def _by_silence(seen: Evidence, give_up: Collection[str]) -> Iterator[Objection]:
    for one in seen.outputs:
        if not one.has_answered and one.output not in give_up:
            yield Objection(
                f"{one.output} does not answer, and may have the epoch or still accept it. Make it "
                f"reachable and retry. If it will never answer again, add {_give_up(one)}",
                is_unknown=True,
            )


def _by_outputs(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    # Without a topic the first output decides, and can't expire.
    has_it = [one for one in seen.outputs if one.known is Known.COMMITTED]
    if verdict is Verdict.ABORTED:
        for one in has_it:
            yield Objection(f"The epoch is in {one.output}: it is committed.")
        return
    first = seen.outputs[0]
    if len(has_it) == len(seen.outputs):
        yield Objection("Every output has the epoch: `resolve` proves it.")
    elif first.is_provable and first.known is not Known.COMMITTED:
        yield Objection(
            f"The epoch is not in {first.output}: `resolve` ends it. If that fails, use --as "
            "aborted: the epoch is written again."
        )


def _by_state(state: State, verdict: Verdict) -> str | None:
    # States first: the log forbids these, whatever the outputs and the cluster show.
    if state in FINAL:
        return f"The epoch is {state.value}: that is final."
    # I1: without PREPARED in the log, a commit is impossible, so nothing is left to a person.
    if state in (State.OPEN, State.ABORTING):
        return (
            f"The epoch is {state.value}: its commit was never decided, so it can't be committed. "
            "`resolve` ends it as ABORTED, even without its receipt topic, and after its time to "
            "live also without an answer to END_TXN."
        )
    if verdict is Verdict.ABANDONED:
        if state in OWING:
            return None
        if state is State.ABANDONED:
            return "The epoch is already ABANDONED."
        return (
            "The epoch is PREPARED: readers may have its rows. Use `resolve`, or decide --as "
            "committed or --as aborted. An aborted epoch can then be abandoned."
        )
    if state is State.PREPARED:
        return None
    return (
        f"The epoch is {state.value}: it is not in doubt. The next run of its query writes it; to "
        "continue without its rows, decide --as abandoned."
    )


def _by_proofs(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    is_read = seen.witness is WitnessAnswer.READABLE
    # Silence is no evidence: the missing answer may be the one that contradicts the person.
    if seen.mark is MarkAnswer.UNKNOWN or seen.witness is WitnessAnswer.UNKNOWN:
        yield Objection(
            "The receipt topic may prove the outcome, but does not answer"
            f"{seen.obstacle and f' ({seen.obstacle})'}. Fix the broker, then retry.",
            is_unknown=True,
        )
    unread = [part.topic for part in seen.partitions if part.readable is None]
    if unread:
        yield Objection(
            f"{', '.join(unread)} can't be read now, and may have the epoch's messages.",
            is_unknown=True,
        )
    # A row that readers have can't be called aborted.
    if verdict is Verdict.ABORTED and is_read:
        yield Objection("Its receipt is readable: the epoch is committed.")
    elif verdict is Verdict.ABORTED and seen.readable:
        yield Objection(
            f"{seen.readable:,} messages of its transaction are readable: the epoch is committed."
        )
    if verdict is Verdict.COMMITTED and seen.witness is WitnessAnswer.PROVED_ABSENT:
        yield Objection("Its receipt is proved absent: the epoch was never committed.")
    # With a terminated partition, the broker never answers END_TXN (measured).
    is_stuck = is_read and not seen.is_whole and verdict is Verdict.COMMITTED
    if seen.mark is MarkAnswer.FOUND and not is_stuck:
        yield Objection("Its mark is found: `resolve` ends the epoch, or proves its outcome.")
    elif seen.mark is MarkAnswer.ABSENT and seen.is_whole and verdict is Verdict.COMMITTED:
        yield Objection("All of its messages are readable: `resolve` proves the outcome by them.")


def _by_transaction(verdict: Verdict, seen: Evidence) -> Iterator[Objection]:
    left, clocks = seen.ttl_left_s or 0.0, ""
    if seen.at_coordinator in (AtCoordinator.NOT_ASKED, AtCoordinator.OTHER_TRANSACTION):
        # Only the clocks of the driver and of this machine show that it is over.
        left += SAME_CLOCK.total_seconds()
        clocks = f", and {duration(SAME_CLOCK.total_seconds())} for clocks that differ"
    if left >= 0:
        yield Objection(
            f"Its transaction may be open for another {duration(left)} (time to live{clocks}). "
            "Until then, a slow or returning driver may commit it. Retry afterwards."
        )
    match seen.at_coordinator, verdict:
        case AtCoordinator.UNKNOWN, _:
            yield Objection(
                "The coordinator does not answer. Retry; if it never answers, leave out "
                "--admin-url.",
                is_unknown=True,
            )
        case AtCoordinator.OPEN, _:
            yield Objection(
                "The coordinator reports that the transaction is still open. Retry later."
            )
        case AtCoordinator.COMMITTING, Verdict.ABORTED:
            yield Objection("The coordinator is committing the transaction.")
        case AtCoordinator.ABORTING, Verdict.COMMITTED:
            yield Objection("The coordinator is aborting the transaction.")
