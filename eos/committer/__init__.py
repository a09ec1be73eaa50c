"""Performs what the protocol decides; sinks and the recovery tools share it."""

from eos.committer.committer import Committer
from eos.committer.epoch import EpochResult, Plan, Written
from eos.committer.half import Begun, TransactionalHalf
from eos.committer.hold import Hold
from eos.committer.pulsar import PulsarHalf

__all__ = [
    "Begun",
    "Committer",
    "EpochResult",
    "Hold",
    "Plan",
    "PulsarHalf",
    "TransactionalHalf",
    "Written",
]
