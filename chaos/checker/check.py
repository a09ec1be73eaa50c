"""Finds the anomalies in the history of a run. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import Final

from eos.chaos.checker.history import (
    Anomaly,
    AnomalyKind,
    Decision,
    Position,
    ReaderSightings,
    RunHistory,
    TopicPosition,
    View,
    position_of,
)
from eos.protocol import BATCH, FINAL, UNFINISHED, State, is_allowed


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
    """6: a message is damaged, has several records, or is not of the input."""
    for reader in view.all_readers:
        for sight in reader.sightings:
            if sight.record is None:
                place = position_of(sight)
                yield f"{reader.name} read a damaged message, or several records, at {place}"
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
    # Across epochs, and within one input: within an epoch, Spark mixes the records of several.
    # By key: epochs may have the same input's records of different partitions.
    first: dict[tuple[str, str], int] = {}
    for epoch, records in view.epochs.items():
        for one in records:
            first[epoch, one.key] = min(one.place, first.get((epoch, one.key), one.place))
    newest_epoch: dict[tuple[str, str], int] = {}
    newest: dict[tuple[str, str, int], int] = {}
    known: set[str] = set()  # the first message of a record counts; a second one is anomaly 1
    found = view.known_sights(view.history.fresh)
    for sight, record in sorted(found, key=lambda pair: position_of(pair[0])):
        if not record.key or record.id in known:
            continue
        known.add(record.id)
        line, at = (sight.topic, record.key), first[record.epoch, record.key]
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
    # With all messages: one before the reader's first, or after its last, is missed as well.
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
    """17: at the end, another output does not have the records of the topic, each once."""
    history = view.history
    reader = history.fresh_again or history.fresh
    topic = {record.id for _, record in view.known_sights(reader)}
    for name, ids in history.tables.items():
        table = Counter(ids)
        for record_id, count in sorted(table.items(), key=str):
            if record_id not in topic:
                yield f"row {record_id} of the {name} is not in the topic"
            elif count > 1:
                yield f"record {record_id} is in the {name} {count} times"
        for record_id in sorted(topic - table.keys()):
            yield f"record {record_id} of the topic is not in the {name}"


def decision_flips(view: View) -> Iterator[str]:
    """12: two outcomes, or two transactions, for one epoch; or a record that changed."""
    by_seq: dict[int, Decision] = {}
    for decision in view.decisions:
        known = by_seq.setdefault(decision.seq, decision)
        if known != decision:
            yield f"record {decision.seq} was {_short(known)}, and then {_short(decision)}"
    for decisions in view.by_epoch.values():
        yield from _flips_of(decisions)
    yield from _forgotten(view)


def _flips_of(decisions: tuple[Decision, ...]) -> Iterator[str]:
    last: Decision | None = None
    for decision in decisions:
        source = last.state if last is not None else None
        # Only a new attempt has a new transaction.
        is_same = last is not None and decision.state is not State.OPEN
        if not is_allowed(source, decision.state):
            before = f"after {_short(last)}" if last is not None else "as the first record"
            yield f"{_short(decision)} came {before}"
        elif last is not None and (last.txn == decision.txn) is not is_same:
            yield f"{_short(decision)} came in transaction {decision.txn} after {_short(last)}"
        last = decision


def _forgotten(view: View) -> Iterator[str]:
    # Also if no log is left: only a sink that never had one has nothing to forget.
    now = {(d.query, d.epoch): d for d in view.history.decisions or ()}
    done = sorted(d.seq for d in now.values() if d.state in FINAL)
    for decision in view.history.earlier:
        newest = now.get((decision.query, decision.epoch))
        newer = len(done) - bisect_right(done, decision.seq)
        # Compaction may drop it when that many newer epochs are done, and not before.
        is_thinned = newest is None and newer >= view.history.kept_epochs
        has_changed = newest is None or newest.state is not decision.state
        if decision.state in FINAL and has_changed and not is_thinned:
            yield f"{_short(decision)} is no longer in the log"


def gaps(view: View) -> Iterator[str]:
    """13: an epoch before the last committed one is not done; or Spark and the log disagree."""
    last = max((int(epoch) for epoch in view.streamed if epoch.isdecimal()), default=-1)
    begun = {epoch for query, epoch in view.by_epoch if query != BATCH}
    undone = (begun - view.streamed) | (view.epochs.keys() - view.done)
    for epoch in sorted(undone, key=lambda text: (len(text), text)):
        # The key of a batch job may be a word, and has no order.
        if epoch.isdecimal() and int(epoch) < last:
            yield f"epoch {epoch} is not done, epoch {last} is"
        elif view.history.is_whole and epoch in view.epochs:
            yield f"epoch {epoch} is not done, although the job has ended"
    noted = view.history.noted
    if noted is None or view.history.decisions is None:
        return
    for text in sorted(noted - view.streamed):
        yield f"epoch {text} is done in Spark's checkpoint, but not in the log"
    for text in sorted(view.streamed - noted):
        yield f"epoch {text} is done in the log, but not in Spark's checkpoint"


def stuck(view: View) -> Iterator[str]:
    """14: blocked readers and transactions, and attempts that the log leaves unfinished."""
    yield from view.history.stuck
    for decisions in view.by_epoch.values():
        if decisions[-1].state in UNFINISHED:
            yield f"{_short(decisions[-1])} is the last record at the end"


def not_idempotent(view: View) -> Iterator[str]:
    """15: the second recovery changed readable messages, or decisions."""
    history = view.history
    if history.fresh_again is not None:
        before, after = _messages(history.fresh), _messages(history.fresh_again)
        for change, messages in (("disappeared", before - after), ("appeared", after - before)):
            for place, record in sorted(messages.elements(), key=str):
                yield f"record {record} at {place} {change}"
    if history.decisions_again is not None:
        once, twice = Counter(history.decisions or ()), Counter(history.decisions_again)
        for decision in sorted(((once - twice) + (twice - once)).elements()):
            yield f"{_short(decision)} changed"


def _messages(reader: ReaderSightings) -> Counter[tuple[TopicPosition, str | None]]:
    return Counter((position_of(sight), sight.record) for sight in reader.sightings)


def _short(decision: Decision) -> str:
    return (
        f"{decision.state} of epoch {decision.epoch} (attempt {decision.attempt}, transaction "
        f"{decision.txn})"
    )


EXAMPLES: Final = 5  # number of cases of each kind that are kept as text; all are counted

# Without anomaly 16, which follows from the others.
CHECKS: Final[dict[AnomalyKind, Callable[[View], Iterator[str]]]] = {
    AnomalyKind.DUPLICATE: duplicates,
    AnomalyKind.LOST_WRITE: lost_writes,
    AnomalyKind.ABORTED_READ: aborted_reads,
    AnomalyKind.TORN_EPOCH: torn_epochs,
    AnomalyKind.EARLY_READ: early_reads,
    AnomalyKind.CORRUPT: corrupt,
    AnomalyKind.MISROUTED: misrouted,
    AnomalyKind.ORDER: out_of_order,
    AnomalyKind.SKIP: skips,
    AnomalyKind.DISAGREEMENT: disagreements,
    AnomalyKind.VANISHED: vanished,
    AnomalyKind.DECISION_FLIP: decision_flips,
    AnomalyKind.GAP: gaps,
    AnomalyKind.STUCK: stuck,
    AnomalyKind.NOT_IDEMPOTENT: not_idempotent,
    AnomalyKind.TORN_OUTPUTS: torn_outputs,
}


def check(history: RunHistory) -> list[Anomaly]:
    """Return the anomalies of a run, in the order of their numbers."""
    view = View(history)
    found = [_anomaly(kind, cases(view)) for kind, cases in CHECKS.items()]
    anomalies = [anomaly for anomaly in found if anomaly is not None]
    if history.says_clean and anomalies:
        names = ", ".join(anomaly.kind.name.lower() for anomaly in anomalies)
        anomalies.append(Anomaly(AnomalyKind.FALSE_CLEAN, 1, (f"reported clean, with {names}",)))
    if history.alarm and history.is_whole and not anomalies:
        anomalies.append(Anomaly(AnomalyKind.FALSE_CLEAN, 1, (f"no anomaly, but {history.alarm}",)))
    return anomalies


def _anomaly(kind: AnomalyKind, cases: Iterator[str]) -> Anomaly | None:
    examples = tuple(islice(cases, EXAMPLES))
    if not examples:
        return None
    return Anomaly(kind, len(examples) + sum(1 for _ in cases), examples)
