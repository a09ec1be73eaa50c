"""The records of the commit log and what they mean; pure: no Delta, no broker, no clock."""

from eos.transaction.checks import MAX_TTL_MS, check_record, check_successor
from eos.transaction.history import History
from eos.transaction.keys import BATCH, check_key, epoch_number, is_streaming
from eos.transaction.reasons import Reason, ReasonKind
from eos.transaction.record import RECORD_VERSION, UNWRITTEN, LogRecord
from eos.transaction.retention import Thinning, thin
from eos.transaction.states import (
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
    "History",
    "LogRecord",
    "Reason",
    "ReasonKind",
    "State",
    "Thinning",
    "Transition",
    "check_key",
    "check_record",
    "check_successor",
    "diagram",
    "epoch_number",
    "is_allowed",
    "is_streaming",
    "targets",
    "thin",
]
