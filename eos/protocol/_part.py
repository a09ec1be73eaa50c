"""A participant's part of a record: everything needed to finish its part of an epoch.

The protocol knows no participants, only this interface: whether prepared data can expire, in which
order the attempts were begun, and which fields must not change between records.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

Payload = Mapping[str, Any]
"""JSON: text, numbers, booleans, None, and lists and objects of them."""


class Stage(Enum):
    """How much a part must hold."""

    CLAIMED = "claimed"
    """Only the fields that stay the same for the whole log."""
    BEGUN = "begun"
    """The attempt's names: enough to abort it."""
    PREPARED = "prepared"
    """The figures of the written rows: enough to commit it, and to prove that it was committed."""


class Part(ABC):
    """A participant's share of a record. A value: frozen, comparable, checked by ``check``."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The participant's name in the log; recovery finds its code by it."""

    @property
    @abstractmethod
    def can_expire(self) -> bool:
        """Whether prepared data may expire, that is, be aborted without a request."""

    @property
    def ttl_ms(self) -> int | None:
        """How long after OPEN it may expire; None if it can't, or it is unknown."""
        return None

    @property
    @abstractmethod
    def output(self) -> str:
        """The target, for people and SQL: a topic, a table; "" if it is not known yet."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The attempt, for use in a sentence: ``transaction (0,17)``."""

    @property
    def txn_id(self) -> str | None:
        """The id of its transaction, if it has one."""
        return None

    @property
    @abstractmethod
    def identity(self) -> str:
        """Which one of its kind: the same for all attempts. If the part can expire, it never
        changes in a log: it names the witness, and with it the history that can be proved."""

    @property
    def key(self) -> tuple[str, str]:
        """The participant that it belongs to."""
        return self.kind, self.identity

    @property
    def anchors(self) -> frozenset[int | str]:
        """Values that recovery needs long after the end of the attempt; retention keeps the newest
        record of each."""
        return frozenset()

    @property
    @abstractmethod
    def begun_at(self) -> tuple[int, ...] | None:
        """Grows with each attempt of the sink; None before one is begun."""

    @property
    def begun_in(self) -> str | None:
        """Where ``begun_at`` counts, if that may change; None: unknown, or always the same."""
        return None

    @property
    @abstractmethod
    def records(self) -> int | None:
        """Rows in the attempt; None before they are counted. ``bytes`` likewise."""

    @property
    @abstractmethod
    def bytes(self) -> int | None:
        """Bytes of these rows."""

    @property
    @abstractmethod
    def checksum(self) -> int | None:
        """A uint64 over these rows; None before they are counted, 0 if there is no checksum."""

    @abstractmethod
    def check(self, stage: Stage) -> None:
        """Check the part on its own.

        Raises:
            ValueError: it holds too little, too much, or an impossible value.
        """

    @abstractmethod
    def check_follows(self, previous: Part) -> None:
        """Check it against ``previous``, the same participant's part in the attempt's last record.

        Raises:
            ValueError: it contradicts it.
        """

    def check_new(self, previous: Part) -> None:
        """Check the part of a new attempt against that of the attempt before.

        Raises:
            ValueError: it is the same attempt.
        """
        if self.begun_at == previous.begun_at:
            raise ValueError(f"{self.label} is that of the last attempt")

    def written_by(self, claim: Part) -> Part:  # noqa: ARG002 - for parts that record the writer
        """The part as written by the run that has ``claim``."""
        return self

    @abstractmethod
    def payload(self) -> Payload:
        """The input of ``parse``, without the values in ``columns``."""

    def columns(self) -> Mapping[str, Any]:
        """Values with their own columns, by name: only the columns of version 1, of one kind."""
        return {}

    @classmethod
    @abstractmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """The inverse of ``payload`` and ``columns``.

        Raises:
            ValueError, KeyError, TypeError: it holds an impossible value.
        """


def require(holds: bool, otherwise: str) -> None:
    """Raise ``ValueError`` if a condition does not hold: for ``Part.check`` and similar.

    Raises:
        ValueError: it does not hold; ``otherwise`` says what is wrong.
    """
    if not holds:
        raise ValueError(otherwise)


def require_carried(now: object, before: object, names: Iterable[str]) -> None:
    """Check that these fields are the same in both records: for ``Part.check_follows``.

    Raises:
        ValueError: one has changed.
    """
    for name in names:
        is_same = getattr(now, name) == getattr(before, name)
        require(is_same, f"{name} is not that of the attempt's last record")


@dataclass(frozen=True, kw_only=True)
class UnknownPart(Part):
    """The part of a participant that is not installed here: kept unchanged, and never ended."""

    # As in the log. An abstract property is overridden by a class attribute only: by the defaults.
    kind: str = ""
    identity: str = ""
    can_expire: bool = False
    output: str = ""
    records: int | None = None
    bytes: int | None = None
    text: str
    """Its payload, as in the log."""

    begun_at: ClassVar[None] = None
    checksum: ClassVar[None] = None

    @property
    def label(self) -> str:
        """Its kind and target."""
        return f"{self.kind} of {self.output}"

    def check(self, stage: Stage) -> None:
        """Accept it."""

    def check_follows(self, previous: Part) -> None:
        """Accept it."""

    def check_new(self, previous: Part) -> None:
        """Accept it."""

    def payload(self) -> Payload:
        """As in the log: compaction rewrites it unchanged."""
        return dict(json.loads(self.text))

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """Parse an entry of ``participants``, whose columns these are."""
        names = ("kind", "identity", "output", "records", "bytes")
        return cls(
            **{name: columns[name] for name in names},
            can_expire=bool(columns["can_expire"]),
            text=json.dumps(payload),
        )
