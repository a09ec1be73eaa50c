"""Checks of the log's decisions, and of the state at the end: anomalies 12 to 16. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from eos.chaos.checker.history import Decision, ReaderSightings
from eos.chaos.checker.view import TopicPosition, View, position_of
from eos.protocol import BATCH, FINAL, UNFINISHED, State, is_allowed


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
    """Each step must be allowed by the protocol; only a new attempt has a new transaction."""
    last: Decision | None = None
    for decision in decisions:
        source = last.state if last is not None else None
        is_same = last is not None and decision.state is not State.OPEN
        if not is_allowed(source, decision.state):
            before = f"after {_short(last)}" if last is not None else "as the first record"
            yield f"{_short(decision)} came {before}"
        elif last is not None and (last.txn == decision.txn) is not is_same:
            yield f"{_short(decision)} came in transaction {decision.txn} after {_short(last)}"
        last = decision


def _forgotten(view: View) -> Iterator[str]:
    """Epochs that were committed must still be committed in the log, as long as it keeps them."""
    if view.history.decisions is None:
        return
    now = {(d.query, d.epoch): d for d in view.history.decisions}
    done = sorted(d.seq for d in now.values() if d.state in FINAL)
    for decision in view.history.earlier:
        newest = now.get((decision.query, decision.epoch))
        newer = len(done) - bisect_right(done, decision.seq)
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
