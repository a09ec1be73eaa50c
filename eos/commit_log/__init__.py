"""The commit log: one small Delta table per sink, written by one driver at a time."""

from eos.commit_log._commit_log import COMPACTION_INTERVAL, Clock, CommitLog
from eos.commit_log._compaction import KEEP_EPOCHS, CompactionReport
from eos.commit_log._log_reader import has_log, list_emptied, list_sinks
from eos.commit_log._repair import RepairableDamage, examine, repair_log
from eos.commit_log.delta_table import StorageProbe, probe_storage
from eos.commit_log.schema import SCHEMA, to_row
from eos.forking import stay_in_process

stay_in_process(CommitLog)

__all__ = [
    "COMPACTION_INTERVAL",
    "KEEP_EPOCHS",
    "SCHEMA",
    "Clock",
    "CommitLog",
    "CompactionReport",
    "RepairableDamage",
    "StorageProbe",
    "examine",
    "has_log",
    "list_emptied",
    "list_sinks",
    "probe_storage",
    "repair_log",
    "to_row",
]
