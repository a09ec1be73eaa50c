"""A thinned log leads to the same decisions as the whole one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eos.errors import CommitLogError, UnfinishedEpoch
from eos.ids import MessageId
from eos.protocol import (
    BATCH,
    FINAL,
    OWING,
    UNFINISHED,
    UNNAMED,
    EpochDecision,
    History,
    LogRecord,
    Reason,
    ReasonKind,
    State,
    _retention,
    decide_epoch,
    thin,
)
from eos.protocol._retention import KEEP_CLAIMS
from eos.pulsar.part import KIND, PulsarPart, pulsar_part
from tests.protocol.epochs import (
    EMPTY,
    EXPIRED,
    FAILED,
    FIGURES,
    QUERY,
    at,
    changed,
    claim,
    committed_epoch,
    numbered,
    opened,
    step,
)
from tests.support.table_part import KIND as TABLE
from tests.support.table_part import TablePart

CLAIM_KEY = pulsar_part(claim()).key
QUERIES = (QUERY, "7d0e7a52-0000-4b5f-8d0a-1b2c3d4e5f60", BATCH)
OUTPUTS = (
    (pulsar_part(claim()),),
    (TablePart(),),
    (pulsar_part(claim()), TablePart("other")),
)
FEW_CLAIMS = 3
DECIDED = Reason(ReasonKind.DECIDED, "Ada: test data")


def restored(records, keep_epochs=1, horizon=0):
    """The thinned log, and the history that it makes."""
    thinning = thin(records, keep_epochs=keep_epochs, horizon=horizon)
    assert thinning is not None
    return thinning, History.of("orders", thinning.records, horizon=thinning.horizon)


class Drivers:
    """Drivers of one sink, one after another; ``draw`` decides their fate."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.history = History("orders")
        self.records: list[LogRecord] = []
        self.moments = 0  # positions of the receipt topic, and versions of the tables
        self.steps = {
            "claim": self.claim,
            "write": lambda: self.write("prepared", "committed"),
            "write nothing": self.write_nothing,
            "do not finish": lambda: self.write(self.draw(st.sampled_from(["open", "prepared"]))),
            "finish": self.finish,
            "abort": lambda: self.write("aborted"),
            "expire": lambda: self.write("prepared", "expired"),
            "fail": self.fail,
            "give up": self.give_up,
        }
        self.claim()

    def add(self, record: LogRecord) -> LogRecord:
        self.records.append(at(record, self.history.last_seq + 1))
        self.history.append(self.records[-1])
        return self.records[-1]

    def claim(self) -> None:
        parts = self.draw(st.sampled_from(OUTPUTS))
        runs = sum(record.state is State.CLAIMED for record in self.records)
        self.claimed = self.add(replace(claim(f"run-{runs}"), participants=parts))
        self.finish()

    def finish(self) -> None:
        """Every unfinished attempt is ended."""
        for left in self.history.unfinished:
            if left.state is State.OPEN and left.run_id == self.claimed.run_id:
                left = self.end(left, self.draw(st.sampled_from(["prepared", "open"])))
            if left.state in FINAL:
                continue
            if left.state is State.PREPARED:
                # A person's decision is not a commit that the output is known to have.
                reason = self.draw(st.sampled_from([None, None, None, DECIDED]))
                self.add(left.advance(State.COMMITTED, claim=self.claimed, reason=reason))
            else:
                self.end(left, "aborted")

    def moment(self) -> int:
        self.moments += 1
        return self.moments

    def begin(self) -> LogRecord | None:
        """OPEN of a new epoch, or of one that has to run again."""
        query = self.draw(st.sampled_from(QUERIES))
        if query == BATCH:
            name = self.draw(st.sampled_from(["key-", UNNAMED]))
            epoch = f"{name}{len(self.records)}"
        elif any(one.query_id == query for one in self.history.unfinished):
            return None
        else:
            epoch = self.next_epoch(query)
        before = self.history.newest(query, epoch)
        attempt = 1 if before is None else (before.attempt or 0) + 1
        first = opened(self.claimed, epoch, query_id=query, attempt=attempt)
        return self.add(replace(first, participants=tuple(map(self.begun, first.participants))))

    def begun(self, part):
        if isinstance(part, TablePart):
            return replace(part, version=self.moment())
        mark = MessageId(17, self.moment())
        txn = self.draw(st.integers(0, 2))
        begun = pulsar_part(opened(claim(), least=mark.entry))
        return replace(begun, mark_id=mark, txn=begun.txn._replace(most=txn))

    def prepared(self, part):
        if isinstance(part, TablePart):
            return replace(part, files=self.draw(st.integers(0, 2)))
        return replace(part, receipt_id=MessageId(17, self.moment()), partitions=FIGURES)

    def next_epoch(self, query: str) -> str:
        done = self.history.last_committed_epoch(query)
        number = 0 if done is None else done + 1
        passed = {State.ABANDONED}
        if self.draw(st.integers(0, 3)) == 0:
            passed |= OWING  # as an older release did
        while (one := self.history.newest(query, str(number))) and one.state in passed:
            number += 1
        return str(number)

    def write(self, *ends: str) -> None:
        record = self.begin()
        for end in ends if record is not None else ():
            record = self.end(record, end)

    def write_nothing(self) -> None:
        for _ in range(self.draw(st.integers(1, 4))):
            self.write("empty")

    def end(self, record: LogRecord, end: str) -> LogRecord:
        if end == "prepared":
            parts = tuple(map(self.prepared, record.participants))
            if not sum(part.records for part in parts):
                return self.end(record, "empty")
            return self.add(record.advance(State.PREPARED, claim=self.claimed, participants=parts))
        if record.state in FINAL or end == "open":
            return record
        if end == "committed":
            return self.add(step(record, State.COMMITTED, self.claimed))
        reason = {"empty": EMPTY, "aborted": FAILED, "expired": EXPIRED}[end]
        if end == "expired" and len(record.participants) == 1:
            return self.add(step(record, State.ABORTED, self.claimed, reason))
        if record.state is not State.ABORTING:
            record = self.add(step(record, State.ABORTING, self.claimed, reason))
        last = State.EMPTY if end == "empty" else State.ABORTED
        return self.add(step(record, last, self.claimed))

    def fail(self) -> None:
        query = self.draw(st.sampled_from(QUERIES[:2]))
        epoch = self.next_epoch(query)
        if self.history.newest(query, epoch) is None:
            self.add(LogRecord.failed(self.claimed, query_id=query, epoch=epoch, reason=FAILED))

    def give_up(self) -> None:
        for owed in self.history.unwritten[:1]:
            self.add(step(owed, State.ABANDONED, self.claimed, DECIDED))


