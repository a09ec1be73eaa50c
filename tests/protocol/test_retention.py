"""A thinned log leads to the same decisions as the whole one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import CommitLogError
from eos.protocol import BATCH, FINAL, UNFINISHED, UNNAMED, History, State, decide_epoch, thin
from eos.pulsar.part import KIND, pulsar_part
from tests.protocol.epochs import (
    EXPIRED,
    FAILED,
    QUERY,
    at,
    changed,
    claim,
    committed_epoch,
    numbered,
    opened,
    step,
)

CLAIM_KEY = pulsar_part(claim()).key
QUERIES = (QUERY, "7d0e7a52-0000-4b5f-8d0a-1b2c3d4e5f60", BATCH)


def restored(records, keep_epochs=1, horizon=0):
    """The thinned log, and the history that it makes."""
    thinning = thin(records, keep_epochs=keep_epochs, horizon=horizon)
    assert thinning is not None
    return thinning, History.of("orders", thinning.records, horizon=thinning.horizon)


@st.composite
def logs(draw):
    """Logs that two drivers could have written: streaming queries, batch keys, failed attempts."""
    history, runs = History("orders"), 0
    claimed = None
    streaming = {query: 0 for query in QUERIES if query != BATCH}
    records = []

    def add(record):
        records.append(at(record, history.last_seq + 1))
        history.append(records[-1])
        return records[-1]

    for number in range(draw(st.integers(3, 14))):
        if claimed is None or draw(st.integers(0, 4)) == 0:
            runs += 1
            claimed = add(claim(f"run-{runs}"))
            for left in history.unfinished:
                if left.state is State.OPEN:
                    left = add(step(left, State.ABORTING, claimed, FAILED))
                last = State.COMMITTED if left.state is State.PREPARED else State.ABORTED
                reason = None if last is State.COMMITTED else FAILED
                add(step(left, last, claimed, reason))
        query = draw(st.sampled_from(QUERIES))
        epoch = f"key-{number}" if query == BATCH else str(streaming[query])
        if query != BATCH and history.is_done(query, epoch):
            streaming[query] += 1
            epoch = str(streaming[query])
        if any(one.query_id == query and query != BATCH for one in history.unfinished):
            continue
        before = history.newest(query, epoch)
        attempt = before.attempt + 1 if before else 1
        most = draw(st.integers(0, 2))
        first = opened(claimed, epoch, query_id=query, attempt=attempt, least=history.last_seq)
        record = add(changed(first, txn=pulsar_part(first).txn._replace(most=most)))
        end = draw(st.sampled_from(["open", "prepared", "aborted", "expired", "committed"]))
        if end == "open":
            continue
        if end == "aborted":
            aborting = add(step(record, State.ABORTING, claimed, FAILED))
            add(step(aborting, State.ABORTED, claimed))
            continue
        prepared = add(step(record, State.PREPARED, claimed))
        if end == "expired":
            add(step(prepared, State.ABORTED, claimed, EXPIRED))
        elif end == "committed":
            add(step(prepared, State.COMMITTED, claimed))
    return records


@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(1, 4), st.integers(1, 4))
def test_a_thinned_log_leads_to_the_same_decisions_as_the_whole_one(records, first, second):
    whole = History.of("orders", records)
    thinning = thin(records, keep_epochs=first)
    if thinning is None:
        return
    again = thin(thinning.records, keep_epochs=second, horizon=thinning.horizon)
    for one in filter(None, (thinning, again)):
        thinned = History.of("orders", one.records, horizon=one.horizon)
        assert sum(r.seq <= one.horizon for r in one.records) == one.kept
        assert (thinned.last, thinned.last_claim) == (whole.last, whole.last_claim)
        assert thinned.unfinished == whole.unfinished
        assert thinned.anchors(CLAIM_KEY) == whole.anchors(CLAIM_KEY)
        assert thinned.streaming_queries == whole.streaming_queries
        assert thinned.parts(KIND) == whole.parts(KIND)
        for query_id, epoch in {record.key for record in records if record.key}:
            assert thinned.is_done(query_id, epoch) == whole.is_done(query_id, epoch)
            newest = whole.newest(query_id, epoch)
            if newest.state in UNFINISHED:
                assert [r for r in one.records if r.key == newest.key] == [
                    r for r in records if r.key == newest.key
                ]
                continue
            decided = decide_epoch(whole, query_id, epoch)
            found = decide_epoch(thinned, query_id, epoch)
            if whole.is_done(query_id, epoch) and thinned.newest(query_id, epoch) is None:
                assert type(found) is type(decided)  # still skipped, without its figures
            else:
                assert found == decided


@settings(max_examples=100, deadline=None)
@given(logs(), st.integers(1, 4))
def test_the_newest_epochs_stay_whole_and_every_batch_key_stays(records, keep):
    thinning = thin(records, keep_epochs=keep)
    if thinning is None:
        return
    finals = [record for record in records if record.state in FINAL]
    for final in finals[-keep:]:
        assert final in thinning.records
    seqs = {record.seq for record in thinning.records}
    assert {r.seq for r in records if r.seq > thinning.horizon} <= seqs
    for final in finals:
        assert final.query_id != BATCH or final.seq in seqs


def run_of(count: int):
    claimed = claim()
    records = [claimed]
    for epoch in range(count):
        records += committed_epoch(claimed, str(epoch))
    return numbered(records), claimed


def test_the_size_of_a_thinned_log_does_not_grow_with_the_epochs():
    sizes = [len(restored(run_of(count)[0], 5)[0].records) for count in (50, 400)]
    assert sizes == [17, 17]


def test_a_batch_key_stays_forever():
    """Keys have no order, so unlike an old micro-batch a written key can't be inferred."""
    claimed = claim()
    records = [claimed, *committed_epoch(claimed, "2026-11-20", query_id=BATCH)]
    for epoch in range(50):
        records += committed_epoch(claimed, str(epoch))
    thinned, _ = restored(numbered(records), 5)
    assert any(record.key == (BATCH, "2026-11-20") for record in thinned.records)


