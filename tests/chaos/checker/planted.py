"""The anomalies planted in the small history: the change, and the expected findings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from eos.chaos.checker.history import (
    AnomalyKind,
    Decision,
    Position,
    ReaderSightings,
    RunHistory,
    Sighting,
)
from eos.protocol import BATCH, State
from tests.chaos.histories import QUERY, TOPIC, numbered

Edit = Callable[[RunHistory], RunHistory]
SightsEdit = Callable[[list[Sighting]], object]


class Planted(NamedTuple):
    """A case. ``also``: other kinds of anomalies caused by the same change."""

    kind: AnomalyKind
    what: str
    edit: Edit
    also: set[AnomalyKind]

    @property
    def name(self) -> str:
        """For the test's id."""
        return f"{self.kind.name.lower()}: {self.what}"


def watcher(edit: SightsEdit) -> Edit:
    """Change the watcher's sightings."""
    return lambda history: replace(history, readers=(_edited(history.readers[0], edit),))


def fresh(edit: SightsEdit) -> Edit:
    """Change the fresh reader's sightings, also after the second recovery."""

    def apply(history: RunHistory) -> RunHistory:
        reader = _edited(history.fresh, edit)
        return replace(history, fresh=reader, fresh_again=reader)

    return apply


def readers(edit: SightsEdit) -> Edit:
    """Change the sightings of all readers."""
    return both(watcher(edit), fresh(edit))


def _edited(reader: ReaderSightings, edit: SightsEdit) -> ReaderSightings:
    sights = list(reader.sightings)
    edit(sights)
    return replace(reader, sightings=tuple(sights))


def table(edit: Callable[[list[str]], list[str | None]]) -> Edit:
    """A table with these errors in its rows."""
    rows = lambda history: [str(sight.record) for sight in history.fresh.sightings]  # noqa: E731
    return lambda history: replace(history, tables={"table": tuple(edit(rows(history)))})


def both(*edits: Edit) -> Edit:
    """Apply several changes."""

    def apply(history: RunHistory) -> RunHistory:
        for edit in edits:
            history = edit(history)
        return history

    return apply


def change(record: str, /, **values: object) -> SightsEdit:
    """Change the values of a message."""

    def edit(sights: list[Sighting]) -> None:
        sights[:] = [s._replace(**values) if s.record == record else s for s in sights]

    return edit


def lose(*records: str) -> SightsEdit:
    """Remove messages."""

    def edit(sights: list[Sighting]) -> None:
        sights[:] = [sight for sight in sights if sight.record not in records]

    return edit


def again(record: str, /, **values: object) -> SightsEdit:
    """Repeat a message at the end, with other values."""

    def edit(sights: list[Sighting]) -> None:
        seen = next(sight for sight in sights if sight.record == record)
        at = sights[-1].at + 1
        sights.append(seen._replace(**{"at": at, "position": Position(7, 9, 0), **values}))

    return edit


def swap(first: str, second: str) -> SightsEdit:
    """Swap two messages of a partition."""

    def edit(sights: list[Sighting]) -> None:
        at = {sight.record: n for n, sight in enumerate(sights)}
        one, two = sights[at[first]], sights[at[second]]
        sights[at[first]] = one._replace(record=second, key=two.key)
        sights[at[second]] = two._replace(record=first, key=one.key)

    return edit


def log(edit: Callable[[list[Decision]], object]) -> Edit:
    """Change the log; the second recovery finds the same."""

    def apply(history: RunHistory) -> RunHistory:
        draft = list(history.decisions or ())
        edit(draft)
        return replace(history, decisions=numbered(draft), decisions_again=numbered(draft))

    return apply


def append(**values: object) -> Edit:
    """Repeat the last record of the log, with other values."""
    return log(lambda draft: draft.append(draft[-1]._replace(**values)))


def uncommitted(epoch: int) -> Edit:
    """The job had to end before an epoch: log and checkpoint do not have it."""

    def drop(draft: list[Decision]) -> None:
        draft[:] = [decision for decision in draft if decision.epoch != str(epoch)]

    def forget(history: RunHistory) -> RunHistory:
        noted = (history.noted or frozenset()) - {str(epoch)}
        return replace(history, noted=noted, is_whole=False)

    return both(log(drop), forget)


