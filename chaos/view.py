"""A run's history, looked up by what the checks ask for. Built once for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from chaos.history import Decision, Position, Reader, Record, RunHistory, Sight
from eos.transaction import FINAL, State


class Place(NamedTuple):
    """A position in one partition."""

    topic: str
    position: Position

    def __str__(self) -> str:
        return f"{self.topic.rpartition('/')[2]}@{':'.join(map(str, self.position))}"


class View:
    """What the checks share. ``history`` itself stays as it is."""

    def __init__(self, history: RunHistory) -> None:
        self.history = history

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """The input, by id."""
        return {record.id: record for record in self.history.records}

    @cached_property
    def epochs(self) -> Mapping[str, tuple[Record, ...]]:
        """The input, by epoch."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.history.records:
            found[record.epoch].append(record)
        return {epoch: tuple(records) for epoch, records in found.items()}

    @property
    def all_readers(self) -> tuple[Reader, ...]:
        """Those that watched, then the fresh one."""
        return (*self.history.readers, self.history.fresh)

    def known_sights(self, reader: Reader) -> Iterator[tuple[Sight, Record]]:
        """What a reader saw of the input; what is no record of it is anomaly 6, not shown here."""
        for sight in reader.sights:
            if sight.record is not None and sight.record in self.records:
                yield sight, self.records[sight.record]

    @cached_property
    def readable(self) -> frozenset[str]:
        """The ids that the fresh reader found."""
        return frozenset(record.id for _, record in self.known_sights(self.history.fresh))

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """All that the log ever said, in its order: what it thinned out since included."""
        known = {(d.seq, d) for d in (*self.history.earlier, *(self.history.decisions or ()))}
        return tuple(decision for _, decision in sorted(known, key=lambda pair: pair[0]))

    @cached_property
    def done(self) -> frozenset[str]:
        """The epochs that count as committed (D): by the log, or without one by Spark's word."""
        if self.history.decisions is None:
            return self.history.noted or frozenset()
        newest = {decision.epoch: decision for decision in self.decisions}
        return frozenset(epoch for epoch, last in newest.items() if last.state in FINAL)

    @cached_property
    def committed(self) -> Mapping[str, Decision]:
        """The COMMITTED decision of each epoch that has one."""
        return {d.epoch: d for d in self.decisions if d.state is State.COMMITTED}

    @cached_property
    def prepared_at(self) -> Mapping[str, float]:
        """When the committed attempt of an epoch was PREPARED."""
        return {
            d.epoch: d.at
            for d in self.decisions
            if d.state is State.PREPARED
            and d.epoch in self.committed
            and d.txn == self.committed[d.epoch].txn
        }


def place_of(sight: Sight) -> Place:
    """Where a message sits."""
    return Place(sight.topic, sight.position)
