"""One row of the commit log: the key of its epoch, the reason of an abort, and all its fields.

Its checks are in ``_record_checks``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from eos.protocol._part import Part, UnknownPart
from eos.protocol._states import State

RECORD_VERSION: Final = 2
"""The version that this release writes, and the newest that it reads. Version 1 knew only one
participant, Pulsar, and had no list of them."""

UNWRITTEN: Final = 0
"""``seq`` of a record that is not appended yet; the log counts from 1."""

# Spark counts a streaming query's epochs 0, 1, 2, ...: they compare as numbers. A batch job has its
# own keys, which only compare as equal or not.
BATCH: Final = "batch"
"""The query id of every batch write."""

UNNAMED: Final = "__eos-job-"
"""The beginning of the keys of batch jobs that have none: nobody can ask for one again."""

MAX_KEY_CHARS: Final = 1024
MAX_DETAIL_CHARS: Final = 500
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,17}")
# Unicode's categories Cc and Cs, which no later version of it changes.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_streaming(query_id: str) -> bool:
    """Whether ``query_id`` names a streaming query."""
    return query_id != BATCH


def has_control_characters(text: str) -> bool:
    """Whether ``text`` holds control characters or surrogates, which can't be stored."""
    return _CONTROL.search(text) is not None


def check_key(text: str, *, what: str = "epoch") -> str:
    """Return ``text`` if it is a valid key: 1 to 1024 characters without control characters.

    Raises:
        ValueError: it is not; the message names ``what``.
    """
    if not text:
        raise ValueError(f"{what} is empty")
    if len(text) > MAX_KEY_CHARS:
        raise ValueError(f"{what} has {len(text)} characters, at most {MAX_KEY_CHARS} are allowed")
    if has_control_characters(text):
        raise ValueError(f"{what} {text!r} has control characters")
    return text


def epoch_number(query_id: str, epoch: str) -> int:
    """Return the number of a streaming query's epoch.

    Raises:
        ValueError: ``query_id`` is ``batch``, or ``epoch`` is not a canonical decimal number
            (``7``; not ``07``, ``+7`` or ``7.0``: two spellings would be two epochs).
    """
    if not is_streaming(query_id):
        raise ValueError("epochs of batch writes are not numbers")
    if not _NUMBER.fullmatch(epoch):
        raise ValueError(f"epoch {epoch[:80]!r} of a streaming query is not a plain number")
    return int(epoch)


class ReasonKind(StrEnum):
    """The kinds of reasons. The value begins the text of the ``reason`` column."""

    EXPIRED = "EXPIRED"
    """The transaction outlived its time to live and the broker aborted it."""
    POISONED = "POISONED"
    """A send is in doubt, or a task or the stage ran more than once."""
    INPUT = "INPUT"
    """The rows can't be written as they are."""
    RECOVERY = "RECOVERY"
    """A later run found the transaction open and ended it."""
    EMPTY = "EMPTY"
    """There were no records to write."""
    BROKER = "BROKER"
    """The broker refused or failed."""
    FAILED = "FAILED"
    """Anything else, such as an error in the user's query."""
    DECIDED = "DECIDED"
    """A person decided because nothing could be proved; the detail says who, and why."""


@dataclass(frozen=True)
class Reason:
    """A kind and one line of detail: ``<kind>: <detail>`` in the log."""

    kind: ReasonKind
    detail: str

    def __post_init__(self) -> None:
        # Often the text of another library's error: it must not make an abort fail.
        printable = "".join(char if char.isprintable() else " " for char in self.detail)
        clean = " ".join(printable.split())
        if len(clean) > MAX_DETAIL_CHARS:
            clean = clean[: MAX_DETAIL_CHARS - 3] + "..."
        object.__setattr__(self, "detail", clean)

    def ending_in(self, more: str, *, answers: str = "") -> Reason:
        """This reason followed by ``more``, which is never cut off (the text before it may be), and
        by as much of ``answers`` as there is room for."""
        room = max(0, MAX_DETAIL_CHARS - len(more))
        fits = len(self.detail) <= room
        text = (self.detail if fits else self.detail[:room][:-3] + "...") + more
        left = MAX_DETAIL_CHARS - len(text)
        if len(answers) > left:
            answers = f"{answers[: left - 3]}..." if left > 3 else ""
        return Reason(self.kind, text + answers)

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.detail}"

    @classmethod
    def parse(cls, text: str) -> Reason:
        """The inverse of ``str``.

        Raises:
            ValueError: ``text`` does not begin with a known kind and a colon.
        """
        kind, colon, detail = text.partition(":")
        if not colon:
            raise ValueError(f"not a reason: {text[:80]!r}")
        return cls(ReasonKind(kind), detail.removeprefix(" "))


