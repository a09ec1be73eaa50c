"""The Pulsar participant's part of a record: transaction, mark, receipt and sent figures."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

from eos.ids import MessageId, TopicName, TxnId
from eos.protocol import (
    LogRecord,
    Part,
    Payload,
    Stage,
    check_key,
    has_control_characters,
    require,
    require_carried,
)
from eos.task_report import PartitionFigures

KIND: Final = "pulsar"

MAX_TTL_MS: Final = 24 * 60 * 60 * 1000
"""24 hours. A very long time to live disables expiry for a whole coordinator (measured)."""

_BEGUN: Final = ("txn", "ttl_ms", "mark_id", "mark_uuid")
_CARRIED: Final = (*_BEGUN, "receipt_topic", "cluster")
_COLUMNS: Final = ("ttl_ms", "service_url", "receipt_topic", "mark_uuid")


@dataclass(frozen=True, kw_only=True)
class PulsarPart(Part):
    """One Pulsar transaction, in the columns of version 1 of the log.

    Attributes:
        service_url: the broker that the writer of the record used; never with credentials.
        receipt_topic: full name; the same in the whole log.
        txn: the transaction; columns ``txn_most`` and ``txn_least``.
        ttl_ms: its time to live, at most 24 hours.
        mark_id: position of the mark in the receipt topic.
        mark_uuid: content of the mark.
        cluster: the name of the cluster; unknown in records of older releases.
        receipt_id: position of the receipt; from PREPARED on.
        partitions: figures of the sent messages, per topic partition; from PREPARED on.
    """

    kind: ClassVar[str] = KIND
    # A broker aborts a transaction after its time to live, prepared or not.
    can_expire: ClassVar[bool] = True

    service_url: str
    receipt_topic: str
    txn: TxnId | None = None
    ttl_ms: int | None = None
    mark_id: MessageId | None = None
    mark_uuid: str | None = None
    cluster: str | None = None
    receipt_id: MessageId | None = None
    partitions: tuple[PartitionFigures, ...] = ()

    @property
    def output(self) -> str:
        """The topic without partition, or the number of topics; "" before anything was sent."""
        topics = self.topics
        if len(topics) > 1:
            return f"{len(topics)} topics"
        return topics[0] if topics else ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics with rows, without partition."""
        bases = (str(TopicName.parse(part.topic).base) for part in self.partitions)
        return tuple(dict.fromkeys(bases))

    @property
    def label(self) -> str:
        """``transaction (0,17)``."""
        return f"transaction {self.txn}"

    @property
    def txn_id(self) -> str | None:
        """``(0,17)``."""
        return str(self.txn) if self.txn else None

    @property
    def identity(self) -> str:
        """The receipt topic: with another one, nothing about the past could be proved."""
        return self.receipt_topic

    @property
    def anchors(self) -> frozenset[int | str]:
        """The coordinator: it finishes its transactions only when a client connects to it."""
        return frozenset() if self.txn is None else frozenset({self.txn.most})

    @property
    def begun_at(self) -> tuple[int, ...] | None:
        """The position of the mark: ledgers and entries of a topic grow."""
        return None if self.mark_id is None else tuple(self.mark_id)

    @property
    def begun_in(self) -> str | None:
        """The cluster: ledgers of two clusters can't be compared."""
        return self.cluster

    @property
    def records(self) -> int | None:
        """Messages, over all partitions."""
        return self._sum("records")

    @property
    def bytes(self) -> int | None:
        """Bytes of values and keys, over all partitions."""
        return self._sum("bytes")

    @property
    def checksum(self) -> int | None:
        """Sum modulo 2^64 over all partitions."""
        total = self._sum("checksum")
        return None if total is None else total % 2**64

    def _sum(self, figure: str) -> int | None:
        if self.receipt_id is None and not self.partitions:
            return None
        return sum(int(getattr(part, figure)) for part in self.partitions)

    def check(self, stage: Stage) -> None:
        """See ``Part``."""
        _check_service_url(self.service_url)
        check_key(self.receipt_topic, what="receipt_topic")
        self._check_presence(stage)
        if stage is not Stage.CLAIMED:
            self._check_begun()
        if stage is Stage.PREPARED:
            self._check_prepared()

    def _check_presence(self, stage: Stage) -> None:
        for name in _BEGUN:
            _require_presence(name, self, expected=stage is not Stage.CLAIMED)
        if self.cluster is not None:
            check_key(self.cluster, what="cluster")
        _require_presence("receipt_id", self, expected=stage is Stage.PREPARED)
        if self.partitions and stage is not Stage.PREPARED:
            raise ValueError("partitions do not belong there")

    def _check_begun(self) -> None:
        assert self.txn is not None
        assert self.ttl_ms is not None
        assert self.mark_id is not None
        assert self.mark_uuid is not None
        # TxnID is two uint64, of which Delta's long holds the lower half; the broker counts from 0.
        require(all(0 <= part < 2**63 for part in self.txn), f"txn {self.txn} is out of range")
        require(0 < self.ttl_ms <= MAX_TTL_MS, f"ttl_ms {self.ttl_ms} is not within 24 hours")
        _check_message_id("mark_id", self.mark_id)
        if str(uuid.UUID(self.mark_uuid)) != self.mark_uuid:
            raise ValueError("mark_uuid is not a uuid in canonical form")

    def _check_prepared(self) -> None:
        assert self.receipt_id is not None
        assert self.mark_id is not None
        _check_message_id("receipt_id", self.receipt_id)
        # Both are in one topic, and the mark was acknowledged first: ledgers and entries grow.
        if self.receipt_id[:2] <= self.mark_id[:2]:
            raise ValueError(f"receipt {self.receipt_id} is not after mark {self.mark_id}")
        for part in self.partitions:
            _check_partition(part)
        repeated = [t for t, n in Counter(p.topic for p in self.partitions).items() if n > 1]
        require(not repeated, f"partitions name {', '.join(repeated)} twice")

    def check_follows(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, PulsarPart)
        was_prepared = previous.receipt_id is not None
        prepared = ("receipt_id", "partitions") if was_prepared else ()
        require_carried(self, previous, (*_CARRIED, *prepared))

    def check_new(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, PulsarPart)
        require(self.mark_uuid != previous.mark_uuid, "mark_uuid is that of the last attempt")

    def written_by(self, claim: Part) -> PulsarPart:
        """This part, with the service URL of the run that writes the record."""
        assert isinstance(claim, PulsarPart)
        return replace(self, service_url=claim.service_url)

    def payload(self) -> Payload:
        """What is not in columns."""
        return {} if self.cluster is None else {"cluster": self.cluster}

    def columns(self) -> Mapping[str, Any]:
        """The columns of version 1."""
        return {
            **{name: getattr(self, name) for name in _COLUMNS},
            "txn_most": self.txn.most if self.txn else None,
            "txn_least": self.txn.least if self.txn else None,
            "mark_id": str(self.mark_id) if self.mark_id else None,
            "receipt_id": str(self.receipt_id) if self.receipt_id else None,
            "partitions": self.partitions,
        }

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """See ``Part``."""
        most, least = columns["txn_most"], columns["txn_least"]
        if (most is None) != (least is None):
            raise ValueError("txn_most and txn_least go together")
        return cls(
            **{name: columns[name] for name in _COLUMNS},
            cluster=payload.get("cluster"),
            txn=None if most is None else TxnId(int(most), int(least)),
            mark_id=_message_id(columns["mark_id"]),
            receipt_id=_message_id(columns["receipt_id"]),
            partitions=tuple(columns["partitions"]),
        )