@st.composite
def logs(draw):
    """Logs that drivers could have written: streaming queries, batch keys, failed attempts."""
    drivers = Drivers(draw)
    for name in draw(st.lists(st.sampled_from(sorted(drivers.steps)), min_size=6, max_size=30)):
        drivers.steps[name]()
    return drivers.records


def decided(history: History, query_id: str, epoch: str) -> EpochDecision | str:
    try:
        return decide_epoch(history, query_id, epoch)
    except UnfinishedEpoch as error:
        return error.message


def newer_receipts(history: History) -> set[str]:
    """Receipts of the log after its last mark: a claim finds them, and must know them."""
    last = history.last_begun(CLAIM_KEY)
    mark = None if last is None else pulsar_part(last).mark_id
    parts = [part for part in history.prepared(CLAIM_KEY) if isinstance(part, PulsarPart)]
    return {part.mark_uuid for part in parts if mark is not None and part.receipt_id > mark}


def assert_same_answers(thinned: History, whole: History, records: list[LogRecord]) -> None:
    """All that callers read from a history, except for epochs without a key: those are forgotten,
    and the records of a stream's epochs that later ones have passed."""
    assert (thinned.last, thinned.last_claim) == (whole.last, whole.last_claim)
    assert thinned.last_written == whole.last_written
    assert (thinned.unfinished, thinned.owing) == (whole.unfinished, whole.owing)
    assert thinned.streaming_queries == whole.streaming_queries
    claims = [record for record in records if record.state is State.CLAIMED]
    for one in claims[-FEW_CLAIMS:]:
        assert thinned.has_claimed(one.run_id)  # else a fenced run would claim again
    for kind in (KIND, TABLE):
        assert Counter(thinned.parts(kind)) == Counter(whole.parts(kind))
    assert newer_receipts(thinned) == newer_receipts(whole)
    for key in {part.key for record in records for part in record.participants}:
        assert thinned.committed(key) == whole.committed(key)
        assert thinned.last_begun(key) == whole.last_begun(key)
        assert thinned.anchors(key) == whole.anchors(key)
    for query_id in QUERIES:
        assert thinned.last_committed_epoch(query_id) == whole.last_committed_epoch(query_id)
    keys = {record.key for record in records if record.key}
    for query_id, epoch in {key for key in keys if not key[1].startswith(UNNAMED)}:
        if whole.newest(query_id, epoch).state is not State.ABANDONED:
            assert thinned.is_done(query_id, epoch) == whole.is_done(query_id, epoch)
        assert thinned.must_skip(query_id, epoch) == whole.must_skip(query_id, epoch)