@dataclass(frozen=True, kw_only=True)
class LogRecord:
    """A record: common fields, and each participant's part.

    It carries everything known about its attempt: the epoch's newest one is enough to end it.

    Attributes:
        record_version: layout of the record.
        query_id: Spark's streaming query id, or ``batch``; None for CLAIMED, like all the
            columns of an epoch below. FAILED has only query_id, epoch and reason.
        epoch: Spark's batch id as text, or a batch job's own key.
        attempt: number of the attempt to write this epoch, from 1.
        seq: position in the log: 1, 2, 3 without a gap, the only order; 0 before the append.
        state: the state after this record.
        run_id: the run that wrote the record; each CLAIMED has a new one.
        opened_at: when the attempt was opened (UTC).
        planned_at: when Spark planned the epoch (UTC), from the query's checkpoint; None for a
            batch job, and if it is unknown.
        participants: one part for each, in the order in which they are committed: the one that can
            expire comes first, and decides for the others.
        records, bytes, checksum: sums over ``participants``, the last one modulo 2^64; None before
            they are known, 0 for EMPTY.
        reason: why the attempt was aborted, from ABORTING on; why there was no attempt; or who
            decided, and why.
        written_at: the writer's clock (UTC) at the append; None before. For people: only ``seq``
            defines the order.
    """

    record_version: int = RECORD_VERSION
    sink_id: str
    query_id: str | None = None
    epoch: str | None = None
    attempt: int | None = None
    seq: int = UNWRITTEN
    state: State
    run_id: str
    opened_at: datetime | None = None
    planned_at: datetime | None = None
    participants: tuple[Part, ...]
    records: int | None = None
    bytes: int | None = None
    checksum: int | None = None
    reason: Reason | None = None
    written_at: datetime | None = None

    @classmethod
    def claimed(cls, *, sink_id: str, run_id: str, participants: Sequence[Part]) -> LogRecord:
        """Create the record that begins a run. ``run_id`` must be new in this log."""
        return cls(
            sink_id=sink_id, state=State.CLAIMED, run_id=run_id, participants=tuple(participants)
        )

    @classmethod
    def opened(
        cls,
        claim: LogRecord,
        *,
        query_id: str,
        epoch: str,
        attempt: int,
        opened_at: datetime,
        planned_at: datetime | None = None,
        participants: Sequence[Part],
    ) -> LogRecord:
        """Create the OPEN record of a new attempt, in the run that ``claim`` began."""
        return cls(
            sink_id=claim.sink_id,
            query_id=query_id,
            epoch=epoch,
            attempt=attempt,
            state=State.OPEN,
            run_id=claim.run_id,
            opened_at=opened_at,
            planned_at=planned_at,
            participants=tuple(participants),
        )

    @classmethod
    def failed(cls, claim: LogRecord, *, query_id: str, epoch: str, reason: Reason) -> LogRecord:
        """Create the FAILED record of an epoch without an attempt, in the run of ``claim``."""
        return cls(
            sink_id=claim.sink_id,
            query_id=query_id,
            epoch=epoch,
            state=State.FAILED,
            run_id=claim.run_id,
            participants=claim.participants,
            reason=reason,
        )

    def advance(
        self,
        state: State,
        *,
        claim: LogRecord,
        reason: Reason | None = None,
        participants: Sequence[Part] | None = None,
    ) -> LogRecord:
        """Create the next record of the same attempt, not yet appended; all known fields are kept.

        Args:
            state: PREPARED takes the prepared ``participants`` (totals are computed), ABORTING and
                ABANDONED a ``reason``, and so does ABORTED after PREPARED.
            claim: the newest CLAIMED: its run writes the record.
        """
        parts = self.participants if participants is None else participants
        record = replace(
            self,
            record_version=RECORD_VERSION,
            state=state,
            seq=UNWRITTEN,
            written_at=None,
            run_id=claim.run_id,
            reason=reason or self.reason,
            participants=tuple(_written_by(part, claim) for part in parts),
        )
        if state is State.EMPTY:
            return replace(record, records=0, bytes=0, checksum=0)
        return record.with_totals() if state is State.PREPARED else record

    def with_totals(self) -> LogRecord:
        """Return the record with the sums over its participants."""
        return replace(
            self,
            records=sum(part.records or 0 for part in self.participants),
            bytes=sum(part.bytes or 0 for part in self.participants),
            checksum=sum(part.checksum or 0 for part in self.participants) % 2**64,
        )

    @property
    def key(self) -> tuple[str, str] | None:
        """(query id, epoch), or None for CLAIMED."""
        if self.query_id is None or self.epoch is None:
            return None
        return self.query_id, self.epoch

    @property
    def label(self) -> str:
        """The attempt, for use in a sentence."""
        return " and ".join(part.label for part in self.participants)

    @property
    def txn_id(self) -> str | None:
        """The ids of the attempt's transactions."""
        return " and ".join(filter(None, (part.txn_id for part in self.participants))) or None

    @property
    def expires_at(self) -> datetime | None:
        """When the attempt has expired, by the clock of ``opened_at``; None if it can't expire."""
        ttl_ms = next((part.ttl_ms for part in self.participants if part.ttl_ms is not None), None)
        if self.opened_at is None or ttl_ms is None:
            return None
        return self.opened_at + timedelta(milliseconds=ttl_ms)

    @property
    def context(self) -> dict[str, str | None]:
        """The names of the attempt, for the context of errors."""
        return {
            "sink_id": self.sink_id,
            "query_id": self.query_id,
            "epoch": self.epoch,
            "txn_id": self.txn_id,
        }

    @property
    def unknown(self) -> UnknownPart | None:
        """The first part whose participant is not installed here."""
        return next((part for part in self.participants if isinstance(part, UnknownPart)), None)

    def part(self, key: tuple[str, str]) -> Part | None:
        """Return the part of one participant; None if the record has no such part."""
        return next((part for part in self.participants if part.key == key), None)

    def equals_except_time(self, other: LogRecord) -> bool:
        """Whether both records are equal except for ``written_at``."""
        return replace(self, written_at=None) == replace(other, written_at=None)


def _written_by(part: Part, claim: LogRecord) -> Part:
    claimed = claim.part(part.key)
    return part if claimed is None else part.written_by(claimed)
