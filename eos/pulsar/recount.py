"""Counts the entries of a transaction again, in the same way as its writers did."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass

from eos.client import Entry, PulsarClient
from eos.ids import MessageId
from eos.pulsar.part import PulsarPart
from eos.task_report import PartitionFigures
from eos.wire.checksum import CHECKSUM_MODULUS


@dataclass
class Recount:
    """Figures of one attempt's readable entries in one partition."""

    records: int = 0
    bytes: int = 0
    checksum: int = 0
    first: MessageId | None = None

    def add(self, entry: Entry) -> None:
        """Count one entry.

        Raises:
            ProtocolError: its payload is malformed.
        """
        figures = entry.figures()
        self.records += figures.num_messages
        self.bytes += figures.value_and_key_bytes
        self.checksum = (self.checksum + figures.checksum) % CHECKSUM_MODULUS
        self.first = self.first or entry.id

    def matches(self, part: PartitionFigures) -> bool:
        """Whether the figures are those that were sent."""
        return (self.records, self.bytes, self.checksum) == (
            part.records,
            part.bytes,
            part.checksum,
        )

    def difference(self, part: PartitionFigures) -> str:
        """Describe how they differ."""
        if self.records != part.records:
            return f"{self.records:,} of its {part.records:,} messages are readable"
        if self.bytes != part.bytes:
            return f"its {part.records:,} messages hold {self.bytes:,} bytes, not {part.bytes:,}"
        return f"its {part.records:,} messages have another checksum than those that were sent"


def is_entry_of(entry: Entry, of: PulsarPart, part: PartitionFigures) -> bool:
    """Whether ``entry`` belongs to ``part`` of the transaction ``of``: id, producer, position."""
    return (
        entry.txn == of.txn
        and entry.metadata.producer_name in part.producers
        and part.first_id.place <= entry.id.place <= part.last_id.place
    )


def recount(
    client: PulsarClient, of: PulsarPart, part: PartitionFigures, *, timeout_s: float
) -> Recount | None:
    """Count the readable entries of ``part`` of the transaction ``of``. Creates nothing.

    None if the topic does not exist.

    Raises:
        EosError: it can't be read.
    """
    # First: a reader would create a topic that was deleted.
    if not client.exists(part.topic):
        return None
    deadline = time.monotonic() + timeout_s
    counted = Recount()
    with closing(client.topic_bounds(part.topic)) as bounds:
        last = bounds.final_bounds().last_id
    # Waiting for entries that are not delivered now would be in vain.
    if last is None or last.place < part.first_id.place:
        return counted
    end = min(part.last_id.place, last.place)
    with client.entry_reader(part.topic, MessageId(*part.first_id.place)) as reader:
        for entry in reader.read(deadline):
            if is_entry_of(entry, of, part):
                counted.add(entry)
            if entry.id.place >= end:
                break
    return counted
