"""The audit of outputs that are no topics: does each of them have what the log says?

The output says what it still has of each committed attempt, as far as it can be asked; otherwise
what became of the newest one. It also says whether it holds a commit that the log does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eos.cli.reports import Facts
from eos.committer.participants import opened
from eos.errors import EosError
from eos.participant import Access, Audited, Kept, Participant
from eos.protocol import History, Known, LogRecord, Part, State
from eos.pulsar.part import other_parts
from eos.recovery._sink_view import is_decided
from eos.recovery.audit._attempts import NEVER_READABLE
from eos.recovery.audit.partition import Finding

_TRIES = 3
"""A driver that is alive goes on while we look: then the log is read again."""

Committed = tuple[LogRecord, Part]


class AuditedOutput(Facts):
    """What was found of one output that is no topic."""

    output: str
    """Its kind and its place."""
    epochs: int
    """Committed epochs that went to it; others of the sink went elsewhere."""
    rows: int = 0
    """Their rows that are there as they were committed; 0 where only the newest is asked for."""
    is_earlier: bool = False
    """Whether the sink writes to it no more."""


@dataclass
class Looked:
    """What was found of the outputs."""

    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """What others have done since with rows that were committed, and may do."""
    newest_only: list[str] = field(default_factory=list)
    """Outputs that can't say more than what became of the newest epoch."""
    counts: list[AuditedOutput] = field(default_factory=list)
    """Of each output that was asked, the sink's own before its earlier ones."""
    is_changed: bool = False
    """Whether some of the changes are more than other files with the same rows."""

    def __iadd__(self, other: Looked) -> Looked:
        for name in ("findings", "unknown", "changes", "newest_only", "counts"):
            getattr(self, name).extend(getattr(other, name))
        self.is_changed = self.is_changed or other.is_changed
        return self


def audit_outputs(
    read: Callable[[], tuple[History, list[LogRecord]]],
    access: Access,
    *,
    timeout_s: float,
    last: int | None = None,
) -> Looked:
    """What is wrong with the outputs of the newest claim, or can't be told.

    Args:
        read: reads the log anew.
        last: only so many of the newest epochs; all when None.

    Raises:
        EosError: the log can't be read.
    """
    history, _ = read()
    claim = history.last_claim
    found = Looked()
    for part in () if claim is None else other_parts(claim):
        looked = Looked()
        for _ in range(_TRIES):
            looked = _look(part, *read(), access, timeout_s)
            if not looked.findings and not looked.unknown:
                break
        found += looked
    found += _Audit(*read(), access, last).run()
    return found


def _look(
    claimed: Part, history: History, records: list[LogRecord], access: Access, timeout_s: float
) -> Looked:
    """The newest attempts: what the log and the output say of them."""
    try:
        with opened(history.sink_id, claimed, access) as participant:
            return _ask(participant, claimed, history, records, timeout_s)
    except EosError as error:
        return Looked(unknown=[f"{claimed.output}: {error}"])


def _ask(
    participant: Participant,
    claimed: Part,
    history: History,
    records: list[LogRecord],
    timeout_s: float,
) -> Looked:
    sink_id = history.sink_id
    missing = participant.missing(claimed, history)
    if missing is not None:
        return Looked(unknown=[f"{missing}: nobody can tell what it holds"])
    participant.attach(claimed, history)
    newer = participant.newer_commit(history, timeout_s=timeout_s)
    if newer is not None:
        what = f"{newer}, and the log ends before it: it was replaced by an older copy"
        return Looked([_finding(sink_id, claimed, None, f"{what}; restore the newest one")])
    last = _last_committed(records, claimed)
    part = None if last is None else last.part(claimed.key)
    if last is None or part is None:
        return Looked()
    fate = participant.outcome(part, timeout_s=timeout_s)
    if fate.known is Known.ABORTED:
        what = f"the log says COMMITTED, and {part.label} is not there"
        return Looked([_finding(sink_id, claimed, last, what)])
    if fate.known is Known.UNKNOWN:
        return Looked(unknown=[f"{part.label}: {fate.why}"])
    return Looked()


