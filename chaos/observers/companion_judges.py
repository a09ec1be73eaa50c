"""Judge by plain readers what the programs beside the job have written."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import pulsar
import pyarrow.parquet
from deltalake import DeltaTable

from eos.chaos._records import id_in
from eos.chaos.checker.history import Position, ReaderSightings, Record, RunHistory, Sighting
from eos.chaos.cluster.companions import KeyedCounter
from eos.chaos.cluster.target import Pulsar, path_of
from eos.chaos.job import INPUT_SUBSCRIPTION, NO_KEY
from eos.chaos.observers.readers import KEEPER, Background, Watcher, drain, keep, open_client
from eos.errors import EosError
from eos.ids import TopicName

_EVERY_S: Final = 1.0
_CATCH_UP_S: Final = 60.0
_COLUMNS: Final = ["value", "__key", "__messageId"]
_ARCHIVES: Final = "eos-archive-"
_COUNTS: Final = "counts"
_COUNTED_WITHIN_S: Final = 120.0
_STATE_PROPERTY: Final = "eos.state"


class ArchiveJudge(Background):
    """Reads an archived topic while the block runs, and lets the broker delete what it has read.

    So it can't read it again at the end. Create it before the topic has messages.
    """

    def __init__(self, broker: Pulsar, topics: Sequence[str]) -> None:
        super().__init__("archive judge")
        self._broker = broker
        self._watchers = [Watcher("plain reader", broker.service_url, one) for one in topics]
        with closing(open_client(broker.service_url)) as client:
            for topic in topics:
                keep(client, topic)
        self._stack = ExitStack()

    def __enter__(self) -> ArchiveJudge:
        for watcher in self._watchers:
            self._stack.enter_context(watcher)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def history(self, table: str, records: Iterable[Record], problems: list[str]) -> RunHistory:
        """The table's rows as those of the reader at the end, for the checker.

        ``records`` are in the topic, those of one epoch in one transaction.
        """
        whole = DeltaTable(table).to_pyarrow_table(columns=_COLUMNS)
        base = str(TopicName.parse(self._watchers[0].topic).base)
        rows = sorted(_sights(base, whole), key=lambda one: (one.topic, one.position))
        deadline = time.monotonic() + _CATCH_UP_S
        ends = {one.topic: one.position for one in rows}
        while time.monotonic() < deadline and not all(
            one.has_reached(ends[one.topic]) for one in self._watchers if one.topic in ends
        ):
            time.sleep(_EVERY_S)
        read = tuple(sight for one in self._watchers for sight in one.sightings)
        given = tuple(records)
        return RunHistory(
            records=given,
            fresh=ReaderSightings("archive", tuple(rows)),
            readers=(
                ReaderSightings("plain reader", read),
                ReaderSightings("archive, by commits", tuple(_by_commits(base, Path(table)))),
            ),
            noted=frozenset(record.epoch for record in given),
            stuck=tuple(problems),
        )

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(pulsar.PulsarException, EosError):  # again, once the broker is back
                self._acknowledge()
            self._over.wait(_EVERY_S)

    def _acknowledge(self) -> None:
        with closing(open_client(self._broker.service_url)) as client:
            consumers = [client.subscribe(one.topic, KEEPER) for one in self._watchers]
            while not self._over.wait(_EVERY_S):
                for consumer, watcher in zip(consumers, self._watchers, strict=True):
                    if watcher.sightings and self._is_kept_by_others(watcher.topic):
                        consumer.acknowledge_cumulative(watcher.last)

    def _is_kept_by_others(self, topic: str) -> bool:
        # Both begin at the first message that is there.
        names = self._broker.admin("GET", f"{path_of(topic)}/subscriptions")
        return INPUT_SUBSCRIPTION in names and any(one.startswith(_ARCHIVES) for one in names)


def _sights(base: str, rows: Any) -> Iterator[Sighting]:
    for row in rows.to_pylist():
        place = pulsar.MessageId.deserialize(row["__messageId"])
        yield Sighting(
            at=time.time(),
            topic=f"{base}-partition-{place.partition()}",
            position=Position(place.ledger_id(), place.entry_id(), place.batch_index()),
            record=id_in(row["value"] or b""),
            key=(row["__key"] or b"").decode(),
        )


def _by_commits(base: str, table: Path) -> Iterator[Sighting]:
    """The rows in the order of the table's commits, and of the files and rows in them."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            if added := json.loads(line).get("add"):
                rows = pyarrow.parquet.read_table(table / added["path"], columns=_COLUMNS)
                yield from _sights(base, rows)


class CountJudge:
    """Compares the counts of a ``KeyedCounter`` with the messages that it has counted."""

    def __init__(self, broker: Pulsar, counter: KeyedCounter) -> None:
        self._url = broker.service_url
        self._counter = counter
        with closing(open_client(self._url)) as client:
            keep(client, counter.counts)

    def history(self, counted: ReaderSightings) -> RunHistory:
        """End the counter when it has counted all; return its counts, for the checker.

        They are records with the ids ``key/1``, ``key/2`` and so on, and the table is the state.
        """
        counter = self._counter
        numbers = Counter(
            sight.key or NO_KEY for sight in counted.sightings if sight.topic == counter.topic
        )
        ids = [(key, n) for key, number in numbers.items() for n in range(1, number + 1)]
        deadline = time.monotonic() + _COUNTED_WITHIN_S
        while len(self._counts().sightings) < len(ids) and time.monotonic() < deadline:
            time.sleep(_EVERY_S)
        # Before the state is read: a reader's last message would stop the state's owner.
        counter.end()
        state = drain(self._url, [counter.state], "state", read=_value_of)
        newest = {one.key: int(one.record) for one in state.sightings if one.record}
        return RunHistory(
            records=tuple(
                Record(f"{key}/{n}", _COUNTS, place, key) for place, (key, n) in enumerate(ids)
            ),
            fresh=self._counts(),
            noted=frozenset({_COUNTS} if ids else ()),
            stuck=(counter.failure,) if counter.failure else (),
            tables={
                "state": tuple(
                    f"{key}/{n}" for key, number in newest.items() for n in range(1, number + 1)
                )
            },
        )

    def _counts(self) -> ReaderSightings:
        return drain(self._url, [self._counter.counts], _COUNTS, read=_count_in)


def _count_in(message: Any) -> tuple[str | None, str]:
    return f"{message.partition_key()}/{message.data().decode()}", ""


def _value_of(message: Any) -> tuple[str | None, str]:
    is_mark = _STATE_PROPERTY in message.properties()
    return None if is_mark else message.data().decode(), ""