@settings(max_examples=200, deadline=None)
@given(logs(), st.integers(1, 4), st.integers(1, 4))
def test_a_thinned_log_leads_to_the_same_decisions_as_the_whole_one(records, first, second):
    whole = History.of("orders", records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_retention, "KEEP_CLAIMS", FEW_CLAIMS)
        thinning = thin(records, keep_epochs=first)
        if thinning is None:
            return
        again = thin(thinning.records, keep_epochs=second, horizon=thinning.horizon)
    for one in filter(None, (thinning, again)):
        thinned = History.of("orders", one.records, horizon=one.horizon)
        assert sum(r.seq <= one.horizon for r in one.records) == one.kept
        assert_same_answers(thinned, whole, records)
        for query_id, epoch in {record.key for record in records if record.key}:
            newest = whole.newest(query_id, epoch)
            if newest.state in UNFINISHED:
                assert [r for r in one.records if r.key == newest.key] == [
                    r for r in records if r.key == newest.key
                ]
                continue
            found = thinned.newest(query_id, epoch)
            assert found in (newest, None)
            if epoch.startswith(UNNAMED) or (found is None and whole.must_skip(query_id, epoch)):
                continue  # still skipped, without its figures
            assert decided(thinned, query_id, epoch) == decided(whole, query_id, epoch)


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
        assert final.seq in seqs or final.query_id != BATCH or final.epoch.startswith(UNNAMED)


def run_of(count: int):
    claimed = claim()
    records = [claimed]
    for epoch in range(count):
        records += committed_epoch(claimed, str(epoch))
    return numbered(records), claimed


def test_the_size_of_a_thinned_log_does_not_grow_with_the_epochs():
    sizes = [len(restored(run_of(count)[0], 5)[0].records) for count in (50, 400)]
    assert sizes == [17, 17]


def test_the_size_of_a_thinned_log_does_not_grow_with_the_claims():
    sizes = []
    for runs in (KEEP_CLAIMS, KEEP_CLAIMS + 500):
        records = [claim(f"earlier-{n}") for n in range(runs)] + run_of(50)[0]
        sizes.append(len(restored(numbered(records), 5)[0].records))
    assert sizes == [KEEP_CLAIMS + 16] * 2