def forgotten(*epochs: str) -> Edit:
    """An epoch is missing from the log, the checkpoint and the readers."""

    def forget(history: RunHistory) -> RunHistory:
        left = tuple(d for d in history.decisions or () if d.epoch not in epochs)
        records = [record.id for record in history.records if record.epoch in epochs]
        noted = (history.noted or frozenset()) - {*epochs}
        history = replace(history, decisions=left, decisions_again=left, noted=noted)
        return readers(lose(*records))(history)

    return forget


def with_(**values: object) -> Edit:
    """Replace fields of the history."""
    return lambda history: replace(history, **values)  # type: ignore[arg-type]


def found_again(edit: SightsEdit) -> Edit:
    """Change only the rows that were read after the second recovery."""
    return lambda history: replace(history, fresh_again=_edited(history.fresh, edit))


def _steps(first: Decision, *states: State) -> list[Decision]:
    return [first._replace(state=state) for state in (State.OPEN, *states)]


def _aborted_and_a_batch(draft: list[Decision]) -> None:
    """Epoch 1 was abandoned; a batch job of the same sink was committed with the same key."""
    stream = Decision(0, QUERY, "1", 1, "(0,79)", State.OPEN, 39.0)
    draft += [*_steps(stream, State.ABORTING, State.ABORTED), *_batch("1")]


def _batch(name: str) -> list[Decision]:
    first = Decision(0, BATCH, name, 1, "(0,80)", State.OPEN, 40.0)
    return _steps(first, State.PREPARED, State.COMMITTED)


def _in_txn(txn: str, decisions: list[Decision]) -> list[Decision]:
    return [decision._replace(txn=txn) for decision in decisions]


def _emptied(draft: list[Decision]) -> None:
    """In the log, the last epoch is EMPTY."""
    draft[-2:] = [d._replace(state=s) for d, s in zip(draft[-2:], _EMPTIED, strict=True)]


_EMPTIED = (State.ABORTING, State.EMPTY)


def _without_transaction(epoch: int, state: State) -> Decision:
    return Decision(0, QUERY, str(epoch), 0, str(None), state, 0.5 + epoch * 10)


NAIVE = with_(decisions=None, decisions_again=None)
"""A sink without a log: only Spark's checkpoint says what is done."""

K = AnomalyKind
EPOCH_1 = ("1/0", "1/1", "1/2", "1/3")
EPOCH_2 = ("2/0", "2/1", "2/2", "2/3")
ELSEWHERE = {"topic": TOPIC.format(1), "producer": "p0"}

