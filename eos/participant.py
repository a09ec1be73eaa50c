"""A participant: the transactional side of one output. Spark-free; `docs/writing-a-sink.md`.

The committer decides with the commit log; participants carry the decision out. Each method that
does I/O is one bounded attempt, and reports "unknown" rather than a guess. Recovery finds a
participant by its kind, the name in the log: an entry point of the group ``eos.participants``.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, cast

from eos.errors import NewCluster
from eos.protocol import (
    COMMITTED,
    Fate,
    History,
    Known,
    LogRecord,
    Part,
    Payload,
    Stage,
    overtaken,
    require,
    stage_of,
)
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth

GROUP: Final = "eos.participants"
"""The group of entry points: an entry point's name is the kind, its object is a ``Kind``."""


@dataclass(frozen=True)
class Attempt:
    """The attempt that is about to begin."""

    query_id: str
    epoch: str
    number: int
    previous: Part | None
    """The participant's part of the epoch's previous attempt, if there was one."""
    has_expired: bool
    """Whether that attempt exceeded its time to live."""


@dataclass(frozen=True)
class Upsert:
    """How staged rows change an output by key; without it they are appended.

    Attributes:
        on: the key's columns. Each key is staged once.
        deletes: a staged column says of each row whether it deletes its key.
    """

    on: tuple[str, ...]
    deletes: bool = False

    def payload(self) -> Payload:
        """As JSON."""
        return {"on": list(self.on), "deletes": self.deletes}

    @classmethod
    def parse(cls, payload: Payload | None) -> Self | None:
        """The inverse of ``payload``; None for None.

        Raises:
            ValueError: there is no key.
        """
        if payload is None:
            return None
        if not payload["on"]:
            raise ValueError("an upsert has no key")
        return cls(tuple(map(str, payload["on"])), bool(payload["deletes"]))


class Kept(IntEnum):
    """How much of a commit an output still contains, from best to worst."""

    WHOLE = 0
    CHANGED = 1  # by a regular operation of the output
    UNKNOWN = 2
    LOST = 3


@dataclass(frozen=True)
class Audited:
    """The state of one committed attempt in an output."""

    kept: Kept
    what: str = ""
    """Text that follows "its", for example "rows were deleted by DELETE (version 7)"."""


