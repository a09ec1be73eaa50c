"""The commit log of one sink: what was decided, in order, by one driver at a time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from deltalake.exceptions import CommitFailedError

from eos.commit_log import damage
from eos.commit_log.disk import NotDurable
from eos.commit_log.housekeeping import KEEP_EPOCHS, CompactionReport, keep_house
from eos.commit_log.location import Location
from eos.commit_log.reading import at, read_again, read_history
from eos.commit_log.table import LogTable
from eos.errors import CommitLogError, ConfigurationError, Fenced
from eos.transaction import UNFINISHED, History, LogRecord, State

Clock = Callable[[], datetime]

HOUSEKEEPING_INTERVAL: Final = 100
"""Appends between two rounds of housekeeping."""

_TRIES: Final = 3
_DOUBTFUL_APPEND_S: Final = 20.0
_now: Final = partial(datetime.now, UTC)
_log = logging.getLogger(__name__)


class CommitLog:
    """Handle on a sink's log. Opening it claims nothing: the first CLAIMED that it appends does.

    Safe to share between threads. After ``Fenced`` it stays fenced: open another one.
    """

    def __init__(
        self, table: LogTable, *, clock: Clock, is_writable: bool, keep_epochs: int = KEEP_EPOCHS
    ) -> None:
        self._table = table
        self._clock = clock
        self._is_writable = is_writable
        self._lock = threading.RLock()
        self._own_runs: set[str] = set()
        self._fenced: str | None = None
        self._is_unsettled = False
        self._keep_epochs = keep_epochs
        self._history, _ = read_history(table)
        self._loose_files = table.loose_files

    @classmethod
    def open(
        cls,
        root: str | Path,
        sink_id: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        keep_epochs: int = KEEP_EPOCHS,
        clock: Clock = _now,
    ) -> CommitLog:
        """Open the sink's log below ``root`` and read it; create it when there is none.

        Args:
            root: a folder (made with mode 0700 when missing) or a URL such as
                ``s3://bucket/prefix``.
            sink_id: the sink.
            storage_options: as ``deltalake`` takes them; never shown.
            keep_epochs: how many of the newest finished epochs stay in full; older ones are
                dropped but for what a later decision may need (``transaction.retention``).
            clock: gives ``written_at``; UTC.

        Raises:
            ConfigurationError: a bad sink id or URL.
            CommitLogError: it is broken, or can't be read or created; names the file.
        """
        location = Location(root, sink_id, storage_options)
        table = LogTable.create_or_open(location, sink_id)
        return cls(table, clock=clock, is_writable=True, keep_epochs=keep_epochs)

    @classmethod
    def open_read_only(
        cls,
        root: str | Path,
        sink_id: str,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> CommitLog:
        """Open the sink's log to look at it; creates and changes nothing.

        Raises:
            ConfigurationError: there is no such log, or a bad sink id or URL.
            CommitLogError: it is broken; names the file.
        """
        location = Location(root, sink_id, storage_options)
        table = LogTable.maybe_open(location, sink_id)
        if table is None:
            raise ConfigurationError(
                f"there is no commit log {location.uri}.",
                hint="Check commit_log and sink_id; sinks are the folders below commit_log.",
                sink_id=sink_id,
            )
        return cls(table, clock=_now, is_writable=False)

    def __repr__(self) -> str:
        return f"CommitLog({self.uri!r}, last_seq={self._history.last_seq})"

    @property
    def sink_id(self) -> str:
        """The sink whose log this is."""
        return self._table.sink_id

    @property
    def uri(self) -> str:
        """Path or URL of the table."""
        return self._table.location.uri

    @property
    def log_table_id(self) -> str:
        """Delta's id of the table (a uuid): part of the receipt topic's name."""
        return self._table.id

    @property
    def history(self) -> History:
        """What the log says, as of the last append or refresh. To be read, not appended to."""
        return self._history

    @property
    def is_fenced(self) -> bool:
        """Whether another driver has taken the sink over."""
        return bool(self._fenced)

    def records(self) -> list[LogRecord]:
        """Read the table again and return every record that is kept, in the order of ``seq``.

        Leaves ``history`` as it is.

        Raises:
            CommitLogError: the log is broken; names the file.
        """
        return read_again(self._table, None)[2]

    def append(self, draft: LogRecord) -> LogRecord:
        """Append a record if nobody else has appended since; the fence of the whole design.

        Args:
            draft: without ``seq`` and ``written_at``: both are given here.

        Returns:
            The record as it stands in the log.

        Raises:
            Fenced: somebody else has appended. Final for this object.
            CommitLogError: the record must not come next, or the log is broken or unwritable.
            Retriable: an object store could not be reached, and the record was not there
                afterwards. The same or another decision may be appended now.
        """
        with self._lock:
            self._check_may_append()
            now = self._clock().astimezone(UTC)
            record = replace(draft, seq=self._history.last_seq + 1, written_at=now)
            self._history.check(record)
            if record.state is State.CLAIMED:
                self._own_runs.add(record.run_id)
            written = self._write(record)
            if self._history.last_seq < written.seq:
                self._history.append(written)
            self._loose_files += 1
            if written.state not in UNFINISHED:  # nobody's readers shall wait for it
                self._keep_house()
            return written

    def refresh(self) -> None:
        """Read the log again. Finds out whether another driver has taken over (``is_fenced``).

        Raises:
            CommitLogError: the log is broken, or holds less than was seen before.
        """
        with self._lock:
            self._reread()

    def compact(self, *, keep_epochs: int | None = None) -> CompactionReport:
        """Keep house now, instead of at the next hundredth append. Claims nothing.

        Raises:
            CommitLogError: the log is broken, or was opened to be read only.
            Retriable: another housekeeper was at work.
        """
        with self._lock:
            self._check_writable()
            keep = self._keep_epochs if keep_epochs is None else keep_epochs
            report = keep_house(self._table.location, self.sink_id, keep_epochs=keep)
            self._reread()
            return report

    def _check_writable(self) -> None:
        if not self._is_writable:
            raise self._error("it was opened to be read only", hint="Use CommitLog.open.")

    def _check_may_append(self) -> None:
        self._check_writable()
        if self._fenced is not None:
            raise Fenced(self._fenced, sink_id=self.sink_id)
        if self._is_unsettled:
            raise self._error(
                "the outcome of an append before is unknown",
                hint="Refresh or open the log again: reading it tells.",
            )

    def _write(self, record: LogRecord) -> LogRecord:
        """Commit ``record``; after any error, only what the table then holds counts."""
        for _ in range(_TRIES):
            started = time.monotonic(), time.time()
            cause: Exception | None = None
            try:
                self._table.append(record)
            except NotDurable as error:
                # Written, but who knows for how long; a second try would only hide that.
                raise self._unsettled(record, error) from error
            except Exception as error:
                cause = error
            elapsed_s = max(time.monotonic() - started[0], time.time() - started[1])
            # A process may be stopped for days in mid-append. Delta files of that age are cleaned
            # away, and with them what a stale commit would conflict with: trust no old success.
            if cause is None and elapsed_s < _DOUBTFUL_APPEND_S:
                return record
            found = self._settle(record)
            if found is not None:
                return found
            if not isinstance(cause, CommitFailedError):
                break
        where = self._table.location
        shown = where.cause(cause) if cause else None
        raise damage.not_written(where, record, cause) from shown

    def _settle(self, record: LogRecord) -> LogRecord | None:
        """Look what stands at the record's place: itself, nothing (None), or another's."""
        try:
            records = self._reread()
            if self._table.position < record.seq:
                return None
            # Dropped since: then others have gone on for long, and it is theirs.
            found = at(records, record.seq)
            if found is not None and not found.says_the_same(record):
                found = None
            if found is not None:
                self._table.make_durable()
        except CommitLogError:
            self._is_unsettled = True
            raise
        except Exception as error:
            raise self._unsettled(record, error) from None
        if found is not None and self._table.position == record.seq:
            return found
        raise self._fence(records[-1]) from None

    def _reread(self) -> list[LogRecord]:
        """A fresh handle, everything read, and compared with what was known before."""
        known = self._history.last
        table, history, records = read_again(self._table, known)
        self._table, self._history = table, history
        self._loose_files = table.loose_files
        self._is_unsettled = False
        seen = known.seq if known else 0
        for record in records:
            if record.seq > seen and self._own_runs and record.run_id not in self._own_runs:
                self._fence(record)
        return records

    def _unsettled(self, record: LogRecord, error: Exception) -> CommitLogError:
        self._is_unsettled = True
        return damage.unsettled(self._table.location, record, error)

    def _fence(self, record: LogRecord) -> Fenced:
        if self._fenced is None:
            self._fenced = (
                f"run {record.run_id} has appended {record.state.value} at seq {record.seq} "
                f"({record.written_at})."
            )
        return Fenced(self._fenced, sink_id=self.sink_id)

    def _keep_house(self) -> None:
        try:
            if self._loose_files < HOUSEKEEPING_INTERVAL:
                self._table.checkpoint_when_due()
                return
            self._loose_files = 1  # should it fail, the next round is as far away again
            keep_house(self._table.location, self.sink_id, keep_epochs=self._keep_epochs)
            self._reread()
        except Exception as error:
            text = self._table.location.clean(error)
            _log.warning("housekeeping of commit log %s failed: %s", self.uri, text)

    def _error(self, what: str, *, hint: str = "") -> CommitLogError:
        return CommitLogError(f"commit log {self.uri}: {what}.", hint=hint, sink_id=self.sink_id)
