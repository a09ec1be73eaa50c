"""Compares outputs that are not topics with the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from eos.cli.reports import Facts
from eos.committer.participants import opened
from eos.errors import EosError
from eos.participant import Access, Audited, Kept
from eos.protocol import History, Known, LogRecord, Part, State
from eos.pulsar.part import other_parts
from eos.recovery._sink_view import is_decided
from eos.recovery.audit.partition import NEVER_READABLE, Finding

# A running driver may commit during the audit; the log is then read again.
_TRIES = 3

Committed = tuple[LogRecord, Part]


class AuditedOutput(Facts):
    """The result for one output that is not a topic."""

    output: str  # its kind and location
    epochs: int  # committed ones that were written to it; a sink may have got an output later
    rows: int = 0  # unchanged ones; 0 if only the newest epoch can be asked for
    is_earlier: bool = False  # the sink no longer writes to it


@dataclass
class OutputsAudit:
    """The result for several outputs."""

    findings: list[Finding] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)  # legitimate: made later, by others
    newest_only: list[str] = field(default_factory=list)  # can't be asked about older epochs
    counts: list[AuditedOutput] = field(default_factory=list)  # the current ones, then earlier ones
    is_changed: bool = False  # some of the changes affect rows, not only files

    def __iadd__(self, other: OutputsAudit) -> OutputsAudit:
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
) -> OutputsAudit:
    """Audit the outputs of the newest claim, and earlier ones.

    Args:
        read: reads the log again.
        last: number of newest epochs to check; all if None.

    Raises:
        EosError: the log can't be read.
    """
    history, _ = read()
    claim = history.last_claim
    found = OutputsAudit()
    for part in () if claim is None else other_parts(claim):
        result = OutputsAudit()
        for _ in range(_TRIES):
            result = _check_newest(part, *read(), access, timeout_s)
            if not result.findings and not result.unknown:
                break
        found += result
    found += _EpochsAudit(*read(), access, last).run()
    return found


def _check_newest(
    claimed: Part, history: History, records: list[LogRecord], access: Access, timeout_s: float
) -> OutputsAudit:
    sink_id = history.sink_id
    last = _last_committed(records, claimed)
    part = None if last is None else last.part(claimed.key)
    try:
        with opened(sink_id, claimed, access) as participant:
            # A table that is missing or another one has no answer about this log's epochs.
            missing = participant.missing(claimed, history)
            if missing is not None:
                return OutputsAudit(unknown=[f"{missing}: its content is unknown"])
            participant.attach(claimed, history)
            newer = participant.newer_commit(history, timeout_s=timeout_s)
            fate = None if part is None else participant.outcome(part, timeout_s=timeout_s)
    except EosError as error:
        return OutputsAudit(unknown=[f"{claimed.output}: {error}"])
    # A commit that the log lacks: the log was replaced by an older copy.
    if newer is not None:
        what = f"{newer}, and the log ends before it: it was replaced by an older copy"
        return OutputsAudit([_finding(sink_id, claimed, None, f"{what}; restore the newest one")])
    if part is not None and fate is not None and fate.known is Known.ABORTED:
        what = f"the log says COMMITTED, but {part.label} is missing"
        return OutputsAudit([_finding(sink_id, claimed, last, what)])
    if part is not None and fate is not None and fate.known is Known.UNKNOWN:
        return OutputsAudit(unknown=[f"{part.label}: {fate.why}"])
    return OutputsAudit()


class _EpochsAudit:
    """Asks each output for all committed attempts that were written to it."""

    def __init__(
        self, history: History, records: list[LogRecord], access: Access, last: int | None
    ) -> None:
        self._sink_id = history.sink_id
        self._claim = history.last_claim
        self._access = access
        # By attempt: one that is aborted, but readable, is a duplicate if the epoch ran again.
        newest = {(record.key, record.attempt): record for record in records if record.key}
        ended = list(newest.values())
        committed = [record for record in ended if record.state is State.COMMITTED]
        self._committed = _parts(committed[-(last or 0) :])  # [-0:] is all of them
        self._aborted = _parts([record for record in ended if record.state in NEVER_READABLE])

    def run(self) -> OutputsAudit:
        found, left = OutputsAudit(), self._committed
        claimed = () if self._claim is None else other_parts(self._claim)
        for output in claimed:
            result, left = self._ask(output, left)
            found += result
        # Outputs of earlier epochs, and tables that were moved.
        for output in {part.key: part for _, part in left}.values():
            result, left = self._ask(output, left)
            result.counts = [
                one.model_copy(update={"is_earlier": True}) for one in result.counts if one.epochs
            ]
            found += result
        for output in {part.key: part for _, part in left}.values():
            gone = [record for record, part in left if part.key == output.key]
            found.unknown.append(
                f"{output.output}: {_epochs(gone)} were written to another output than the one "
                "there now, or to one that no longer exists."
            )
        return found

    def _ask(self, output: Part, parts: list[Committed]) -> tuple[OutputsAudit, list[Committed]]:
        """Audit ``parts``; also return those that ``output`` knows nothing about."""
        mine = [pair for pair in parts if pair[1].kind == output.kind]
        others = [pair for pair in parts if pair[1].kind != output.kind]
        name = f"{output.kind} {output.output}"
        try:
            with opened(self._sink_id, output, self._access) as participant:
                audited = participant.audit([part for _, part in mine])
                # A readable attempt that the log calls aborted: duplicates, if the epoch ran again.
                aborted = [pair for pair in self._aborted if pair[1].key == output.key]
                readable = participant.readable([part for _, part in aborted])
        except EosError as error:
            left = [pair for pair in parts if pair[1].key != output.key]
            return OutputsAudit(unknown=[f"{output.output}: {error}"]), left
        if audited is None:  # it can only be asked about the newest epoch
            left = [pair for pair in parts if pair[1].key != output.key]
            named = len(parts) - len(left)
            return OutputsAudit(
                newest_only=[name], counts=[AuditedOutput(output=name, epochs=named)]
            ), left
        pairs = list(zip(mine, audited, strict=True))
        # Matched by content: a table that was moved has the epochs of its old location.
        known = [(pair, one) for pair, one in pairs if one is not None]
        result = self._results(known)
        # Only epochs that this output knows: the sink's earlier table may have the others.
        unchanged = sum(part.records or 0 for (_, part), one in known if one.kept is Kept.WHOLE)
        result.counts.append(AuditedOutput(output=name, epochs=len(known), rows=unchanged))
        result.findings += [
            _finding(self._sink_id, part, record, f"{record.label} is aborted, but readable")
            for record, part in aborted
            if part in readable
        ]
        return result, [*others, *(pair for pair, one in pairs if one is None)]

    def _results(self, audited: list[tuple[Committed, Audited]]) -> OutputsAudit:
        result = OutputsAudit()
        groups: dict[tuple[Kept, str, str], list[Committed]] = {}
        # Epochs with the same result are one finding: one RESTORE may remove many.
        for (record, part), one in audited:
            if one.what:
                groups.setdefault((one.kept, part.output, one.what), []).append((record, part))
        for (kept, output, what), pairs in groups.items():
            records = [record for record, _ in pairs]
            if kept is Kept.LOST:
                result.findings.append(self._lost(pairs, what))
            elif kept is Kept.UNKNOWN:
                result.unknown.append(f"{output}: {_epochs(records)}: {what}.")
            else:
                result.changes.append(f"{output}: {_epochs(records)}: {what}")
                result.is_changed = result.is_changed or kept is Kept.CHANGED
        return result

    def _lost(self, pairs: list[Committed], what: str) -> Finding:
        record, part = pairs[0]
        more = f"; the same for {len(pairs) - 1:,} more epochs" if pairs[1:] else ""
        by = next((one for one, _ in pairs if is_decided(one)), None)
        if by is not None:
            more += f"; {by.state.value} was decided by a person ({by.reason})"
        return _finding(self._sink_id, part, record, f"{part.label}: its {what}{more}")


def _parts(records: list[LogRecord]) -> list[Committed]:
    return [(record, part) for record in records for part in other_parts(record)]


def _epochs(records: list[LogRecord]) -> str:
    """``epoch 7``, or ``3 epochs (from 7)``."""
    first = records[0].epoch
    return f"epoch {first}" if not records[1:] else f"{len(records):,} epochs (from {first})"


def _last_committed(records: list[LogRecord], claimed: Part) -> LogRecord | None:
    """The newest committed attempt of that output, in the order of attempts."""
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
