"""The commit log: one small Delta table per sink, written by one driver at a time."""

from eos.commit_log._compaction import KEEP_EPOCHS, CompactionReport
from eos.commit_log._log import COMPACTION_INTERVAL, Clock, CommitLog
from eos.commit_log._repair import Mendable, examine, mend
from eos.commit_log._storage_check import StorageProbe, probe_storage
from eos.commit_log.schema import SCHEMA, to_row
from eos.commit_log.sinks import emptied, has_log, sinks
from eos.forking import stay_in_process

stay_in_process(CommitLog)

__all__ = [
    "COMPACTION_INTERVAL",
    "KEEP_EPOCHS",
    "SCHEMA",
    "Clock",
    "CommitLog",
    "CompactionReport",
    "Mendable",
    "StorageProbe",
    "emptied",
    "examine",
    "has_log",
    "mend",
    "probe_storage",
    "sinks",
    "to_row",
]
