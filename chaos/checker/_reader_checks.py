"""Checks of readers against input and decisions: anomalies 1 to 11, and 17. Pure.

Each function yields a line of text for each case.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from eos.chaos.checker.history import Position, ReaderSightings
from eos.chaos.checker.view import TopicPosition, View, position_of


def duplicates(view: View) -> Iterator[str]:
    """1: one reader, one record, two positions."""
    for reader in view.all_readers:
        places: dict[str, set[TopicPosition]] = defaultdict(set)
        for sight, record in view.known_sights(reader):
            places[record.id].add(position_of(sight))
        for record_id, found in places.items():
            if len(found) > 1:
                where = ", ".join(str(place) for place in sorted(found))
                yield f"{reader.name} found record {record_id} at {where}"


def lost_writes(view: View) -> Iterator[str]:
    """2: a committed record is not readable."""
    for epoch in sorted(view.done & view.epochs.keys()):
        for record in view.epochs[epoch]:
            if record.id not in view.readable:
                yield f"record {record.id} of committed epoch {epoch} is not readable"


def aborted_reads(view: View) -> Iterator[str]:
    """3: read from another transaction than the committed one. Needs a log."""
    if view.history.decisions is None:
        return
    for reader in view.all_readers:
        for sight, record in view.known_sights(reader):
            decision = view.committed.get(record.epoch)
            if decision is None:
                yield (
                    f"{reader.name} read {record.id}, but its epoch {record.epoch} is not committed"
                )
            elif (sight.topic, sight.producer) not in decision.producers:
                yield (
                    f"{reader.name} read {record.id} at {position_of(sight)} from producer "
                    f"{sight.producer}, not of attempt {decision.attempt}, the committed one"
                )


def torn_epochs(view: View) -> Iterator[str]:
    """4: the fresh reader found only a part of an epoch."""
    for epoch, records in view.epochs.items():
        found = sum(record.id in view.readable for record in records)
        if 0 < found < len(records):
            yield f"{found} of {len(records)} records of epoch {epoch} are readable"


def early_reads(view: View) -> Iterator[str]:
    """5: read before PREPARED. Needs a log."""
    for reader in view.all_readers:
        for sight, record in view.known_sights(reader):
            prepared_at = view.prepared_at.get(record.epoch)
            if prepared_at is not None and sight.at < prepared_at:
                early_s = prepared_at - sight.at
                yield f"{reader.name} read {record.id} {early_s:.3f} s before it was PREPARED"


def corrupt(view: View) -> Iterator[str]:
    """6: a message is damaged, or not of the input."""
    for reader in view.all_readers:
        for sight in reader.sightings:
            if sight.record is None:
                yield f"{reader.name} read a damaged message at {position_of(sight)}"
            elif sight.record not in view.records:
                yield f"{reader.name} read {sight.record} at {position_of(sight)}, never written"


def misrouted(view: View) -> Iterator[str]:
    """7: a record has another topic, key or schema version than expected."""
    for reader in view.all_readers:
        for sight, record in view.known_sights(reader):
            given = (record.topic or sight.topic, record.key, record.schema_version)
            came = (sight.topic, sight.key, sight.schema_version)
            for what, wanted, got in zip(("topic", "key", "schema"), given, came, strict=True):
                if wanted != got:
                    yield f"{reader.name} read {record.id} with {what} {got!r}, not {wanted!r}"


def out_of_order(view: View) -> Iterator[str]:
    """8: the first messages of a key's records are not in the input's order."""
    if not view.history.keeps_order:
        return
    first = {epoch: min(r.place for r in records) for epoch, records in view.epochs.items()}
    newest_epoch: dict[tuple[str, str], int] = {}
    newest: dict[tuple[str, str, int], int] = {}
    known: set[str] = set()
    found = view.known_sights(view.history.fresh)
    for sight, record in sorted(found, key=lambda pair: position_of(pair[0])):
        if not record.key or record.id in known:
            continue
        known.add(record.id)
        line, at = (sight.topic, record.key), first[record.epoch]
        last = newest.get((*line, record.input), record.place)
        if at < newest_epoch.get(line, at) or record.place < last:
            yield f"record {record.id} of key {record.key} is readable after a later one"
        newest_epoch[line] = max(at, newest_epoch.get(line, at))
        newest[*line, record.input] = max(record.place, last)


def skips(view: View) -> Iterator[str]:
    """9: positions go backwards, or skip messages that the fresh reader found."""
    fresh = view.history.fresh
    found = _lines_of(fresh)
    yield from _steps_back(fresh.name, found)
    there = {topic: sorted(line) for topic, line in found.items()}
    for reader in view.history.readers:
        seen = _lines_of(reader)
        yield from _steps_back(reader.name, seen)
        for topic, line in there.items():
            yield from _passed_over(reader.name, topic, seen.get(topic, []), line)


def _lines_of(reader: ReaderSightings) -> dict[str, list[Position]]:
    lines: dict[str, list[Position]] = defaultdict(list)
    for sight in reader.sightings:
        lines[sight.topic].append(sight.position)
    return lines


def _steps_back(name: str, lines: dict[str, list[Position]]) -> Iterator[str]:
    for topic, line in lines.items():
        for before, position in pairwise(line):
            if position <= before:
                yield f"{name} stepped back to {TopicPosition(topic, position)}"


def _passed_over(
    name: str, topic: str, seen: list[Position], line: list[Position]
) -> Iterator[str]:
    """Compare with all messages, including those before the reader's first one."""
    reached = 0
    for position in seen:
        missed = bisect_left(line, position) - reached
        if missed > 0:
            yield f"{name} skipped {missed} messages before {TopicPosition(topic, position)}"
        reached = max(reached, bisect_right(line, position))
    if missed := len(line) - reached:
        yield f"{name} never saw the last {missed} messages of {topic.rpartition('/')[2]}"


def disagreements(view: View) -> Iterator[str]:
    """10: two readers found different contents at one position."""
    first: dict[TopicPosition, tuple[str | None, str]] = {}
    for reader in view.all_readers:
        for sight in reader.sightings:
            content = (sight.record, sight.key)
            known = first.setdefault(position_of(sight), content)
            if known != content:
                yield f"{position_of(sight)} is {known[0]} for one, {content[0]} for {reader.name}"


def vanished(view: View) -> Iterator[str]:
    """11: read while faults happened, but not readable at the end."""
    gone: dict[str, str] = {}
    for reader in view.history.readers:
        for _, record in view.known_sights(reader):
            if record.id not in view.readable:
                gone.setdefault(record.id, reader.name)
    for record_id, name in gone.items():
        yield f"{name} read record {record_id}, which is no longer readable"


def torn_outputs(view: View) -> Iterator[str]:
    """17: at the end, the table does not have the records of the topic, each once."""
    history = view.history
    if history.table is None:
        return
    reader = history.fresh_again or history.fresh
    topic = {record.id for _, record in view.known_sights(reader)}
    table = Counter(history.table)
    for record_id, count in sorted(table.items(), key=str):
        if record_id not in topic:
            yield f"row {record_id} of the table is not in the topic"
        elif count > 1:
            yield f"record {record_id} is in the table {count} times"
    for record_id in sorted(topic - table.keys()):
        yield f"record {record_id} of the topic is not in the table"
