"""What to do next, decided from the log and the broker's answers. Pure: no I/O, no clock."""

from eos.coordinator.actions import (
    Action,
    Answers,
    AppendState,
    AskWitness,
    EndAnswer,
    EndTransaction,
    FindMark,
    Finished,
    MarkAnswer,
    StayInDoubt,
    WitnessAnswer,
)
from eos.coordinator.ending import next_action
from eos.coordinator.epochs import EpochDecision, Run, Skip, check_lineage, decide_epoch
from eos.coordinator.poison import StageFacts, find_poison

__all__ = [
    "Action",
    "Answers",
    "AppendState",
    "AskWitness",
    "EndAnswer",
    "EndTransaction",
    "EpochDecision",
    "FindMark",
    "Finished",
    "MarkAnswer",
    "Run",
    "Skip",
    "StageFacts",
    "StayInDoubt",
    "WitnessAnswer",
    "check_lineage",
    "decide_epoch",
    "find_poison",
    "next_action",
]
