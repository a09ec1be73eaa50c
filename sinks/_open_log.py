"""Opens a sink's commit log, and refuses to replace a lost log by an empty one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from eos.commit_log import CommitLog, has_log, list_sinks
from eos.committer import wrote_in_run
from eos.errors import EosError
from eos.events import StateChanged, log_state
from eos.protocol import (
    History,
    check_lineage,
    check_not_renamed,
    is_streaming,
    lost_log_error,
)
from eos.retry import attempts
from eos.sinks.options import SinkOptions
from eos.sinks.output import Output
from eos.waiting import parallel_map


def open_log(
    options: SinkOptions,
    outputs: Sequence[Output],
    query_id: str,
    epoch: str,
    run_id: str = "",
    *,
    on_append: Callable[[StateChanged], None] = log_state,
) -> CommitLog:
    """Open the sink's log, for ``epoch`` of a query.

    ``run_id``: the run of the query, if only this process writes its epochs.

    Raises:
        NewLineage: the log does not exist, but the sink or the query has written before.
        ConfigurationError, CommitLogError: as ``CommitLog.open``.
    """
    is_new = not log_is_there(options)
    if is_new:
        _check_not_renamed(options, outputs, query_id, epoch, run_id)
        _check_not_lost(options, outputs, query_id, epoch)
    log = CommitLog.open(
        options.commit_log,
        options.sink_id,
        storage_options=options.storage_options,
        keep_epochs=options.keep_epochs,
        # Otherwise epochs wait until the log is compacted.
        compact_in_background=True,
        on_append=on_append,
    )
    if not is_new and query_id not in log.history.streaming_queries:
        _check_not_renamed(options, outputs, query_id, epoch, run_id)
    return log


def _check_not_lost(
    options: SinkOptions, outputs: Sequence[Output], query_id: str, epoch: str
) -> None:
    check_lineage(History(options.sink_id), query_id, epoch, options.on_new_query)
    if options.on_new_query == "continue":
        return
    traces: list[str] = []
    for attempt in attempts(options.resolve_timeout_s):
        with attempt:
            traces = [trace for output in outputs for trace in output.traces()]
    # Meanwhile another task of the same first epoch may have created the log, and the traces.
    if traces and not log_is_there(options):
        raise lost_log_error(options.commit_log, traces[-1])


def _check_not_renamed(
    options: SinkOptions, outputs: Sequence[Output], query_id: str, epoch: str, run_id: str
) -> None:
    # The query must not have written to the same output with another sink. In the same run it may:
    # one function may have two sinks.
    if not is_streaming(query_id):
        return
    root, storage = options.commit_log, options.storage_options
    others = [name for name in list_sinks(root, storage_options=storage) if name != options.sink_id]
    for other in parallel_map(partial(_log_with, options, query_id), others):
        if other is None or wrote_in_run(other.log_table_id, query_id, run_id):
            continue
        parts = [
            part
            for record in other.records()
            if record.query_id == query_id and record.records
            for part in record.participants
        ]
        if any(output.is_written_by(part) for output in outputs for part in parts):
            check_not_renamed(other.history, query_id, epoch, options.on_new_query)


def _log_with(options: SinkOptions, query_id: str, sink_id: str) -> CommitLog | None:
    """Return another sink's log; None if it can't be read or does not have the query."""
    with contextlib.suppress(EosError):
        log = CommitLog.open_read_only(
            options.commit_log, sink_id, storage_options=options.storage_options
        )
        return log if query_id in log.history.streaming_queries else None
    return None


def log_is_there(options: SinkOptions) -> bool:
    """Whether the sink has a commit log."""
    return has_log(options.commit_log, options.sink_id, storage_options=options.storage_options)
