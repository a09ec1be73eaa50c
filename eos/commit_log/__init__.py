"""The commit log: one small Delta table per sink, written by one driver at a time."""

from eos.commit_log.log import HOUSEKEEPING_INTERVAL, Clock, CommitLog
from eos.commit_log.probe import probe_storage
from eos.commit_log.schema import SCHEMA, to_row
from eos.commit_log.sinks import sinks

__all__ = ["HOUSEKEEPING_INTERVAL", "SCHEMA", "Clock", "CommitLog", "sinks", "to_row"]
