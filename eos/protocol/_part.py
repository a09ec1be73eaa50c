"""What one participant has in a record: all that it needs to finish its part of an epoch.

The protocol decides about epochs and knows no participant. What it has to know of one stands here:
whether what it prepared can go away by itself, in which order its attempts were begun, and what may
not change from one record to the next.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

Payload = Mapping[str, Any]
"""JSON: text, numbers, booleans, None, and lists and objects of them."""


class Stage(Enum):
    """How much a part has to hold."""

    CLAIMED = "claimed"
    """What stays the same for the whole log."""
    BEGUN = "begun"
    """What names the attempt: enough to abort it."""
    PREPARED = "prepared"
    """What was written: enough to commit it, and to prove that it was."""


class Part(ABC):
    """A participant's share of a record. A value: frozen, comparable, checked by ``check``."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The participant's name in the log; recovery finds its code by it."""

    @property
    @abstractmethod
    def can_expire(self) -> bool:
        """Whether what was prepared may be aborted by nobody, when its time is over."""

    @property
    @abstractmethod
    def output(self) -> str:
        """What it writes to, for people and SQL: a topic, a table; "" when it is not known yet."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The attempt, as a sentence names it: ``transaction (0,17)``."""

    @property
    def txn_id(self) -> str | None:
        """The number of its transaction, where it has one."""
        return None

    @property
    @abstractmethod
    def identity(self) -> str:
        """Which one of its kind: the same for all attempts. Of one that can expire it never changes
        in a log: it names the witness, and with it the history that can be proved."""

    @property
    def key(self) -> tuple[str, str]:
        """Which participant it belongs to."""
        return self.kind, self.identity

    @property
    def anchors(self) -> frozenset[int | str]:
        """What recovery has to know of even when the attempt is long over; retention keeps the
        newest record of each."""
        return frozenset()

    @property
    @abstractmethod
    def begun_at(self) -> tuple[int, ...] | None:
        """Grows with each attempt of the sink; None before one was begun."""

    @property
    @abstractmethod
    def records(self) -> int | None:
        """Rows that the attempt holds; None before they are counted. ``bytes`` likewise."""

    @property
    @abstractmethod
    def bytes(self) -> int | None:
        """Bytes of these rows."""

    @property
    @abstractmethod
    def checksum(self) -> int | None:
        """A uint64 over these rows; None before they are counted, 0 where none is made."""

    @abstractmethod
    def check(self, stage: Stage) -> None:
        """Check the part for itself.

        Raises:
            ValueError: it holds too little, too much, or what can't be.
        """

    @abstractmethod
    def check_follows(self, previous: Part) -> None:
        """Check it against ``previous``, the same participant's part in the attempt's last record.

        Raises:
            ValueError: it contradicts it.
        """

    def check_new(self, previous: Part) -> None:
        """Check the part of a new attempt against that of the one before.

        Raises:
            ValueError: it is the same attempt.
        """
        if self.begun_at == previous.begun_at:
            raise ValueError(f"{self.label} is that of the last attempt")

    def written_by(self, claim: Part) -> Part:  # noqa: ARG002 - for those that note the writer
        """The part as the run that has ``claim`` writes it."""
        return self

    @abstractmethod
    def payload(self) -> Payload:
        """What ``parse`` needs, but for what stands in columns."""

    def columns(self) -> Mapping[str, Any]:
        """What stands in columns of its own, by name: those of version 1, of one kind only."""
        return {}

    @classmethod
    @abstractmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """The inverse of ``payload`` and ``columns``.

        Raises:
            ValueError, KeyError, TypeError: it holds what no part can hold.
        """


def require(holds: bool, otherwise: str) -> None:
    """For ``Part.check`` and its like.

    Raises:
        ValueError: it does not hold; ``otherwise`` says what is wrong.
    """
    if not holds:
        raise ValueError(otherwise)


def require_carried(now: object, before: object, names: Iterable[str]) -> None:
    """For ``Part.check_follows``: these fields are carried on from record to record.

    Raises:
        ValueError: one has changed.
    """
    for name in names:
        is_same = getattr(now, name) == getattr(before, name)
        require(is_same, f"{name} is not that of the attempt's last record")


@dataclass(frozen=True)
class UnknownPart(Part):
    """The part of a participant that is not installed here: kept as it is, ended by nobody."""

    name: str
    which: str
    expires: bool
    target: str
    rows: int | None
    size_bytes: int | None
    text: str
    """Its payload, as the log has it."""

    @property
    def kind(self) -> str:
        """As the log has it."""
        return self.name

    @property
    def can_expire(self) -> bool:
        """As the log has it."""
        return self.expires

    @property
    def output(self) -> str:
        """As the log has it."""
        return self.target

    @property
    def label(self) -> str:
        """Its kind."""
        return f"{self.name} of {self.target}"

    @property
    def identity(self) -> str:
        """As the log has it."""
        return self.which

    @property
    def begun_at(self) -> None:
        """Nobody here can tell."""
        return

    @property
    def records(self) -> int | None:
        """As the log has it."""
        return self.rows

    @property
    def bytes(self) -> int | None:
        """As the log has it."""
        return self.size_bytes

    @property
    def checksum(self) -> int | None:
        """Nobody here can tell."""
        return None

    def check(self, stage: Stage) -> None:
        """Nothing can be said against it."""

    def check_follows(self, previous: Part) -> None:
        """Nothing can be said against it."""

    def check_new(self, previous: Part) -> None:
        """Nothing can be said against it."""

    def payload(self) -> Payload:
        """As the log has it: compaction writes it anew, and nobody goes on from it."""
        return dict(json.loads(self.text))

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """From its entry in ``participants``, whose columns these are."""
        return cls(
            name=columns["kind"],
            which=columns["identity"],
            expires=bool(columns["can_expire"]),
            target=columns["output"],
            rows=columns["records"],
            size_bytes=columns["bytes"],
            text=json.dumps(payload),
        )
