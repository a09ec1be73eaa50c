"""Drivers in separate processes that want the same claim at the same time."""

from __future__ import annotations

from eos.commit_log import CommitLog
from eos.commit_log import _commit_log as log_module
from eos.errors import Fenced
from tests.protocol.epochs import claim


def compete(root, name, rounds, barrier, results):
    """In each round open the log, wait for the others, append a claim; report the winner.

    Compaction runs often, so that decisions fall before, during and after it, and in every second
    round in the background.
    """
    log_module.COMPACTION_INTERVAL = 7
    log = None
    for number in range(rounds):
        barrier.wait()
        # The winner continues with its handle; fenced drivers must open the log again.
        log = log or CommitLog.open(root, "orders", compact_in_background=number % 2 == 1)
        barrier.wait()
        try:
            outcome = "won", log.append(claim(f"{name}-{number}")).seq
        except Fenced:
            outcome = "fenced", None
        results.put((number, name, log.log_table_id, *outcome))
        log = None if log.is_fenced else log
