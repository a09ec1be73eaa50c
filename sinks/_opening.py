"""Opening a sink's commit log, and not making an empty one in the place of one that is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from eos.commit_log import CommitLog, has_log
from eos.events import StateChanged, log_state
from eos.protocol import History, check_lineage, lost_log
from eos.retry import attempts
from sinks.options import SinkOptions
from sinks.output import Output


def open_log(
    options: SinkOptions,
    outputs: Sequence[Output],
    query_id: str,
    epoch: str,
    *,
    on_append: Callable[[StateChanged], None] = log_state,
) -> CommitLog:
    """The log of the sink, for ``epoch`` of a query.

    Raises:
        NewLineage: there is none, and the sink or the query has written before.
        ConfigurationError, CommitLogError: as ``CommitLog.open``.
    """
    _check_is_there(options, outputs, query_id, epoch)
    return CommitLog.open(
        options.commit_log,
        options.sink_id,
        storage_options=options.storage_options,
        keep_epochs=options.keep_epochs,
        keeps_house_beside=True,
        on_append=on_append,
    )


def _check_is_there(
    options: SinkOptions, outputs: Sequence[Output], query_id: str, epoch: str
) -> None:
    if log_is_there(options):
        return
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


def log_is_there(options: SinkOptions) -> bool:
    """Whether the sink has a commit log."""
    return has_log(options.commit_log, options.sink_id, storage_options=options.storage_options)
