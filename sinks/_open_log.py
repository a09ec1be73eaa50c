"""Opening a sink's commit log, and not making an empty one in the place of one that is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from eos.commit_log import CommitLog, has_log, sinks
from eos.committer import wrote_in_run
from eos.errors import EosError
from eos.events import StateChanged, log_state
from eos.parallel import parallel_map
from eos.protocol import (
    History,
    check_lineage,
    check_not_renamed,
    is_streaming,
    lost_log,
)
from eos.retry import attempts
from eos.sinks.options import SinkOptions
from eos.sinks.output import Output


def open_log(
    options: SinkOptions,
    outputs: Sequence[Output],
    query_id: str,
    epoch: str,
    run_id: str = "",
    *,
    on_append: Callable[[StateChanged], None] = log_state,
) -> CommitLog:
    """The log of the sink, for ``epoch`` of a query.

    Args:
        run_id: of the query, where this process alone writes its epochs.

    Raises:
        NewLineage: there is none, and the sink or the query has written before.
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
        keeps_house_beside=True,
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
    # Another task of the same first epoch may have made the log, and its traces, meanwhile.
    if traces and not log_is_there(options):
        raise lost_log(options.commit_log, traces[-1])


def _check_not_renamed(
    options: SinkOptions, outputs: Sequence[Output], query_id: str, epoch: str, run_id: str
) -> None:
    """For a sink that the query has not written with: has it written to the same output with
    another one? In the same run, that is a second sink of one function."""
    if not is_streaming(query_id):
        return
    root, storage = options.commit_log, options.storage_options
    others = [name for name in sinks(root, storage_options=storage) if name != options.sink_id]
    for other in parallel_map(partial(_log_with, options, query_id), others):
        if other is None or wrote_in_run(other.uri, other.sink_id, query_id, run_id):
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
    """Another sink's log, if it knows the query; None, too, when it can't be read."""
    with contextlib.suppress(EosError):
        log = CommitLog.open_read_only(
            options.commit_log, sink_id, storage_options=options.storage_options
        )
        return log if query_id in log.history.streaming_queries else None
    return None


def log_is_there(options: SinkOptions) -> bool:
    """Whether the sink has a commit log."""
    return has_log(options.commit_log, options.sink_id, storage_options=options.storage_options)
