"""The commit log of one sink: what was decided, in order, by one driver at a time."""

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

from eos._waiting import Future, submit
from eos.commit_log import corruption
from eos.commit_log._compaction import KEEP_EPOCHS, CompactionReport, compact
from eos.commit_log._position import Head
from eos.commit_log._reading import read_again
from eos.commit_log._table import LogTable
from eos.commit_log.location import Location
from eos.errors import CommitLogError, ConfigurationError, EosError
from eos.events import StateChanged, log_state
from eos.protocol import RECORD_VERSION, UNFINISHED, History, LogRecord

Clock = Callable[[], datetime]

COMPACTION_INTERVAL: Final = 100
"""Appends between two rounds of compaction."""

_AS_IT_WAS: Final = "The log holds what it held."
_now: Final = partial(datetime.now, UTC)
_log = logging.getLogger(__name__)


class CommitLog:
    """Handle on a sink's log. Opening it claims nothing: the first CLAIMED that it appends does.

    Safe to share between threads. After ``Fenced`` it stays fenced: open another one.
    """

    def __init__(
        self,
        table: LogTable,
        *,
        clock: Clock,
        is_writable: bool,
        keep_epochs: int = KEEP_EPOCHS,
        keeps_house_beside: bool = False,
        on_append: Callable[[StateChanged], None] = log_state,
    ) -> None:
        self._head = Head(table, is_writable=is_writable)
        self._clock = clock
        self._is_writable = is_writable
        self._lock = threading.RLock()
        self._keep_epochs = keep_epochs
        self._keeps_house_beside = keeps_house_beside
        self._housekeeping: Future[None] | None = None
        self._on_append = on_append
        self._told = self.history.last_seq

    @classmethod
    def open(
        cls,
        root: str | Path,
        sink_id: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        keep_epochs: int = KEEP_EPOCHS,
        keeps_house_beside: bool = False,
        clock: Clock = _now,
        on_append: Callable[[StateChanged], None] = log_state,
    ) -> CommitLog:
        """Open the sink's log below ``root`` and read it; create it when there is none.

        Args:
            root: an absolute path (made with mode 0700 when missing; ``~`` is the home folder) or
                a URL such as ``s3://bucket/prefix``.
            sink_id: the sink.
            storage_options: as ``deltalake`` takes them; never shown.
            keep_epochs: how many of the newest finished epochs stay in full; older ones are
                dropped but for what a later decision may need (``transaction.retention``).
            keeps_house_beside: compact in another thread, so that no append waits for it; ``rest``
                does.
            clock: gives ``written_at``; UTC.
            on_append: told of each record that this object has appended; what it raises is dropped.

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
            keeps_house_beside=keeps_house_beside,
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
        """Open the sink's log to look at it; creates and changes nothing.

        Raises:
            ConfigurationError: there is no such log, or a bad sink id or URL.
            CommitLogError: it is broken, emptied, or can't be read; names the file.
        """
        location = Location(root, sink_id, storage_options)
        table = LogTable.maybe_open(location, sink_id)
        if table is None:
            emptied = corruption.empty(location, sink_id)
            if emptied is not None:
                raise emptied
            raise ConfigurationError(
                f"there is no commit log {location.uri}.",
                hint="Check commit_log and sink_id; sinks are the folders below commit_log.",
                sink_id=sink_id,
            )
        return cls(table, clock=_now, is_writable=False)

    def __repr__(self) -> str:
        return f"CommitLog({self.uri!r}, last_seq={self.history.last_seq})"

    @property
    def sink_id(self) -> str:
        """The sink whose log this is."""
        return self._head.table.sink_id

    @property
    def uri(self) -> str:
        """Path or URL of the table."""
        return self._head.table.location.uri

    @property
    def log_table_id(self) -> str:
        """Delta's id of the table (a uuid): part of the receipt topic's name."""
        return self._head.table.id

    @property
    def history(self) -> History:
        """What the log says, as of the last append or refresh. To be read, not appended to."""
        return self._head.history

    @property
    def is_fenced(self) -> bool:
        """Whether another driver has taken the sink over."""
        return self._head.is_fenced

    def records(self) -> list[LogRecord]:
        """Read the table again and return every record that is kept, in the order of ``seq``.

        Leaves ``history`` as it is.

        Raises:
            CommitLogError: the log is broken; names the file.
        """
        return read_again(self._head.table, None)[2]

    def append(self, draft: LogRecord) -> LogRecord:
        """Append a record if nobody else has appended since; the fence of the whole design.

        May be interrupted anywhere, by Ctrl-C for example: the next append, ``settle`` or
        ``refresh`` finds out whether the record stands in the log, and goes on from there. To
        append the very record again that is its epoch's newest one is no second append.

        Args:
            draft: without ``seq`` and ``written_at``: both are given here.

        Returns:
            The record as it stands in the log.

        Raises:
            Fenced: somebody else has appended. Final for this object.
            CommitLogError: the record must not come next, or the log is broken or unwritable.
            Retriable: an object store could not be reached, and the record was not there
                afterwards; or an append of ours that had been given up came late, and first.
                The same or another decision may be appended now.
        """
        with self._lock:
            written = self._append(draft)
            is_new, self._told = written.seq > self._told, max(self._told, written.seq)
        if is_new:
            with contextlib.suppress(Exception):  # whoever looks on must not harm an epoch
                self._on_append(StateChanged.of(written, self.history))
        return written

    def _append(self, draft: LogRecord) -> LogRecord:
        self._check_writable()
        _check_version(draft)
        self._head.settle()
        self._head.check_not_fenced()
        standing = self._standing(draft)
        if standing is not None:
            return standing
        now = self._clock().astimezone(UTC)
        written = self._head.take(replace(draft, seq=self.history.last_seq + 1, written_at=now))
        if written.state not in UNFINISHED:  # nobody's readers shall wait for it
            self._keep_house_when_due(written.run_id)
        return written

    def rest(self) -> None:
        """Wait for the housekeeping that is done beside the appends, if any is."""
        if self._housekeeping is not None:
            self._housekeeping.exception()

    def adopt(self, run_id: str) -> None:
        """Append for a run whose claim another process of it has appended, as ``history`` says.

        Processes of one run may append at the same time: each append has one winner, and the others
        get ``Retriable``. Another run's claim fences them all.
        """
        with self._lock:
            self._head.adopt(run_id)

    def settle(self) -> None:
        """Read the log again if an append was broken off, so that its outcome is in ``history``;
        otherwise do nothing. For the beginning of whatever decides by ``history``.

        Raises:
            CommitLogError: as ``refresh``; the outcome stays unknown, and is asked for again.
        """
        with self._lock:
            self._head.settle()

    def refresh(self) -> None:
        """Read the log again. Finds out whether another driver has taken over (``is_fenced``).

        Raises:
            CommitLogError: the log is broken, or holds less than was seen before.
        """
        with self._lock:
            self._head.catch_up()

    def compact(self, *, keep_epochs: int | None = None) -> CompactionReport:
        """Keep house now, instead of at the next hundredth append. Claims nothing.

        Raises:
            CommitLogError: the log is broken, or was opened to be read only; or it failed.
            Retriable: another compaction was at work.
        """
        with self._lock:
            self._check_writable()
            keep = self._keep_epochs if keep_epochs is None else keep_epochs
            try:
                report = compact(self._head.table.location, self.sink_id, keep_epochs=keep)
            except EosError:
                raise
            except Exception as error:
                text = self._head.table.location.clean(error)
                raise self._error(f"compaction failed: {text}", hint=_AS_IT_WAS) from None
            self._head.catch_up()
            return report

    def _check_writable(self) -> None:
        if not self._is_writable:
            raise self._error("it was opened to be read only", hint="Use CommitLog.open.")

    def _standing(self, draft: LogRecord) -> LogRecord | None:
        """The newest record of what ``draft`` is about, when it is that very record."""
        key, history = draft.key, self.history
        newest = history.newest(*key) if key else history.last_claim
        same = newest is not None and newest.equals_except_time(replace(draft, seq=newest.seq))
        return newest if same else None

    def _keep_house_when_due(self, run_id: str) -> None:
        if self._head.files < COMPACTION_INTERVAL:
            self._keep_house(self._head.table.checkpoint_when_due)
            return
        if self._housekeeping is not None and not self._housekeeping.done():
            return
        self._head.files = 1  # should it fail, the next round is as far away again
        compaction = partial(self._keep_house, partial(self._compact, run_id))
        if not self._keeps_house_beside:
            compaction()
            return
        self._keep_house(partial(self._begin_beside, compaction))

    def _begin_beside(self, compaction: Callable[[], None]) -> None:
        # No daemon's thread: a driver that ends in order waits for it.
        pool = ThreadPoolExecutor(1, thread_name_prefix="eos-log-house")
        self._housekeeping = submit(pool, compaction)
        pool.shutdown(wait=False)

    def _compact(self, run_id: str) -> None:
        location = self._head.table.location
        compact(location, self.sink_id, keep_epochs=self._keep_epochs, run_id=run_id)
        self.refresh()

    def _keep_house(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            text = self._head.table.location.clean(error)
            _log.warning("compaction of commit log %s failed: %s", self.uri, text)
            if isinstance(error, CommitLogError):
                # Is it broken? Nobody after us could read what we would go on to write.
                self.refresh()

    def _error(self, what: str, *, hint: str = "") -> CommitLogError:
        return CommitLogError(f"commit log {self.uri}: {what}.", hint=hint, sink_id=self.sink_id)


def _check_version(draft: LogRecord) -> None:
    if draft.record_version != RECORD_VERSION:
        raise CommitLogError(
            f"record_version {draft.record_version} is not written by this release.",
            sink_id=draft.sink_id,
        )