EMPTY_PART: Final = PulsarPart(service_url="", receipt_topic="")


def pulsar_part(record: LogRecord) -> PulsarPart:
    """Return the Pulsar part of a record, or an empty one."""
    for part in record.participants:
        if isinstance(part, PulsarPart):
            return part
    return EMPTY_PART


def other_parts(record: LogRecord) -> tuple[Part, ...]:
    """Return the parts of a record that are not Pulsar's."""
    return tuple(part for part in record.participants if not isinstance(part, PulsarPart))


def _require_presence(name: str, part: PulsarPart, *, expected: bool) -> None:
    is_there = getattr(part, name) is not None
    if is_there != expected:
        raise ValueError(f"{name} {'does not belong there' if is_there else 'is missing'}")


def _check_partition(part: PartitionFigures) -> None:
    check_key(part.topic, what="a partition's topic")
    require(bool(part.producers) and all(part.producers), f"{part.topic}: producers are missing")
    require(part.records >= 1, f"{part.topic}: {part.records} records")
    require(part.bytes >= 0, f"{part.topic}: {part.bytes} bytes")
    require(0 <= part.checksum < 2**64, f"{part.topic}: checksum {part.checksum} is not a uint64")
    _check_message_id(f"{part.topic}: first_id", part.first_id)
    _check_message_id(f"{part.topic}: last_id", part.last_id)
    require(part.first_id <= part.last_id, f"{part.topic}: first_id is after last_id")


def _check_service_url(url: str) -> None:
    # The URL stays out of every message: it may contain a password.
    require("://" in url, "service_url is not a url")
    if any(char in url for char in "@?#") or has_control_characters(url):
        raise ValueError("service_url holds a user, a query or a fragment; leave credentials out")


def _check_message_id(name: str, message_id: MessageId) -> None:
    if message_id.ledger < 0 or message_id.entry < 0:
        raise ValueError(f"{name} {message_id} is not a message's position")


def _message_id(text: str | None) -> MessageId | None:
    return None if text is None else MessageId.parse(text)
