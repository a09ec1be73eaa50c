"""Performs what the protocol decides; sinks and the recovery tools share it."""

from eos.committer._attempt import OpenEpoch
from eos.committer._call_guard import wrote_in_run
from eos.committer._claim import Claim
from eos.committer._committer import Committer
from eos.committer._epoch import EpochResult, PartsBegun, PlanWriting, Reports
from eos.committer._multi_process_run import SharedRun
from eos.committer._observer import Observer
from eos.committer.participants import Participants

__all__ = [
    "Claim",
    "Committer",
    "EpochResult",
    "Observer",
    "OpenEpoch",
    "Participants",
    "PartsBegun",
    "PlanWriting",
    "Reports",
    "SharedRun",
    "wrote_in_run",
]