class Participant(ABC):
    """Begin, prepare, commit, abort and outcome of an output; methods with a body are optional."""

    can_expire: ClassVar[bool] = False
    """Whether a prepared attempt may abort on its own after a time to live.

    At most one output of a sink may expire. It is committed first and decides for the others.
    """
    place: ClassVar[str] = "output"
    """What holds the rows, with the sink's options that name it: ``path (table)``."""

    # --- the claim -----------------------------------------------------------------------------

    @abstractmethod
    def claimed(self, history: History, log_table_id: str) -> Part:
        """Return the participant's part of CLAIMED: the recorded one or a new one. No I/O."""

    def check(self, claim: Part) -> None:
        """Before a claim: check that it can write. If not, it must not fence a driver that can."""

    def target_id(self) -> str | None:
        """Return the target's id, the same by each of its names; None if it has none."""
        return None

    def traces(self) -> list[str]:
        """Describe what another log of this sink has written: called if there is no log."""
        return []

    def missing(self, claim: Part, history: History) -> str | None:
        """Describe recorded things that the output lacks: it is another one, or lost data."""
        return None

    def lost_commit(self, claim: Part, history: History) -> str | None:
        """Describe a commit that the log holds and the output, as an older copy, lacks; or None."""
        return None

    def make(self, claim: Part, *, in_recovery: bool) -> None:
        """Before a claim: create what the output needs and does not have.

        ``in_recovery``: nothing that a later proof could be mistaken by: what seems to be missing
        may be on a disk that is not mounted.
        """

    def attach(self, claim: Part, history: History) -> None:
        """After a claim: use the resources that it names."""

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """Describe a commit of this sink that is newer than the log; None if none is known."""
        return None

    def ready(self, history: History) -> None:
        """Create what later proofs need; called only if no attempt is unfinished."""

    # --- an epoch ------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, attempt: Attempt) -> Part:
        """Open a transaction or choose its identifier; nothing is written yet."""

    @abstractmethod
    def count(self, part: Part, written: Sequence[Any]) -> Part:
        """Return ``part`` with the totals of ``written``, the results of the writing tasks.

        Raises:
            TransactionPoisoned, EosError: the attempt must not be committed.
        """

    @abstractmethod
    def prepare(self, record: LogRecord, part: Part) -> Part:
        """Make sure that ``commit`` can't fail for a foreseeable reason, and write its witness.

        ``record`` has the totals. An error aborts the attempt.
        """

    @abstractmethod
    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Commit the part of PREPARED, or find that it is committed.

        Idempotent; other processes may call it concurrently. ``is_own``: this one has just
        prepared it.
        """

    @abstractmethod
    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Abort the part of ABORTING, or find that it is gone. Idempotent."""

    @abstractmethod
    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """Return the outcome that can be proved, without ending anything."""

    def audit(self, committed: Sequence[Part]) -> Sequence[Audited | None] | None:
        """Check whether the output still contains its committed attempts; changes nothing.

        ``committed``: the parts of committed attempts of this kind, in the log's order.

        Returns:
            The state of each part, or None for a part of another output of this kind. None instead
            of a list: the output can't check more than the ``outcome`` of the newest part.
        """
        return None

    def readable(self, aborted: Sequence[Part]) -> Sequence[Part]:
        """Return the parts of aborted attempts of which rows are readable nevertheless."""
        return ()

    # --- housekeeping: nothing here may raise --------------------------------------------------

    def diagnose(self, part: Part) -> str:
        """Describe the state of the output for a person, if a commit stays in doubt."""
        return ""

    def suspect(self, record: LogRecord, part: Part) -> None:
        """Check on an attempt that an earlier run aborted recently."""

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Clean up after COMMITTED, ABORTED or EMPTY; safety must not depend on it.

        ``is_last``: no other attempt of the sink is unfinished.
        """

    def rest(self) -> None:
        """Finish pending cleanup: no attempt is unfinished, and a long pause may follow."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, kw_only=True)
class VersionedPart(Part):
    """One attempt to write to a table, by its version: 1, 2, 3 with each attempt of a series."""

    version: int | None = None
    attempt_id: str | None = None
    """A uuid, which names what is staged."""

    @property
    @abstractmethod
    def series(self) -> str:
        """The log, and what else its attempts are counted for."""

    @property
    def identity(self) -> str:
        """The table."""
        return self.output

    @property
    def label(self) -> str:
        """``version 7 of table /data/orders``."""
        return f"version {self.version} of table {self.output}"

    @property
    def begun_at(self) -> tuple[int, ...] | None:
        """The version."""
        return None if self.version is None else (self.version,)

    @property
    def checksum(self) -> int | None:
        """0: files and connections have their own checksums."""
        return None if self.records is None else 0

    def check_attempt(self, stage: Stage, *names: str | None) -> None:
        """Check version and id, and that all ``names`` of an attempt are there; else ValueError."""
        for value in (self.version, self.attempt_id, *names):
            require((value is None) is (stage is Stage.CLAIMED), "an attempt is named whole")
        if self.attempt_id is not None and str(uuid.UUID(self.attempt_id)) != self.attempt_id:
            raise ValueError("attempt_id is not a uuid in canonical form")
        require(self.version is None or self.version >= 1, f"version {self.version}")


V = TypeVar("V", bound=VersionedPart)


