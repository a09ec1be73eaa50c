"""What the log decided, and what was left when all was quiet: anomalies 12 to 16. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from chaos.history import Decision
from chaos.view import View, place_of
from eos.transaction import BATCH, FINAL, State

_ENDED = (State.ABORTED, State.COMMITTED, State.EMPTY)


def decision_flips(view: View) -> Iterator[str]:
    """12: two outcomes, or two transactions, for one epoch; or a record that changed."""
    by_seq: dict[int, Decision] = {}
    by_epoch: dict[tuple[str, str], list[Decision]] = defaultdict(list)
    for decision in view.decisions:
        known = by_seq.setdefault(decision.seq, decision)
        if known != decision:
            yield f"record {decision.seq} said {_short(known)}, and then {_short(decision)}"
        by_epoch[decision.query, decision.epoch].append(decision)
    for decisions in by_epoch.values():
        yield from _flips_of(decisions)
    yield from _forgotten(view)


def _flips_of(decisions: list[Decision]) -> Iterator[str]:
    last: Decision | None = None
    outcomes: dict[str, State] = {}
    for decision in decisions:
        if last is not None and last.state in FINAL:
            yield f"{_short(last)} was the end, and then came {_short(decision)}"
        if last is not None and last.txn != decision.txn and last.state not in _ENDED:
            yield f"{_short(last)} was never ended, and then came {_short(decision)}"
        if last is not None and (last.state, decision.state) == (State.PREPARED, State.ABORTING):
            yield f"{_short(last)} was to be committed, and then came {_short(decision)}"
        if decision.state in _ENDED:
            known = outcomes.setdefault(decision.txn, decision.state)
            if known is not decision.state:
                yield f"transaction {decision.txn} ended as {known} and as {decision.state}"
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
    batch = {d.epoch for d in view.decisions if d.query == BATCH}
    done = {int(epoch) for epoch in view.done - batch if epoch.isdecimal()}
    for epoch in range(max(done, default=0)):
        if epoch not in done and (str(epoch) in view.epochs or _was_begun(view, str(epoch))):
            yield f"epoch {epoch} is not done, epoch {max(done)} is"
    noted = view.history.noted
    if noted is None or view.history.decisions is None:
        return
    for text in sorted(noted - view.done):
        yield f"Spark noted epoch {text} as done, the log does not"
    for text in sorted(view.done - batch - noted):
        yield f"the log has epoch {text} as done, Spark's checkpoint does not"


def _was_begun(view: View, epoch: str) -> bool:
    return any(decision.epoch == epoch for decision in view.decisions)


def stuck(view: View) -> Iterator[str]:
    """14: as it was found; and transactions that the log leaves unfinished."""
    yield from view.history.stuck
    newest = {(d.query, d.epoch): d for d in view.decisions}
    for decision in newest.values():
        if decision.state not in _ENDED:
            yield f"{_short(decision)} is the last word, although all is quiet"


def not_idempotent(view: View) -> Iterator[str]:
    """15: the second recovery changed what is readable, or what is decided."""
    history = view.history
    if history.fresh_again is not None:
        before = {(place_of(sight), sight.record) for sight in history.fresh.sights}
        after = {(place_of(sight), sight.record) for sight in history.fresh_again.sights}
        for place, record in sorted(before ^ after, key=str):
            change = "appeared" if (place, record) in after else "disappeared"
            yield f"record {record} at {place} {change}"
    if history.decisions_again is not None:
        known = set(history.decisions or ())
        for decision in sorted(known.symmetric_difference(history.decisions_again)):
            yield f"{_short(decision)} changed"


def _short(decision: Decision) -> str:
    return (
        f"{decision.state} of epoch {decision.epoch} (attempt {decision.attempt}, transaction "
        f"{decision.txn})"
    )