def test_the_claim_that_the_newest_epochs_need_stays_behind_any_number_of_claims():
    records, _ = run_of(50)
    later = [claim(f"later-{n}") for n in range(KEEP_CLAIMS)]
    thinning, _ = restored(numbered([*records, *later]), 5)
    assert len(thinning.records) == KEEP_CLAIMS + 17


def test_a_run_that_has_lost_the_sink_does_not_claim_it_again_after_a_retention():
    fenced = claim("run-0")
    _, history = restored(numbered([fenced, *committed_epoch(fenced, "7"), *run_of(50)[0]]), 5)
    assert history.has_claimed("run-0")
    with pytest.raises(CommitLogError, match="claimed the sink before"):
        history.check(at(fenced, history.last_seq + 1))


def empty_epochs(claimed, epochs):
    for epoch in epochs:
        first = opened(claimed, str(epoch))
        aborting = step(first, State.ABORTING, claimed, EMPTY)
        yield from (first, aborting, step(aborting, State.EMPTY, claimed))


def test_the_newest_commit_with_rows_stays_behind_any_number_of_empty_epochs():
    """An older copy of a table is known by it. The newest rows of all are in no output."""
    records, claimed = run_of(2)
    first = opened(claimed, "2")
    expired = step(first, State.PREPARED, claimed)
    again = opened(claimed, "2", attempt=2, least=8)
    aborting = step(again, State.ABORTING, claimed, EMPTY)
    records += [first, expired, step(expired, State.ABORTED, claimed, EXPIRED)]
    records += [again, aborting, step(aborting, State.EMPTY, claimed)]
    for count in (50, 400):
        whole = numbered([*records, *empty_epochs(claimed, range(3, count))])
        thinning, history = restored(whole, 5)
        newest = History.of("orders", whole).committed(CLAIM_KEY)
        assert history.committed(CLAIM_KEY) == newest == records[6].participants
        assert history.last_written == whole[9]
        assert len(thinning.records) == 20


def test_of_attempts_at_the_same_time_the_last_begun_and_the_last_ended_stay():
    """The output has left the sink since. When it comes back, it is compared with both: with the
    last mark, and with the receipts after it."""
    claimed = claim()
    first, second = (
        changed(opened(claimed, f"{UNNAMED}{n}", query_id=BATCH), mark_id=MessageId(17, n))
        for n in (1, 2)
    )
    records = [claimed, first, second]
    for left, receipt, reason in ((second, 3, DECIDED), (first, 4, None)):
        prepared = step(left, State.PREPARED, claimed)
        prepared = changed(prepared, receipt_id=MessageId(17, receipt))
        records += [prepared, step(prepared, State.COMMITTED, claimed, reason)]
    elsewhere = replace(claim("run-3"), participants=(TablePart(),))
    records += [claim("run-2"), elsewhere]
    for epoch in range(50):
        parts = [TablePart(version=epoch + 1)]
        one = replace(opened(claimed, str(epoch)), run_id="run-3", participants=tuple(parts))
        written = [TablePart(version=epoch + 1, files=1)]
        prepared = one.advance(State.PREPARED, claim=elsewhere, participants=written)
        records += [one, prepared, step(prepared, State.COMMITTED, elsewhere)]
    whole = History.of("orders", numbered(records))
    _, history = restored(numbered(records), 5)
    assert history.last_begun(CLAIM_KEY) == whole.last_begun(CLAIM_KEY)
    known = {pulsar_part(first).mark_uuid, pulsar_part(second).mark_uuid}
    assert newer_receipts(history) == newer_receipts(whole) == known


def test_an_epoch_that_a_later_one_has_passed_stays_until_a_person_decides():
    """As in logs that an older release has written."""
    claimed = claim()
    failed = LogRecord.failed(claimed, query_id=QUERY, epoch="0", reason=FAILED)
    written = [one for n in range(1, 50) for one in committed_epoch(claimed, str(n))]
    _, history = restored(numbered([claimed, failed, *written]), 5)
    assert [one.epoch for one in history.owing] == ["0"]


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
