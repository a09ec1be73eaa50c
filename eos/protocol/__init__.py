"""The commit protocol: records, what they mean, and what to do next. Pure: no I/O, no clock."""

from eos.protocol.actions import (
    Action,
    Answers,
    AppendState,
    AskData,
    AskWitness,
    DataAnswer,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    MarkAnswer,
    StayInDoubt,
    WitnessAnswer,
)
from eos.protocol.checks import MAX_TTL_MS, check_record, check_successor
from eos.protocol.ending import next_action
from eos.protocol.epochs import (
    EpochDecision,
    Run,
    Skip,
    check_follows,
    check_lineage,
    decide_epoch,
    lost_log,
    unfinished_epoch,
)
from eos.protocol.history import History
from eos.protocol.keys import BATCH, check_key, epoch_number, is_streaming
from eos.protocol.poison import find_poison
from eos.protocol.reasons import Reason, ReasonKind
from eos.protocol.record import RECORD_VERSION, UNWRITTEN, LogRecord
from eos.protocol.retention import Thinning, thin
from eos.protocol.states import (
    FINAL,
    OWING,
    TRANSITIONS,
    UNFINISHED,
    WITHOUT_TRANSACTION,
    State,
    Transition,
    diagram,
    is_allowed,
    targets,
)

__all__ = [
    "BATCH",
    "FINAL",
    "MAX_TTL_MS",
    "OWING",
    "RECORD_VERSION",
    "TRANSITIONS",
    "UNFINISHED",
    "UNWRITTEN",
    "WITHOUT_TRANSACTION",
    "Action",
    "Answers",
    "AppendState",
    "AskData",
    "AskWitness",
    "DataAnswer",
    "EndAnswer",
    "EndTransaction",
    "EpochDecision",
    "FindMark",
    "Finished",
    "History",
    "LogRecord",
    "MarkAnswer",
    "Reason",
    "ReasonKind",
    "Run",
    "Skip",
    "State",
    "StayInDoubt",
    "Thinning",
    "Transition",
    "WitnessAnswer",
    "check_follows",
    "check_key",
    "check_lineage",
    "check_record",
    "check_successor",
    "decide_epoch",
    "diagram",
    "epoch_number",
    "find_poison",
    "is_allowed",
    "is_streaming",
    "lost_log",
    "next_action",
    "targets",
    "thin",
    "unfinished_epoch",
]
