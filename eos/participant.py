"""A participant: the transactional side of one output. Spark-free; `docs/writing-a-sink.md`.

The committer decides with the commit log, and participants do what was decided. Every method that
talks to the outside is one bounded attempt, and says "unknown" rather than guess. The other side of
a sink, from a DataFrame to what ``count`` takes, lives with the sink.

Kinds are how recovery finds a participant by the name that the log has for it, also one of somebody
else's: a package announces it as an entry point of the group ``eos.participants``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final, Protocol, cast

from eos.protocol import Fate, History, LogRecord, Part
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules

GROUP: Final = "eos.participants"
"""The group of entry points; the name of one is the kind, what it refers to is a ``Kind``."""

# Ours are found without metadata of an installed package: on a plain folder on the path, too.
_BUILT_IN: Final = {"pulsar": "eos.pulsar._pulsar_kind", "delta": "eos.delta._kind"}


@dataclass(frozen=True)
class Attempt:
    """The attempt that is about to begin. ``previous``: the same participant's part of the epoch's
    last attempt, if there was one; ``has_expired``: that one outlived its time."""

    query_id: str
    epoch: str
    number: int
    previous: Part | None
    has_expired: bool


class Kept(IntEnum):
    """How much an output still has of what was committed to it, from best to worst.

    ``CHANGED``: somebody has changed or deleted rows since, by an operation that is meant for it.
    """

    WHOLE = 0
    CHANGED = 1
    UNKNOWN = 2
    LOST = 3


@dataclass(frozen=True)
class Audited:
    """What an output still has of one committed attempt; ``what``: more of it, in words that go on
    after "its", for example "rows were deleted by DELETE (version 7)"."""

    kept: Kept
    what: str = ""


class Participant(ABC):
    """Begin, prepare, commit, abort and outcome of one output's attempts. What has a body here may
    stay as it is, where an output has no need of it."""

    can_expire: ClassVar[bool] = False
    """Whether what it has prepared may be aborted by nobody, when its time is over. Of the outputs
    of a sink one may at most; it is committed first, and decides for the others."""

    # --- the claim -----------------------------------------------------------------------------

    @abstractmethod
    def claimed(self, history: History, log_table_id: str) -> Part:
        """The participant's part of CLAIMED: what the log has recorded, or new. Asks nobody."""

    def check(self, claim: Part) -> None:
        """Before a claim: could it write here at all? Whoever can't must not fence who can."""

    def missing(self, claim: Part, history: History) -> str | None:
        """What the log has recorded, and is not there, in words: this is another cluster or table,
        or one that has lost its data. None: nothing."""
        return None

    def lost_commit(self, claim: Part, history: History) -> str | None:
        """A commit that the log holds and the output does not have any more, in words: an older
        copy of it was put back. None: nothing is lost, or nobody can tell."""
        return None

    def make(self, claim: Part) -> None:
        """Before a claim: make what it needs, where it is not there."""

    def attach(self, claim: Part, history: History) -> None:
        """The claim is taken: use what it names."""

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """A commit of this sink that the log ends before, in words; None when there is none, or
        when nobody can tell any more."""
        return None

    def ready(self, history: History) -> None:
        """Make what proving needs; called only when nothing is unfinished."""

    # --- an epoch ------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, attempt: Attempt) -> Part:
        """Open a transaction, or name one; nothing is written yet."""

    @abstractmethod
    def count(self, part: Part, written: Sequence[Any]) -> Part:
        """``part`` with the rows that ``written`` tells of, what the writing has brought back.

        Raises:
            TransactionPoisoned: it must not be committed.
            EosError: likewise.
        """

    @abstractmethod
    def prepare(self, record: LogRecord, part: Part) -> Part:
        """Make sure that ``commit`` can't fail for a reason that is known by now, and leave what
        will prove it; ``record`` has the totals. An error aborts the attempt."""

    @abstractmethod
    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Commit what PREPARED says, or find that it was. May be repeated, by others at once.

        Args:
            is_own: this process has prepared it a moment ago.
        """

    @abstractmethod
    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Undo what ABORTING gives up, or find that it is gone. May be repeated."""

    @abstractmethod
    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """What can be proved of it, without ending anything."""

    def audit(self, committed: Sequence[Part]) -> Sequence[Audited | None] | None:
        """Whether the output still has what was committed to it; changes nothing.

        Args:
            committed: the parts of committed attempts, of this kind, in the log's order.

        Returns:
            Of each part what is left of it, None of one that went to another output of this kind.
            Or None: the output can't be asked, beyond what ``outcome`` says of the newest one.
        """
        return None

    def readable(self, aborted: Sequence[Part]) -> Sequence[Part]:
        """Those parts of aborted attempts of which rows can be read all the same."""
        return ()

    # --- housekeeping: nothing here may raise --------------------------------------------------

    def diagnose(self, part: Part) -> str:
        """For a person, when a commit stays in doubt: what can be seen from outside."""
        return ""

    def suspect(self, record: LogRecord, part: Part) -> None:
        """The attempt was aborted not long ago, by a run before this one: look after it."""

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Behind a COMMITTED, ABORTED or EMPTY: what safety does not need. ``is_last``: no other
        attempt of the sink is unfinished."""

    def rest(self) -> None:
        """Nothing is unfinished, and nothing may come for long: leave no debts."""

    def close(self) -> None:
        """Free connections."""


@dataclass(frozen=True)
class Access:
    """How to reach the outputs of a log: what a person or a CI job gives to recovery."""

    service_url: str | None = None
    auth: Auth = field(default_factory=Auth, repr=False)
    rules: ClusterRules = field(default_factory=ClusterRules)
    admin_url: str | None = None
    storage_options: Mapping[str, str] | None = field(default=None, repr=False)
    timeout_s: float = 30.0


class Kind(Protocol):
    """What an entry point refers to."""

    part: type[Part]
    """Reads the participant's parts in the log."""

    def open(self, sink_id: str, part: Part, access: Access) -> Participant:
        """The participant that ``part`` belongs to, without Spark.

        Raises:
            ConfigurationError: ``access`` lacks something; says what.
        """


@cache
def kind_of(name: str) -> Kind | None:
    """The kind of that name; None when no installed package has it."""
    if name in _BUILT_IN:
        return cast("Kind", import_module(_BUILT_IN[name]).KIND)
    found = next(iter(entry_points(group=GROUP, name=name)), None)
    return None if found is None else cast("Kind", found.load())
