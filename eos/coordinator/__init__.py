"""What to do next, decided from the log and the broker's answers. Pure: no I/O, no clock."""

from eos.coordinator.actions import (
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
from eos.coordinator.ending import next_action
from eos.coordinator.epochs import (
    EpochDecision,
    Run,
    Skip,
    check_follows,
    check_lineage,
    decide_epoch,
    lost_log,
    unfinished_epoch,
)
from eos.coordinator.poison import find_poison

__all__ = [
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
    "MarkAnswer",
    "Run",
    "Skip",
    "StayInDoubt",
    "WitnessAnswer",
    "check_follows",
    "check_lineage",
    "decide_epoch",
    "find_poison",
    "lost_log",
    "next_action",
    "unfinished_epoch",
]
