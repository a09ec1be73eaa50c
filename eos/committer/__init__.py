"""Performs the protocol's decisions; shared by the sinks and the recovery tools."""

from eos.committer._attempt import OpenAttempt
from eos.committer._call_guard import Policies, wrote_in_run
from eos.committer._claim import Claim
from eos.committer._committer import Committer
from eos.committer._epoch import EpochResult, PartsBegun, PlanWriting, Reports
from eos.committer._multi_process_run import MultiProcessRun
from eos.committer._observer import Observer
from eos.committer.participants import Participants

__all__ = [
    "Claim",
    "Committer",
    "EpochResult",
    "MultiProcessRun",
    "Observer",
    "OpenAttempt",
    "Participants",
    "PartsBegun",
    "PlanWriting",
    "Policies",
    "Reports",
    "wrote_in_run",
]