READING = [
    Planted(K.DUPLICATE, "written twice into one transaction", readers(again("1/2")), set()),
    Planted(K.DUPLICATE, "only the watcher had it twice", watcher(again("1/3")), set()),
    Planted(K.DUPLICATE, "in another partition", readers(again("0/0", **ELSEWHERE)), {K.MISROUTED}),
    Planted(K.DUPLICATE, "by a sink without a log", both(NAIVE, readers(again("2/1"))), set()),
    Planted(K.LOST_WRITE, "one record", readers(lose("0/2")), {K.TORN_EPOCH}),
    Planted(K.LOST_WRITE, "a whole epoch", readers(lose(*EPOCH_2)), set()),
    Planted(K.LOST_WRITE, "by Spark's checkpoint", both(NAIVE, readers(lose(*EPOCH_2))), set()),
    Planted(K.ABORTED_READ, "of a zombie", readers(change("1/0", producer="z")), set()),
    Planted(K.ABORTED_READ, "by the watcher", watcher(change("1/1", producer="z")), set()),
    Planted(K.ABORTED_READ, "of an epoch without a decision", uncommitted(2), set()),
    Planted(
        K.ABORTED_READ,
        "of an epoch that is EMPTY",
        log(_emptied),
        set(),
    ),
    Planted(K.TORN_EPOCH, "half of it", readers(lose("2/0", "2/2")), {K.LOST_WRITE}),
    Planted(K.TORN_EPOCH, "all but one", readers(lose(*EPOCH_2[1:])), {K.LOST_WRITE}),
    Planted(
        K.TORN_EPOCH,
        "of an epoch without a decision",
        both(uncommitted(2), readers(lose("2/0"))),
        {K.ABORTED_READ},
    ),
    Planted(K.EARLY_READ, "before PREPARED", readers(change("0/0", at=1.25)), set()),
    Planted(K.EARLY_READ, "by the watcher", watcher(change("2/3", at=20.0)), set()),
    Planted(
        K.EARLY_READ,
        "of an epoch that was never PREPARED",
        both(log(lambda draft: draft.__delitem__(1)), readers(change("0/0", at=1.35))),
        {K.DECISION_FLIP},
    ),
    Planted(K.EARLY_READ, "before the second attempt's", readers(change("1/2", at=11.2)), set()),
    Planted(
        K.CORRUPT, "damaged", readers(change("2/2", record=None)), {K.LOST_WRITE, K.TORN_EPOCH}
    ),
    Planted(
        K.CORRUPT,
        "never written",
        readers(lambda s: s.append(s[-1]._replace(record="9/9", position=Position(8, 0, 0)))),
        set(),
    ),
    Planted(K.CORRUPT, "damaged once", watcher(change("0/1", record=None)), {K.DISAGREEMENT}),
    Planted(
        K.MISROUTED,
        "in the other partition",
        readers(change("2/0", **ELSEWHERE | {"producer": "p2"}, position=Position(7, 3, 0))),
        {K.SKIP},
    ),
    Planted(K.MISROUTED, "with another key", readers(change("1/0", key="c")), set()),
    Planted(K.MISROUTED, "with a schema", readers(change("1/3", schema_version="2")), set()),
    Planted(K.ORDER, "within an entry", readers(swap("1/0", "1/2")), set()),
    Planted(K.ORDER, "of the other key", readers(swap("0/1", "0/3")), set()),
    Planted(K.ORDER, "by a sink without a log", both(NAIVE, readers(swap("0/0", "2/0"))), set()),
    Planted(K.SKIP, "a skipped record", watcher(lose("1/1")), set()),
    Planted(K.SKIP, "the first ones of a partition", watcher(lose("0/0", "0/2")), set()),
    Planted(K.SKIP, "the last ones of a partition", watcher(lose("2/1", "2/3")), set()),
    Planted(K.SKIP, "nothing seen at all", watcher(lambda s: s.clear()), set()),
    Planted(K.SKIP, "a step back", watcher(lambda s: s.append(s[0]._replace(at=30.0))), set()),
    Planted(K.SKIP, "the same again", fresh(lambda s: s.append(s[-1])), set()),
    Planted(
        K.DISAGREEMENT,
        "another record at one position",
        watcher(change("2/3", record="9/9")),
        {K.CORRUPT},
    ),
    Planted(K.DISAGREEMENT, "another key", watcher(change("0/3", key="x")), {K.MISROUTED}),
    Planted(K.DISAGREEMENT, "two swapped for one reader", watcher(swap("2/1", "2/3")), set()),
    Planted(K.VANISHED, "a committed epoch", fresh(lose(*EPOCH_2)), {K.LOST_WRITE}),
    Planted(K.VANISHED, "one record", fresh(lose("1/0")), {K.LOST_WRITE, K.TORN_EPOCH}),
    Planted(
        K.VANISHED,
        "an epoch without a decision",
        both(uncommitted(2), fresh(lose(*EPOCH_2))),
        {K.ABORTED_READ},
    ),
]

