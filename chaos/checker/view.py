"""Lookups in the history of a run, shared by all checks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from eos.chaos.checker.history import (
    Decision,
    Position,
    ReaderSightings,
    Record,
    RunHistory,
    Sighting,
)
from eos.protocol import BATCH, FINAL, State


class TopicPosition(NamedTuple):
    """A position in one partition."""

    topic: str
    position: Position

    def __str__(self) -> str:
        return f"{self.topic.rpartition('/')[2]}@{':'.join(map(str, self.position))}"


class View:
    """The shared lookups; ``history`` is not changed."""

    def __init__(self, history: RunHistory) -> None:
        self.history = history

    @cached_property
    def records(self) -> Mapping[str, Record]:
        """The input records, by id."""
        return {record.id: record for record in self.history.records}

    @cached_property
    def epochs(self) -> Mapping[str, tuple[Record, ...]]:
        """The input records, by epoch."""
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.history.records:
            found[record.epoch].append(record)
        return {epoch: tuple(records) for epoch, records in found.items()}

    @property
    def all_readers(self) -> tuple[ReaderSightings, ...]:
        """The watching readers, then the fresh one."""
        return (*self.history.readers, self.history.fresh)

    def known_sights(self, reader: ReaderSightings) -> Iterator[tuple[Sighting, Record]]:
        """A reader's sightings of input records; other messages are anomaly 6."""
        for sight in reader.sightings:
            if sight.record is not None and sight.record in self.records:
                yield sight, self.records[sight.record]

    @cached_property
    def readable(self) -> frozenset[str]:
        """The ids found by the fresh reader."""
        return frozenset(record.id for _, record in self.known_sights(self.history.fresh))

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """All records that the log ever had, in order, including dropped ones."""
        known = {(d.seq, d) for d in (*self.history.earlier, *(self.history.decisions or ()))}
        return tuple(decision for _, decision in sorted(known, key=lambda pair: pair[0]))

    @cached_property
    def by_epoch(self) -> Mapping[tuple[str, str], tuple[Decision, ...]]:
        """The decisions of each (query, epoch), in order."""
        found: dict[tuple[str, str], list[Decision]] = defaultdict(list)
        for decision in self.decisions:
            found[decision.query, decision.epoch].append(decision)
        return {key: tuple(decisions) for key, decisions in found.items()}

    @cached_property
    def done(self) -> frozenset[str]:
        """The committed epochs (D): by the log, or by Spark's checkpoint if there is no log."""
        return self.streamed | {epoch for query, epoch in self._finals if query == BATCH}

    @cached_property
    def streamed(self) -> frozenset[str]:
        """The committed epochs of streaming queries."""
        if self.history.decisions is None:
            return self.history.noted or frozenset()
        return frozenset(epoch for query, epoch in self._finals if query != BATCH)

    @cached_property
    def _finals(self) -> frozenset[tuple[str, str]]:
        return frozenset(key for key, of_it in self.by_epoch.items() if of_it[-1].state in FINAL)

    @cached_property
    def committed(self) -> Mapping[str, Decision]:
        """The COMMITTED decision of each epoch that has one."""
        return {d.epoch: d for d in self.decisions if d.state is State.COMMITTED}

    @cached_property
    def prepared_at(self) -> Mapping[str, float]:
        """The time when an epoch's committed attempt was PREPARED, or else COMMITTED."""
        found: dict[str, float] = {}
        for decision in self.decisions:
            committed = self.committed.get(decision.epoch)
            is_decided = decision.state in (State.PREPARED, State.COMMITTED)
            if committed is not None and is_decided and decision.txn == committed.txn:
                found.setdefault(decision.epoch, decision.at)
        return found


def position_of(sight: Sighting) -> TopicPosition:
    """The position of a message."""
    return TopicPosition(sight.topic, sight.position)
