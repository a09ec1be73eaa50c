"""Identifiers of transactions, messages and topics."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from eos.errors import ConfigurationError

_TXN_ID = re.compile(r"\(?([0-9]{1,19}), ?([0-9]{1,19})\)?")
_NAME = re.compile(r"[A-Za-z0-9_.:=-]+")
_SINK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# White space, control characters and halves of surrogate pairs: the log's records refuse them.
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]")
MAX_TOPIC_CHARS: Final = 1000
"""Of a full name without ``-partition-n``; with it, the name must fit into a record of the log."""

MAX_PARTITIONS: Final = 100_000
"""More than any cluster has: a larger answer is broken, and memory is allocated according to it."""

_PARTITION_SUFFIX = re.compile(r"^(?P<base>.+)-partition-(?P<index>0|[1-9][0-9]*)$")


class TxnId(NamedTuple):
    """Pulsar's TxnID: ``most`` is the coordinator's number, ``least`` counts within it."""

    # Numbers start again on a fresh cluster, so an id alone never identifies a transaction.
    most: int
    least: int

    def __str__(self) -> str:
        return f"({self.most},{self.least})"

    @classmethod
    def parse(cls, text: str) -> TxnId:
        """The inverse of ``str``; the brackets may be missing.

        Raises:
            ValueError: ``text`` is not two integers.
        """
        match = _TXN_ID.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a transaction id, (0,17) for example: {text[:80]!r}")
        return cls(int(match[1]), int(match[2]))


EntryPlace = tuple[int, int]
"""Ledger and entry id: the position of an entry, in the order of its topic."""


class MessageId(NamedTuple):
    """The position of a message: ``ledger:entry:partition:batch_index``; -1 if not applicable."""

    ledger: int
    entry: int
    partition: int = -1
    batch_index: int = -1

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.partition}:{self.batch_index}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """The inverse of ``str``.

        Raises:
            ValueError: ``text`` is not four integers joined by colons.
        """
        parts = text.split(":")
        if len(parts) != 4:
            raise ValueError(f"not a message id: {text!r}")
        return cls(*(int(part) for part in parts))

    @property
    def place(self) -> EntryPlace:
        """The position of its entry: the same in a receipt and in a delivered message."""
        return self.ledger, self.entry

    @property
    def is_dropped(self) -> bool:
        """Whether the broker dropped the message as a duplicate: -1:-1 in a receipt."""
        return self.ledger == -1 and self.entry == -1


@dataclass(frozen=True, order=True)
class TopicName:
    """A topic's full name, ``persistent://tenant/namespace/local``."""

    tenant: str
    namespace: str
    local: str

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a full name, ``tenant/namespace/local``, or ``local`` (then public/default).

        Raises:
            ConfigurationError: the name is malformed or too long, or the topic is not persistent.
        """
        rest = text
        if "://" in text:
            domain, rest = text.split("://", 1)
            if domain != "persistent":
                raise ConfigurationError(
                    f"topic {text[:200]!r}: only persistent:// topics take transactions."
                )
        parts = rest.split("/")
        if len(parts) == 1:
            parts = ["public", "default", rest]
        if (
            len(parts) != 3
            or not all(parts)
            or not all(_NAME.fullmatch(part) for part in parts[:2])
            or _UNPRINTABLE.search(parts[2])
        ):
            raise ConfigurationError(
                f"topic {text[:200]!r}: expected persistent://tenant/namespace/topic, in the last "
                "part without spaces or control characters, in the others of letters, digits and "
                "-=:._ only."
            )
        name = cls(*parts)
        if (length := len(str(name.base))) > MAX_TOPIC_CHARS:
            raise ConfigurationError(
                f"topic {text[:80]!r}...: the name has {length} characters, at most "
                f"{MAX_TOPIC_CHARS} are allowed."
            )
        return name

    def __str__(self) -> str:
        return f"persistent://{self.tenant}/{self.namespace}/{self.local}"

    @property
    def namespace_name(self) -> str:
        """``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace}"

    @property
    def partition_index(self) -> int | None:
        """n of ``...-partition-n``; None if this is not the name of one partition."""
        match = _PARTITION_SUFFIX.match(self.local)
        return int(match["index"]) if match else None

    @property
    def base(self) -> TopicName:
        """The topic that this is a partition of; the topic itself if it is not a partition."""
        match = _PARTITION_SUFFIX.match(self.local)
        return TopicName(self.tenant, self.namespace, match["base"]) if match else self

    def partition(self, index: int) -> TopicName:
        """The exact name of one partition. Transactions accept only these."""
        return TopicName(self.tenant, self.namespace, f"{self.local}-partition-{index}")

    def partitions(self, count: int) -> list[TopicName]:
        """All exact names of a topic with ``count`` partitions; 0 means not partitioned."""
        return [self.partition(index) for index in range(count)] if count else [self]


def check_sink_id(sink_id: str) -> str:
    """Check that ``sink_id`` is valid as a folder and topic name everywhere, and return it.

    Raises:
        ConfigurationError: it is not.
    """
    if not _SINK_ID.fullmatch(sink_id):
        raise ConfigurationError(
            f"sink_id {sink_id!r}: use 1 to 100 letters, digits, '_', '-' and '.', "
            "and begin with a letter or a digit."
        )
    return sink_id
