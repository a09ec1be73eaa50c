"""Histories for the checker: random clean ones, and a small one that tests modify."""

from __future__ import annotations

import random
from dataclasses import replace
from zlib import crc32

from eos.chaos.checker.history import (
    Decision,
    Position,
    ReaderSightings,
    Record,
    RunHistory,
    Sighting,
)
from eos.protocol import State

QUERY = "q"
TOPIC = "persistent://public/default/t-partition-{}"


def decisions(
    epoch: int, producers: frozenset[tuple[str, str]], *, attempts: int = 1
) -> list[Decision]:
    """An epoch whose last attempt was committed, the ones before aborted; ``seq`` is set later."""
    found = []
    for attempt in range(1, attempts + 1):
        txn, at = f"(0,{epoch * 10 + attempt})", float(epoch * 10 + attempt)
        one = Decision(0, QUERY, str(epoch), attempt, txn, State.OPEN, at)
        found.append(one)
        if attempt < attempts:
            found.append(one._replace(state=State.ABORTING, at=at + 0.1))
            found.append(one._replace(state=State.ABORTED, at=at + 0.2))
            continue
        one = one._replace(producers=producers)
        found.append(one._replace(state=State.PREPARED, at=at + 0.3))
        found.append(one._replace(state=State.COMMITTED, at=at + 0.4))
    return found


def numbered(log: list[Decision]) -> tuple[Decision, ...]:
    """A log's records with their ``seq``."""
    return tuple(decision._replace(seq=n) for n, decision in enumerate(log, 1))


def clean(seed: int) -> RunHistory:
    """A random history without anomalies."""
    rng = random.Random(seed)
    epochs, rows, partitions = rng.randint(1, 6), rng.randint(1, 12), rng.randint(1, 4)
    keys = rng.randint(0, 5)
    records: list[Record] = []
    draft: list[Decision] = []
    committed: list[tuple[float, list[Sighting]]] = []
    for epoch in range(epochs):
        if rng.random() < 0.1:  # an empty one
            txn = f"(0,{epoch * 10})"
            states = (State.OPEN, State.ABORTING, State.EMPTY)
            draft += [Decision(0, QUERY, str(epoch), 1, txn, s, epoch * 10.0) for s in states]
            continue
        seen = []
        for n in range(rows):
            key = f"k{rng.randrange(keys)}" if keys else ""
            index = crc32(key.encode()) % partitions if key else rng.randrange(partitions)
            topic, record_id = TOPIC.format(index), f"{epoch}/{n}"
            known = rng.choice([None, topic])
            records.append(Record(record_id, str(epoch), epoch * rows + n, key, known))
            at = Position(7, epoch, n)
            seen.append(Sighting(0.0, topic, at, record_id, key, f"p-{epoch}-{index}"))
        if rng.random() < 0.2:  # it failed once before it got a transaction
            failed = Decision(0, QUERY, str(epoch), 0, str(None), State.FAILED, epoch * 10.0)
            draft.append(failed)
        producers = frozenset((sight.topic, sight.producer) for sight in seen)
        draft += decisions(epoch, producers, attempts=rng.randint(1, 3))
        committed.append((draft[-1].at, seen))
    log = numbered(draft)
    fresh = _reader(rng, "fresh reader", committed)
    done = frozenset(d.epoch for d in log if d.state in (State.COMMITTED, State.EMPTY))
    watchers = [_reader(rng, f"watcher {n}", committed) for n in range(rng.randint(0, 3))]
    return RunHistory(
        records=tuple(records),
        fresh=fresh,
        decisions=log,
        readers=tuple(watchers),
        noted=rng.choice([None, done]),
        earlier=log[: rng.randint(0, len(log))],
        fresh_again=rng.choice([None, replace(fresh, name="fresh again")]),
        tables={
            name: tuple(sight.record for sight in fresh.sightings)
            for name in rng.choice([(), ("table",), ("table", "database")])
        },
        decisions_again=rng.choice([None, log]),
        says_clean=rng.choice([None, True, False]),
    )


def _reader(
    rng: random.Random, name: str, committed: list[tuple[float, list[Sighting]]]
) -> ReaderSightings:
    """A reader that sees each epoch after its commit, each partition in order."""
    sights = []
    for at, seen in committed:
        lines: dict[str, list[Sighting]] = {}
        for sight in seen:
            lines.setdefault(sight.topic, []).append(sight)
        while lines:
            topic = rng.choice(sorted(lines))
            at += rng.random() * 0.01
            sights.append(lines[topic].pop(0)._replace(at=at))
            if not lines[topic]:
                del lines[topic]
    return ReaderSightings(name, tuple(sights))


def small() -> RunHistory:
    """Three epochs of four records, two keys, two partitions; one watcher; all is well.

    Epoch e has the records e/0 to e/3; even ones have key ``a`` and are in partition 0, odd ones
    key ``b`` and partition 1. Epoch 1 needed two attempts.
    """
    records: list[Record] = []
    draft: list[Decision] = []
    sights: list[Sighting] = []
    for epoch in range(3):
        for n in range(4):
            key, topic = "ab"[n % 2], TOPIC.format(n % 2)
            records.append(Record(f"{epoch}/{n}", str(epoch), epoch * 4 + n, key, topic))
            position, at = Position(7, epoch, n // 2), epoch * 10 + 5 + n / 10
            sights.append(Sighting(at, topic, position, f"{epoch}/{n}", key, f"p{epoch}"))
        producers = frozenset((TOPIC.format(n), f"p{epoch}") for n in range(2))
        draft += decisions(epoch, producers, attempts=2 if epoch == 1 else 1)
    fresh = ReaderSightings("fresh reader", tuple(s._replace(at=s.at + 100) for s in sights))
    return RunHistory(
        records=tuple(records),
        fresh=fresh,
        decisions=numbered(draft),
        readers=(ReaderSightings("watcher", tuple(sights)),),
        noted=frozenset("012"),
        fresh_again=fresh,
        decisions_again=numbered(draft),
        says_clean=False,
    )
