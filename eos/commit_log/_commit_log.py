"""The commit log of one sink: the decisions, in order, of one driver at a time."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from eos.commit_log import corruption
from eos.commit_log._compaction import KEEP_EPOCHS, CompactionReport, compact
from eos.commit_log._log_reader import read_again
from eos.commit_log._log_table import LogTable
from eos.commit_log._position import LogPosition
from eos.commit_log.location import Location
from eos.errors import CommitLogError, ConfigurationError, EosError
from eos.events import StateChanged, log_state
from eos.protocol import RECORD_VERSION, UNFINISHED, History, LogRecord
from eos.waiting import Future, submit

Clock = Callable[[], datetime]

COMPACTION_INTERVAL: Final = 100
"""Appends between two rounds of compaction."""

_AS_IT_WAS: Final = "The log is complete."
_now: Final = partial(datetime.now, UTC)
_log = logging.getLogger(__name__)


class CommitLog:
    """Handle on a sink's log. Opening claims nothing: only the first CLAIMED that it appends does.

    Thread-safe. After ``Fenced`` it stays fenced: open another one.
    """

    def __init__(
        self,
        table: LogTable,
        *,
        clock: Clock,
        is_writable: bool,
        keep_epochs: int = KEEP_EPOCHS,
        compact_in_background: bool = False,
        on_append: Callable[[StateChanged], None] = log_state,
    ) -> None:
        self._position = LogPosition(table, is_writable=is_writable)
        self._clock = clock
        self._is_writable = is_writable
        self._lock = threading.RLock()
        self._keep_epochs = keep_epochs
        self._compact_in_background = compact_in_background
        self._maintenance: Future[None] | None = None
        self._on_append = on_append
        self._reported_seq = self.history.last_seq

    @classmethod
    def open(
        cls,
        root: str | Path,
        sink_id: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        keep_epochs: int = KEEP_EPOCHS,
        compact_in_background: bool = False,
        clock: Clock = _now,
        on_append: Callable[[StateChanged], None] = log_state,
    ) -> CommitLog:
        """Open the sink's log below ``root`` and read it; create it if it does not exist.

        Args:
            root: an absolute path (created with mode 0700 if missing; ``~`` is the home folder) or
                a URL such as ``s3://bucket/prefix``.
            sink_id: the sink.
            storage_options: passed to ``deltalake``; never shown.
            keep_epochs: number of the newest finished epochs that stay in full (``_retention``).
            compact_in_background: in another thread: no append waits, ``await_maintenance`` does.
            clock: gives ``written_at``; UTC.
            on_append: called for each record that this object has appended; its errors are dropped.

        Raises:
            ConfigurationError: a bad sink id or URL.
            CommitLogError: it is broken, or can't be read or created; names the file.
        """
        location = Location(root, sink_id, storage_options)
        table = LogTable.create_or_open(location, sink_id)
        location.warn_if_open_to_others()
        return cls(
            table,
            clock=clock,
            is_writable=True,
            keep_epochs=keep_epochs,
            compact_in_background=compact_in_background,
            on_append=on_append,
        )

    @classmethod
    def open_read_only(
        cls,
        root: str | Path,
        sink_id: str,
        *,
        storage_options: Mapping[str, str] | None = None,
    ) -> CommitLog:
        """Open the sink's log for reading; creates and changes nothing.

        Raises:
            ConfigurationError: the log does not exist, or a bad sink id or URL.
            CommitLogError: it is broken, emptied, or can't be read; names the file.
        """
        location = Location(root, sink_id, storage_options)
        table = LogTable.open_if_exists(location, sink_id)
        if table is None:
            emptied = corruption.empty(location, sink_id)
            if emptied is not None:
                raise emptied
            raise ConfigurationError(
                f"Commit log {location.uri} does not exist.",
                hint="Check commit_log and sink_id; sinks are the folders below commit_log.",
                sink_id=sink_id,
            )
        return cls(table, clock=_now, is_writable=False)

    def __repr__(self) -> str:
        return f"CommitLog({self.uri!r}, last_seq={self.history.last_seq})"

    @property
    def sink_id(self) -> str:
        """The sink whose log this is."""
        return self._position.table.sink_id

    @property
    def uri(self) -> str:
        """Path or URL of the table."""
        return self._position.table.location.uri

    @property
    def log_table_id(self) -> str:
        """Delta's id of the table (a uuid): part of the receipt topic's name."""
        return self._position.table.id

    @property
    def history(self) -> History:
        """The state as of the last append or refresh. Read only: do not append to it."""
        return self._position.history

    @property
    def is_fenced(self) -> bool:
        """Whether another driver has taken over the sink."""
        return self._position.is_fenced

    def records(self) -> list[LogRecord]:
        """Read the table again and return all records in it, in the order of ``seq``.

        Does not change ``history``.

        Raises:
            CommitLogError: the log is broken; names the file.
        """
        return read_again(self._position.table, None)[2]

    def append(self, draft: LogRecord) -> LogRecord:
        """Append a record if no other process has appended since; this is the fence.

        May be interrupted anywhere: the next append, ``resync`` or ``refresh`` finds out whether
        the record is in the log. Appending the epoch's newest record again has no effect.

        Args:
            draft: without ``seq`` and ``written_at``: both are set here.

        Returns:
            The record as it is in the log.

        Raises:
            Fenced: another run has appended. Final for this object.
            CommitLogError: the record must not come next, or the log is broken or unwritable.
            Retriable: the record is not in the log: the store could not be reached, or an abandoned
                append of this run came first. The same or another decision may be appended now.
        """
        with self._lock:
            written = self._append(draft)
            is_new, self._reported_seq = (
                written.seq > self._reported_seq,
                max(self._reported_seq, written.seq),
            )
        if is_new:
            with contextlib.suppress(Exception):  # an observer must not affect an epoch
                self._on_append(StateChanged.of(written, self.history))
        return written

    def _append(self, draft: LogRecord) -> LogRecord:
        self._check_writable()
        _check_version(draft)
        self._position.resync()
        self._position.check_not_fenced()
        existing = self._existing(draft)
        if existing is not None:
            return existing
        now = self._clock().astimezone(UTC)
        written = self._position.write(
            replace(draft, seq=self.history.last_seq + 1, written_at=now)
        )
        if written.state not in UNFINISHED:  # else readers of an open transaction would wait
            self._maintain_when_due(written.run_id)
        return written

    def await_maintenance(self) -> None:
        """Wait for maintenance in the background, if it is running."""
        if self._maintenance is not None:
            self._maintenance.exception()

    def adopt(self, run_id: str) -> None:
        """Append for a run whose claim another process of it has appended, as ``history`` says.

        Of concurrent appends of its processes one wins, and the others get ``Retriable``.
        """
        with self._lock:
            self._position.adopt(run_id)

    def resync(self) -> None:
        """Read the log again if an append was interrupted, before a decision that uses ``history``.

        Raises:
            CommitLogError: as ``refresh``; the outcome stays unknown until the next call.
        """
        with self._lock:
            self._position.resync()

    def refresh(self) -> None:
        """Read the log again, and find out whether another driver has taken over (``is_fenced``).

        Raises:
            CommitLogError: the log is broken, or holds less than before.
        """
        with self._lock:
            self._position.catch_up()

    def refresh_if_moved(self) -> None:
        """As ``refresh``, unless nobody has appended since this handle."""
        with self._lock:
            self._position.catch_up_if_moved()

    def compact(self, *, keep_epochs: int | None = None) -> CompactionReport:
        """Compact now, instead of at the next hundredth append. Claims nothing.

        Raises:
            CommitLogError: the log is broken, or was opened read only; or it failed.
            Retriable: another compaction was running.
        """
        with self._lock:
            self._check_writable()
            keep = self._keep_epochs if keep_epochs is None else keep_epochs
            try:
                report = compact(self._position.table.location, self.sink_id, keep_epochs=keep)
            except EosError:
                raise
            except Exception as error:
                text = self._position.table.location.clean(error)
                raise self._error(f"compaction failed: {text}", hint=_AS_IT_WAS) from None
            self._position.catch_up()
            return report

    def _check_writable(self) -> None:
        if not self._is_writable:
            raise self._error("it was opened read only", hint="Use CommitLog.open.")

    def _existing(self, draft: LogRecord) -> LogRecord | None:
        """Return the newest record of the draft's epoch if it is the same record."""
        key, history = draft.key, self.history
        newest = history.newest(*key) if key else history.last_claim
        same = newest is not None and newest.equals_except_time(replace(draft, seq=newest.seq))
        return newest if same else None

    def _maintain_when_due(self, run_id: str) -> None:
        if self._position.files < COMPACTION_INTERVAL:
            self._maintain(self._position.table.checkpoint_when_due)
            return
        if self._maintenance is not None and not self._maintenance.done():
            return
        self._position.files = 1  # if it fails, the next try is after as many appends
        compaction = partial(self._maintain, partial(self._compact, run_id))
        if not self._compact_in_background:
            compaction()
            return
        self._maintain(partial(self._start_background, compaction))

    def _start_background(self, compaction: Callable[[], None]) -> None:
        # Not a daemon thread: a driver that exits normally waits for it.
        pool = ThreadPoolExecutor(1, thread_name_prefix="eos-log-house")
        self._maintenance = submit(pool, compaction)
        pool.shutdown(wait=False)

    def _compact(self, run_id: str) -> None:
        location = self._position.table.location
        compact(location, self.sink_id, keep_epochs=self._keep_epochs, run_id=run_id)
        self.refresh()

    def _maintain(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            text = self._position.table.location.clean(error)
            _log.warning("Compaction of commit log %s failed: %s", self.uri, text)
            if isinstance(error, CommitLogError):
                # Is it broken? Then later records would be unreadable.
                self.refresh()

    def _error(self, what: str, *, hint: str = "") -> CommitLogError:
        return CommitLogError(f"Commit log {self.uri}: {what}.", hint=hint, sink_id=self.sink_id)


def _check_version(draft: LogRecord) -> None:
    if draft.record_version != RECORD_VERSION:
        raise CommitLogError(
            f"record_version {draft.record_version} is not written by this release.",
            sink_id=draft.sink_id,
        )