DECIDING = [
    Planted(
        K.DECISION_FLIP,
        "committed, then aborted",
        append(state=State.ABORTED),
        {K.GAP},
    ),
    Planted(K.DECISION_FLIP, "two transactions", append(txn="(0,99)", attempt=2), set()),
    Planted(
        K.DECISION_FLIP,
        "prepared, then aborting",
        log(lambda draft: draft.insert(2, draft[1]._replace(state=State.ABORTING))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "an attempt that was never ended",
        log(lambda draft: draft.__delitem__(slice(4, 6))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "committed, never prepared",
        log(lambda draft: draft.__delitem__(-2)),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "committed without a beginning",
        log(lambda draft: draft.__delitem__(slice(-3, -1))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "committed in another transaction",
        log(lambda draft: draft.append(draft.pop()._replace(txn="(0,99)"))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "the next attempt in the old transaction",
        log(lambda draft: draft.__setitem__(slice(6, 9), _in_txn(draft[3].txn, draft[6:9]))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "a record that changed",
        lambda h: replace(h, earlier=((h.decisions or ())[4]._replace(txn="(0,77)"),)),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "a committed epoch that the log forgot",
        lambda h: replace(uncommitted(0)(h), earlier=h.decisions or (), noted=h.noted),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "a log that is gone",
        lambda h: NAIVE(replace(h, earlier=h.decisions or ())),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "failed without a transaction, when it has one",
        log(lambda draft: draft.insert(1, _without_transaction(0, State.FAILED))),
        set(),
    ),
    Planted(
        K.DECISION_FLIP,
        "abandoned although committed",
        append(state=State.ABANDONED),
        {K.GAP},
    ),
    Planted(
        K.GAP,
        "a failed epoch before a finished one",
        both(
            uncommitted(1),
            log(lambda draft: draft.append(_without_transaction(1, State.FAILED))),
            readers(lose(*EPOCH_1)),
        ),
        set(),
    ),
    Planted(K.GAP, "a missing epoch", both(uncommitted(1), readers(lose(*EPOCH_1))), set()),
    Planted(K.GAP, "the last epoch never came", forgotten("2"), set()),
    Planted(K.GAP, "no epoch ever came", forgotten("0", "1", "2"), set()),
    Planted(K.GAP, "also by Spark's checkpoint", both(forgotten("2"), NAIVE), set()),
    Planted(
        K.GAP,
        "a batch with the same key does not hide it",
        both(forgotten("1"), log(_aborted_and_a_batch), with_(noted=frozenset("02"))),
        {K.LOST_WRITE},
    ),
    Planted(
        K.GAP,
        "Spark has an epoch that only a batch with the same key has",
        both(forgotten("2"), log(lambda d: d.extend(_batch("2"))), with_(noted=frozenset("012"))),
        {K.LOST_WRITE},
    ),
    Planted(K.GAP, "Spark is ahead", with_(noted=frozenset("0123")), set()),
    Planted(K.GAP, "Spark is behind", with_(noted=frozenset("01")), set()),
    Planted(
        K.GAP,
        "undecided before a committed one",
        log(lambda draft: draft.__delitem__(2)),
        {K.STUCK, K.ABORTED_READ},
    ),
    Planted(
        K.STUCK, "a read position", with_(stuck=("t-partition-0 is readable up to 7:1",)), set()
    ),
    Planted(K.STUCK, "an old transaction", with_(stuck=("(0,4) is 99 s old",)), set()),
    Planted(
        K.STUCK,
        "prepared forever",
        both(log(lambda draft: draft.pop()), with_(noted=frozenset("01"), is_whole=False)),
        {K.ABORTED_READ},
    ),
    Planted(K.NOT_IDEMPOTENT, "a loss", found_again(lose("0/0")), set()),
    Planted(K.NOT_IDEMPOTENT, "a gain", found_again(again("0/0")), set()),
    Planted(K.NOT_IDEMPOTENT, "the same twice", found_again(lambda s: s.append(s[-1])), set()),
    Planted(
        K.NOT_IDEMPOTENT,
        "another decision",
        lambda h: replace(h, decisions_again=(h.decisions or ())[:-1]),
        set(),
    ),
    Planted(K.TORN_OUTPUTS, "a row that the table lacks", table(lambda rows: rows[1:]), set()),
    Planted(
        K.TORN_OUTPUTS,
        "a row that the table has twice",
        table(lambda rows: [*rows, rows[0]]),
        set(),
    ),
    Planted(
        K.TORN_OUTPUTS, "a row that is not in the topic", table(lambda rows: [*rows, "9/9"]), set()
    ),
    Planted(K.TORN_OUTPUTS, "a damaged row", table(lambda rows: [None, *rows[1:]]), set()),
]

PLANTED = READING + DECIDING