def test_a_job_without_a_key_is_forgotten_and_owes_nothing():
    claimed = claim()
    failed = opened(claimed, f"{UNNAMED}2", query_id=BATCH)
    aborting = step(failed, State.ABORTING, claimed, FAILED)
    records = [claimed, *committed_epoch(claimed, f"{UNNAMED}1", query_id=BATCH)]
    records += [failed, aborting, step(aborting, State.ABORTED, claimed)]
    history = History.of("orders", numbered(records))
    assert (history.owing, len(history.unwritten)) == ((), 1)
    for epoch in range(50):
        records += committed_epoch(claimed, str(epoch))
    thinned, _ = restored(numbered(records), 5)
    assert all(record.query_id != BATCH for record in thinned.records)


def test_an_epoch_that_is_kept_for_its_coordinator_keeps_its_state():
    """Only its first attempt names a certain coordinator; its second attempt is committed."""
    claimed = claim()
    first = opened(claimed, "0")
    first = changed(first, txn=pulsar_part(first).txn._replace(most=9))
    aborting = step(first, State.ABORTING, claimed, FAILED)
    second = opened(claimed, "0", attempt=2, least=8)
    prepared = step(second, State.PREPARED, claimed)
    records = [claimed, first, aborting, step(aborting, State.ABORTED, claimed)]
    records += [second, prepared, step(prepared, State.COMMITTED, claimed)]
    for epoch in range(1, 5):
        records += committed_epoch(claimed, str(epoch))
    _, history = restored(numbered(records), 2)
    assert 9 in history.anchors(CLAIM_KEY)
    assert history.is_done(QUERY, "0")
    assert history.newest(QUERY, "0").state is State.COMMITTED


def test_nothing_to_drop_is_none():
    records, _ = run_of(5)
    assert thin(records, keep_epochs=5) is None
    thinning, _ = restored(records, 2)
    assert thin(thinning.records, keep_epochs=2, horizon=thinning.horizon) is None


def test_a_history_continues_after_its_horizon_with_the_same_rules():
    records, claimed = run_of(6)
    _, history = restored(records, 2)
    for wrong, why in (
        (opened(claimed, "2"), "committed already"),
        (opened(claim("run-9"), "7"), "claimed by run"),
        (changed(opened(claimed, "7"), receipt_topic="persistent://a/b/c"), "what proves"),
    ):
        with pytest.raises(CommitLogError, match=why):
            history.check(at(wrong, history.last_seq + 1))
    history.append(at(opened(claimed, "6"), history.last_seq + 1))
    assert history.newest(QUERY, "6").state is State.OPEN


@pytest.mark.parametrize("missing", ["at the horizon", "above it"])
def test_a_gap_is_found(missing):
    records, _ = run_of(6)
    thinning, _ = restored(records, 2)
    seq = thinning.horizon if missing == "at the horizon" else thinning.horizon + 1
    left = [record for record in thinning.records if record.seq != seq]
    with pytest.raises(CommitLogError):
        History.of("orders", left, horizon=thinning.horizon)


def test_records_out_of_order_or_of_another_sink_are_refused_below_the_horizon():
    records, _ = run_of(6)
    thinning, _ = restored(records, 2)
    first, second, *rest = thinning.records
    with pytest.raises(CommitLogError, match="it follows seq"):
        History.of("orders", [second, first, *rest], horizon=thinning.horizon)
    with pytest.raises(CommitLogError, match="belongs to sink"):
        History.of("ticks", thinning.records, horizon=thinning.horizon)
