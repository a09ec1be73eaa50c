"""The audit of outputs that are no topics: does each of them have what the log says last?

Their content is not read: a table may have been compacted, and rows deleted, since. What is asked
is what became of the newest attempt that the log calls committed, and whether there is a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from eos.committer.participants import reached
from eos.errors import EosError
from eos.participant import Access, Participant
from eos.protocol import History, Known, LogRecord, Part, State
from eos.pulsar.part import parts_elsewhere
from recovery.audit.partition import Finding

_TRIES = 3
"""A driver that is alive goes on while we look: then the log is read again."""


@dataclass(frozen=True)
class Looked:
    """What was found of one output; at most one of the two."""

    finding: Finding | None = None
    unknown: str | None = None


def audit_outputs(
    read: Callable[[], tuple[History, list[LogRecord]]], access: Access, *, timeout_s: float
) -> Iterator[Looked]:
    """What is wrong with the outputs of the newest claim, or can't be told; one for each of these.

    Args:
        read: reads the log anew.

    Raises:
        EosError: the log can't be read.
    """
    history, _ = read()
    claim = history.last_claim
    for part in () if claim is None else parts_elsewhere(claim):
        looked = Looked()
        for _ in range(_TRIES):
            looked = _look(history.sink_id, part, *read(), access, timeout_s)
            if looked == Looked():
                break
        if looked != Looked():
            yield looked


def _look(
    sink_id: str,
    claimed: Part,
    history: History,
    records: list[LogRecord],
    access: Access,
    timeout_s: float,
) -> Looked:
    try:
        with reached(sink_id, claimed, access) as participant:
            return _ask(participant, sink_id, claimed, history, records, timeout_s)
    except EosError as error:
        return Looked(unknown=f"{claimed.output}: {error}")


def _ask(
    participant: Participant,
    sink_id: str,
    claimed: Part,
    history: History,
    records: list[LogRecord],
    timeout_s: float,
) -> Looked:
    missing = participant.missing(claimed, history)
    if missing is not None:
        return Looked(unknown=f"{missing}: nobody can tell what it holds")
    participant.attach(claimed, history)
    newer = participant.newer_commit(history, timeout_s=timeout_s)
    if newer is not None:
        what = f"{newer}, and the log ends before it: it was replaced by an older copy"
        return Looked(_finding(sink_id, claimed, None, f"{what}; restore the newest one"))
    last = _last_committed(records, claimed)
    part = None if last is None else last.part(claimed.key)
    if last is None or part is None:
        return Looked()
    fate = participant.outcome(part, timeout_s=timeout_s)
    if fate.known is Known.ABORTED:
        what = f"the log says COMMITTED, and {part.label} is not there"
        return Looked(_finding(sink_id, claimed, last, what))
    if fate.known is Known.UNKNOWN:
        return Looked(unknown=f"{part.label}: {fate.why}")
    return Looked()


def _last_committed(records: list[LogRecord], claimed: Part) -> LogRecord | None:
    """The newest attempt of that output that is committed, in the order of attempts."""
    found = [
        (part.begun_at, record)
        for record in records
        if record.state is State.COMMITTED
        and (part := record.part(claimed.key)) is not None
        and part.begun_at is not None
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _finding(sink_id: str, part: Part, record: LogRecord | None, what: str) -> Finding:
    return Finding(
        sink_id=sink_id,
        query_id=record.query_id if record else None,
        epoch=record.epoch if record else None,
        topic=part.output,
        what=what,
    )