class _Audit:
    """All committed attempts, each asked for in the output that it went to."""

    def __init__(
        self, history: History, records: list[LogRecord], access: Access, last: int | None
    ) -> None:
        self._sink_id = history.sink_id
        self._claim = history.last_claim
        self._access = access
        newest = {(record.key, record.attempt): record for record in records if record.key}
        ended = list(newest.values())
        committed = [record for record in ended if record.state is State.COMMITTED]
        self._committed = _parts(committed[-(last or 0) :])
        self._aborted = _parts([record for record in ended if record.state in NEVER_READABLE])

    def run(self) -> Looked:
        found, left = Looked(), self._committed
        claimed = () if self._claim is None else other_parts(self._claim)
        for output in claimed:
            looked, left = self._ask(output, left)
            found += looked
        # Outputs of earlier epochs, and tables that were moved away from where they were.
        for output in {part.key: part for _, part in left}.values():
            looked, left = self._ask(output, left)
            looked.counts = [
                one.model_copy(update={"is_earlier": True}) for one in looked.counts if one.epochs
            ]
            found += looked
        for output in {part.key: part for _, part in left}.values():
            gone = [record for record, part in left if part.key == output.key]
            found.unknown.append(
                f"{output.output}: {_epochs(gone)} went to another one than is there now, or to "
                "none that is there."
            )
        return found

    def _ask(self, output: Part, parts: list[Committed]) -> tuple[Looked, list[Committed]]:
        """What ``output`` has of ``parts``, and those that it knows nothing of."""
        mine = [pair for pair in parts if pair[1].kind == output.kind]
        others = [pair for pair in parts if pair[1].kind != output.kind]
        name = f"{output.kind} {output.output}"
        try:
            with opened(self._sink_id, output, self._access) as participant:
                audited = participant.audit([part for _, part in mine])
                aborted = [pair for pair in self._aborted if pair[1].key == output.key]
                readable = participant.readable([part for _, part in aborted])
        except EosError as error:
            left = [pair for pair in parts if pair[1].key != output.key]
            return Looked(unknown=[f"{output.output}: {error}"]), left
        if audited is None:
            left = [pair for pair in parts if pair[1].key != output.key]
            named = len(parts) - len(left)
            return Looked(
                newest_only=[name], counts=[AuditedOutput(output=name, epochs=named)]
            ), left
        pairs = list(zip(mine, audited, strict=True))
        # Found by what the output holds: a table that was moved has the epochs of its old place.
        known = [(pair, one) for pair, one in pairs if one is not None]
        looked = self._judged(known)
        there = sum(part.records or 0 for (_, part), one in known if one.kept is Kept.WHOLE)
        looked.counts.append(AuditedOutput(output=name, epochs=len(known), rows=there))
        looked.findings += [
            _finding(self._sink_id, part, record, f"{record.label}, which is aborted, can be read")
            for record, part in aborted
            if part in readable
        ]
        return looked, [*others, *(pair for pair, one in pairs if one is None)]

    def _judged(self, audited: list[tuple[Committed, Audited]]) -> Looked:
        looked = Looked()
        groups: dict[tuple[Kept, str, str], list[Committed]] = {}
        for (record, part), one in audited:
            if one.what:
                groups.setdefault((one.kept, part.output, one.what), []).append((record, part))
        for (kept, output, what), pairs in groups.items():
            records = [record for record, _ in pairs]
            if kept is Kept.LOST:
                looked.findings.append(self._lost(pairs, what))
            elif kept is Kept.UNKNOWN:
                looked.unknown.append(f"{output}: of {_epochs(records)}, {what}.")
            else:
                looked.changes.append(f"{output}: of {_epochs(records)}, {what}")
                looked.is_changed = looked.is_changed or kept is Kept.CHANGED
        return looked

    def _lost(self, pairs: list[Committed], what: str) -> Finding:
        record, part = pairs[0]
        more = f"; the same of {len(pairs) - 1:,} more epochs" if pairs[1:] else ""
        by = next((one for one, _ in pairs if is_decided(one)), None)
        if by is not None:
            more += f"; {by.state.value} was decided by a person ({by.reason})"
        return _finding(self._sink_id, part, record, f"{part.label}: its {what}{more}")


def _parts(records: list[LogRecord]) -> list[Committed]:
    return [(record, part) for record in records for part in other_parts(record)]


def _epochs(records: list[LogRecord]) -> str:
    """``epoch 7``, or ``3 epochs (7 the first)``."""
    first = records[0].epoch
    return f"epoch {first}" if not records[1:] else f"{len(records):,} epochs ({first} the first)"


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
