"""Performs what the protocol decides; sinks and the recovery tools share it."""

from eos.committer.claim import Claim
from eos.committer.committer import Committer
from eos.committer.epoch import EpochResult, PlanWriting, Reports
from eos.committer.open_epoch import OpenEpoch
from eos.committer.participants import Participants

__all__ = [
    "Claim",
    "Committer",
    "EpochResult",
    "OpenEpoch",
    "Participants",
    "PlanWriting",
    "Reports",
]
