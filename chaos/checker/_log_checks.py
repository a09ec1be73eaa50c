"""What the log decided, and what was left when all was quiet: anomalies 12 to 16. Pure."""

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
            yield f"record {decision.seq} said {_short(known)}, and then {_short(decision)}"
    for decisions in view.by_epoch.values():
        yield from _flips_of(decisions)
    yield from _forgotten(view)


def _flips_of(decisions: tuple[Decision, ...]) -> Iterator[str]:
    """Each step has to be one of the protocol's, and only a new attempt has a new transaction."""
    last: Decision | None = None
    for decision in decisions:
        source = last.state if last is not None else None
        goes_on = last is not None and decision.state is not State.OPEN
        if not is_allowed(source, decision.state):
            before = f"after {_short(last)}" if last is not None else "without anything before it"
            yield f"{_short(decision)} came {before}"
        elif last is not None and (last.txn == decision.txn) is not goes_on:
            yield f"{_short(decision)} came in transaction {decision.txn} after {_short(last)}"
        last = decision


def _forgotten(view: View) -> Iterator[str]:
    """What was committed once is committed in the log as it is now, as long as it keeps it."""
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
            yield f"{_short(decision)} is not in the log any more"


def gaps(view: View) -> Iterator[str]:
    """13: an epoch before the last one that is done is not; or Spark and the log disagree."""
    last = max((int(epoch) for epoch in view.streamed if epoch.isdecimal()), default=-1)
    begun = {epoch for query, epoch in view.by_epoch if query != BATCH}
    undone = (begun - view.streamed) | (view.epochs.keys() - view.done)
    for epoch in sorted(undone, key=lambda text: (len(text), text)):
        if epoch.isdecimal() and int(epoch) < last:
            yield f"epoch {epoch} is not done, epoch {last} is"
        elif view.history.is_whole and epoch in view.epochs:
            yield f"epoch {epoch} is not done, although the job came to its end"
    noted = view.history.noted
    if noted is None or view.history.decisions is None:
        return
    for text in sorted(noted - view.streamed):
        yield f"Spark noted epoch {text} as done, the log does not"
    for text in sorted(view.streamed - noted):
        yield f"the log has epoch {text} as done, Spark's checkpoint does not"


def stuck(view: View) -> Iterator[str]:
    """14: as it was found; and transactions that the log leaves unfinished."""
    yield from view.history.stuck
    for decisions in view.by_epoch.values():
        if decisions[-1].state in UNFINISHED:
            yield f"{_short(decisions[-1])} is the last word, although all is quiet"


def not_idempotent(view: View) -> Iterator[str]:
    """15: the second recovery changed what is readable, or what is decided."""
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
