"""The state of a sink: built from its log record by record, in the order of ``seq``.

The rules about several records: no gap, one writing run, one witness, a query's epochs in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from eos.protocol._part import Part, Stage
from eos.protocol._record import UNNAMED, LogRecord, epoch_number, is_streaming
from eos.protocol._record_checks import check_record, check_successor, refused, stage_of
from eos.protocol._states import FINAL, OWING, UNFINISHED, State

ParticipantKey = tuple[str, str]
"""Its kind and its identity; the key of an epoch's records is (query id, epoch)."""


class History:
    """The state of one sink according to its commit log. Grows only by ``append``."""

    def __init__(self, sink_id: str) -> None:
        self.sink_id = sink_id
        self._last: LogRecord | None = None
        self._last_claim: LogRecord | None = None
        self._last_written: LogRecord | None = None
        self._run_ids: set[str] = set()
        self._named: dict[ParticipantKey, LogRecord] = {}
        self._last_begun: dict[ParticipantKey, LogRecord] = {}
        self._committed: dict[ParticipantKey, dict[bool, LogRecord]] = {}
        self._anchors: dict[ParticipantKey, dict[int | str, LogRecord]] = {}
        self._newest: dict[tuple[str, str], LogRecord] = {}
        self._unfinished: dict[tuple[str, str], LogRecord] = {}
        self._owing: dict[tuple[str, str], LogRecord] = {}
        self._last_committed: dict[str, int] = {}
        self._streaming_queries: set[str] = set()

    @classmethod
    def of(cls, sink_id: str, records: Iterable[LogRecord], *, horizon: int = 0) -> History:
        """Build the history of ``records``, which are in the order of their ``seq``.

        Args:
            horizon: up to this ``seq`` records may be missing (``_retention``).

        Raises:
            CommitLogError: see ``check`` and ``replay``.
        """
        history = cls(sink_id)
        for record in records:
            history.replay(record, horizon=horizon)
        return history

    @property
    def last_seq(self) -> int:
        """``seq`` of the newest record; 0 for an empty log."""
        return self._last.seq if self._last else 0

    @property
    def last(self) -> LogRecord | None:
        """The newest record of all."""
        return self._last

    @property
    def last_claim(self) -> LogRecord | None:
        """The newest CLAIMED: the run that may append."""
        return self._last_claim

    def has_claimed(self, run_id: str) -> bool:
        """Whether the run has claimed the sink, as far as the log still has the record."""
        return run_id in self._run_ids

    @property
    def last_written(self) -> LogRecord | None:
        """The newest record that counts rows; None if no rows were written."""
        return self._last_written

    def parts(self, kind: str) -> tuple[Part, ...]:
        """The newest part of each participant of one kind, unordered."""
        return _parts((key, one) for key, one in self._named.items() if key[0] == kind)

    def last_begun(self, key: ParticipantKey) -> LogRecord | None:
        """A record of the attempt that a participant has begun last; None if it has begun none.

        Later commits in the output show that the log was rolled back.
        """
        return self._last_begun.get(key)

    def committed(self, key: ParticipantKey) -> tuple[Part, ...]:
        """The participant's parts that its output should have: of the newest committed attempt, and
        of the newest one with rows. A person's decision does not count: it proves nothing."""
        newest = self._committed.get(key, {})
        # Mostly the same record: an output is asked about it once.
        return _parts((key, one) for one in {one.seq: one for one in newest.values()}.values())

    def anchors(self, key: ParticipantKey) -> frozenset[int | str]:
        """Needed after an attempt's end, for example Pulsar's coordinators; see ``Part``."""
        return frozenset(self._anchors.get(key, ()))

    @property
    def streaming_queries(self) -> frozenset[str]:
        """Ids of the streaming queries that opened a transaction."""
        return frozenset(self._streaming_queries)

    @property
    def evidence(self) -> Iterator[LogRecord]:
        """The records that ``last_claim``, ``last_written`` and its answers about participants are
        taken from; a record may come several times."""
        yield from filter(None, (self._last_claim, self._last_written))
        yield from (*self._named.values(), *self._last_begun.values())
        for committed in self._committed.values():
            yield from committed.values()
        for anchored in self._anchors.values():
            yield from anchored.values()

    @property
    def unfinished(self) -> tuple[LogRecord, ...]:
        """Newest record of each epoch with an attempt that recovery must end, by ``seq``."""
        return tuple(sorted(self._unfinished.values(), key=lambda record: record.seq))

    @property
    def owing(self) -> tuple[LogRecord, ...]:
        """Newest record of each epoch that failed or was aborted and must run again, by ``seq``:
        ``UnfinishedEpoch`` refuses the later ones of its query. It has no attempt in flight."""
        return tuple(one for one in self.unwritten if not str(one.epoch).startswith(UNNAMED))

    @property
    def unwritten(self) -> tuple[LogRecord, ...]:
        """As ``owing``, with those of jobs without a key, which nobody can run again."""
        return tuple(sorted(self._owing.values(), key=lambda record: record.seq))

    def newest(self, query_id: str, epoch: str) -> LogRecord | None:
        """The newest record of an epoch, which is its state; None without one."""
        return self._newest.get((query_id, epoch))

    def prepared(self, key: ParticipantKey) -> tuple[Part, ...]:
        """The participant's parts of all epochs whose newest attempt was PREPARED."""
        newest = (one for one in self._newest.values() if stage_of(one) is Stage.PREPARED)
        return _parts((key, one) for one in newest)

    def last_committed_epoch(self, query_id: str) -> int | None:
        """Highest epoch of a streaming query that is COMMITTED or EMPTY."""
        return self._last_committed.get(query_id)

    def is_done(self, query_id: str, epoch: str) -> bool:
        """Whether an epoch must be skipped: it is COMMITTED or EMPTY, or it has no record and its
        query has such an epoch at or above it.

        Raises:
            ValueError: a streaming query's ``epoch`` is not a plain number.
        """
        newest = self.newest(query_id, epoch)
        if newest is not None:
            return newest.state in FINAL
        if not is_streaming(query_id):
            return False
        # Its record may have been dropped: a stream's epochs are written in order.
        return epoch_number(query_id, epoch) <= self._last_committed.get(query_id, -1)

    def must_skip(self, query_id: str, epoch: str) -> bool:
        """Whether an epoch is done; or a later one of its query is, and it has no unfinished
        attempt: it was given up, and can't be written any more.

        Raises:
            ValueError: as ``is_done``.
        """
        newest = self.newest(query_id, epoch)
        if not is_streaming(query_id) or (newest is not None and newest.state in UNFINISHED):
            return self.is_done(query_id, epoch)
        return epoch_number(query_id, epoch) <= self._last_committed.get(query_id, -1)

    def check(self, record: LogRecord) -> None:
        """Check that ``record`` may come next.

        Raises:
            CommitLogError: it leaves a gap, breaks a rule of ``check_record`` or
                ``check_successor``, comes from a run without the claim, names another witness, or
                opens an epoch out of turn.
        """
        if record.sink_id != self.sink_id:
            raise refused(record, f"it belongs to sink {record.sink_id!r}, not {self.sink_id!r}")
        if record.seq != self.last_seq + 1:
            raise refused(record, f"expected seq {self.last_seq + 1}, found {record.seq}")
        check_record(record)
        self._check_run(record)
        self._check_witness(record)
        if record.state is not State.CLAIMED:
            check_successor(self._newest.get(record.key) if record.key else None, record)
        if record.state is State.OPEN:
            self._check_turn(record)

    def append(self, record: LogRecord) -> None:
        """Add ``record`` after ``check``; on an error nothing changes; raises as ``check``."""
        self.check(record)
        self._add(record)

    def replay(self, record: LogRecord, *, horizon: int) -> None:
        """Add a record read from a log whose records up to ``horizon`` were thinned.

        Raises:
            CommitLogError: see ``check``; at or below the horizon, only rules that do not depend on
                dropped records are checked.
        """
        if record.seq > horizon:
            if self.last_seq < horizon:
                raise refused(record, f"the record at the horizon, seq {horizon}, is missing")
            self.append(record)
            return
        if record.sink_id != self.sink_id:
            raise refused(record, f"it belongs to sink {record.sink_id!r}, not {self.sink_id!r}")
        if record.seq <= self.last_seq:
            raise refused(record, f"it follows seq {self.last_seq}")
        check_record(record)
        self._check_witness(record)
        self._add(record)

    def has_query(self, query_id: str) -> bool:
        """Whether there is a record of the query: also one that failed before an attempt."""
        return any(known == query_id for known, _ in self._newest)

    def _add(self, record: LogRecord) -> None:
        self._last = record
        for part in record.participants:
            self._add_part(record, part)
        if record.state is State.CLAIMED:
            self._last_claim = record
            self._run_ids.add(record.run_id)
        else:
            self._add_epoch(record)

    def _add_part(self, record: LogRecord, part: Part) -> None:
        self._named[part.key] = record
        self._anchors.setdefault(part.key, {}).update(dict.fromkeys(part.anchors, record))
        if part.begun_at is None:
            return
        # The end of an older attempt may be recorded after the begin of a newer one.
        if _follows(part, self._last_begun.get(part.key)):
            self._last_begun[part.key] = record
        if record.state is State.COMMITTED and record.reason is None:
            newest = self._committed.setdefault(part.key, {})
            for with_rows in {False, bool(part.records)}:
                if _follows(part, newest.get(with_rows)):
                    newest[with_rows] = record

    def _add_epoch(self, record: LogRecord) -> None:
        key = record.key
        assert key is not None
        query_id, epoch = key
        self._newest[key] = record
        if record.records:  # the number of its rows
            self._last_written = record
        for states, epochs in ((UNFINISHED, self._unfinished), (OWING, self._owing)):
            if record.state in states:
                epochs[key] = record
            else:
                epochs.pop(key, None)
        if is_streaming(query_id):
            if record.attempt is not None:  # FAILED has none, nor ABANDONED after it
                self._streaming_queries.add(query_id)
            if record.state in FINAL:
                number = epoch_number(query_id, epoch)
                last = self._last_committed.get(query_id, -1)
                self._last_committed[query_id] = max(last, number)

    def _check_witness(self, record: LogRecord) -> None:
        for part in record.participants:
            known = next(iter(self.parts(part.kind)), None) if part.can_expire else None
            if known is not None and known.identity != part.identity:
                raise refused(record, f"what proves the outcomes of this log is {known.identity}")

    def _check_run(self, record: LogRecord) -> None:
        if record.state is State.CLAIMED:
            if self.has_claimed(record.run_id):
                raise refused(record, f"run {record.run_id} claimed the sink before")
        elif self._last_claim is None:
            raise refused(record, "no run has claimed the sink")
        elif record.run_id != self._last_claim.run_id:
            raise refused(record, f"the sink is claimed by run {self._last_claim.run_id}")

    def _check_turn(self, record: LogRecord) -> None:
        assert record.query_id is not None
        assert record.epoch is not None
        for other in self._unfinished.values():
            if other.run_id != record.run_id:
                raise refused(record, f"epoch {other.epoch} of an earlier run is unfinished")
            if is_streaming(record.query_id) and other.query_id == record.query_id:
                raise refused(record, f"epoch {other.epoch} of the query is unfinished")
        if is_streaming(record.query_id):
            last = self._last_committed.get(record.query_id, -1)
            if epoch_number(record.query_id, record.epoch) <= last:
                raise refused(record, f"epoch {last} of the query is committed already")


def _parts(records: Iterable[tuple[ParticipantKey, LogRecord]]) -> tuple[Part, ...]:
    return tuple(filter(None, (record.part(key) for key, record in records)))


def _follows(part: Part, last: LogRecord | None) -> bool:
    """Whether a part of a later record was begun with that in ``last``, or later."""
    before = None if last is None else last.part(part.key)
    if before is None or before.begun_at is None or before.begun_in != part.begun_in:
        return True
    return part.begun_at is not None and part.begun_at >= before.begun_at