class VersionedParticipant(Participant, Generic[V]):
    """A participant whose output keeps the newest committed version of each series: the witness."""

    _older: ClassVar[str] = "an older copy of the table was restored"
    _claim: V
    _version = _may_be_there = _last_committed = 0

    @abstractmethod
    def _newest(self, part: V) -> int | None:
        """Return the newest version of the part's series in the output; None without one."""

    @abstractmethod
    def _is_target(self, part: V, target_id: str | None) -> bool:
        """Whether an attempt's target is this one, or a copy of it, at any place."""

    @abstractmethod
    def _commit_once(self, part: V) -> Fate:
        """As ``commit``, in one attempt."""

    def _is_lost(self, version: int, newest: int | None) -> bool:
        """Whether the output, with this newest version, has lost a committed one."""
        return (newest or 0) < version

    def _by_version(self, part: V, newest: int | None) -> Fate | None:
        """Return the outcome by the newest version in the output; None: it does not show it."""
        version = part.version or 0
        if newest is None or newest <= version:
            return COMMITTED if newest == version else None
        return overtaken(f"{part.output} has version {newest} of this log, after {version}")

    def lost_commit(self, claim: Part, history: History) -> str | None:
        """Report the newest version that the log holds as committed, if the output lacks it."""
        # By the target's id: a copy may be at another place, or have another name.
        mine, known = self.target_id(), history.parts(claim.kind)
        for part in (cast("V", one) for last in known for one in history.committed(last.key)):
            version = part.version or 0
            if self._is_target(part, mine) and self._is_lost(version, self._newest(part)):
                return f"version {version} of table {claim.output} is missing: {self._older}"
        return None

    def attach(self, claim: Part, history: History) -> None:
        """Continue the version numbers of the log."""
        self._claim = mine = cast("V", claim)
        found = (history.last_begun(part.key) for part in history.parts(claim.kind))
        # One count for a table by all its names.
        versions = [
            (part.version or 0, stage_of(record) is Stage.PREPARED)
            for record in filter(None, found)
            for part in record.participants
            if isinstance(part, type(mine)) and part.series == mine.series
        ]
        self._version, was_prepared = max(versions, default=(0, True))
        # What was never PREPARED can't be committed (I1).
        self._may_be_there = self._version if was_prepared else self._version - 1

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """Report a committed version of this log that the log lacks, or has not prepared."""
        newest = self._newest(self._claim)
        if newest is None or newest <= self._may_be_there:
            return None
        return f"version {newest} of this log is in table {self._claim.output}"

    def _begun(self, newest: int | None, **names: str) -> V:
        """Return the part of the next version, with the fields ``names``.

        Raises:
            NewCluster: the output, with the version ``newest``, lacks a commit of this process.
        """
        if self._last_committed and self._is_lost(self._last_committed, newest):
            raise NewCluster(
                f"Version {self._last_committed} of table {self._claim.output} is no longer there: "
                f"{self._older}.",
                hint="Restore the newest copy. To continue without the missing rows: start again "
                'with on_new_cluster="continue" once.',
            )
        self._version += 1
        named: dict[str, Any] = {"attempt_id": str(uuid.uuid4()), **names}
        return replace(self._claim, version=self._version, **named)

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Commit the version, or find that it was; repeated until the outcome is known."""
        from eos.retry import ask_until  # executors import this module, and have no tenacity

        mine = cast("V", part)
        fate = ask_until(
            lambda: self._commit_once(mine), lambda one: one.known is not Known.UNKNOWN, deadline_s
        )
        if fate.known is Known.COMMITTED:
            self._last_committed = max(self._last_committed, mine.version or 0)
        return fate


@dataclass(frozen=True)
class Access:
    """How recovery reaches the outputs of a log."""

    service_url: str | None = None
    auth: Auth = field(default_factory=Auth, repr=False)
    rules: ClusterRules = field(default_factory=ClusterRules)
    admin_url: str | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 30.0


class Kind(Protocol):
    """The object of an entry point: how to parse parts and open a participant."""

    part: type[Part]
    """Parses the participant's parts in the log."""

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """Open the participant that ``part`` belongs to, without Spark.

        Raises:
            ConfigurationError: ``access`` is incomplete; the message names the missing value.
        """


@cache
def kind_of(name: str) -> Kind | None:
    """Return the kind of that name; None if no installed package registers it."""
    # By name: it imports this module, and kinds of other packages are found by name, too.
    built_in: Mapping[str, Kind] = import_module("eos._kinds").BUILT_IN
    if name in built_in:
        return built_in[name]
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    return None if found is None else cast("Kind", found.load())
