"""Runs in processes of their own: drivers that want the same claim at the same time."""

from __future__ import annotations

from eos.commit_log import CommitLog
from eos.commit_log import _log as log_module
from eos.errors import Fenced
from tests.protocol.epochs import claim


def compete(root, name, rounds, barrier, results):
    """In each round open the log, wait for the others, append a claim; tell who won.

    Compaction comes often, so that decisions fall before, during and after it, and in every second
    round beside them.
    """
    log_module.COMPACTION_INTERVAL = 7
    log = None
    for number in range(rounds):
        barrier.wait()
        # The winner goes on with its handle; whoever was fenced has to open the log again.
        log = log or CommitLog.open(root, "orders", keeps_house_beside=number % 2 == 1)
        barrier.wait()
        try:
            outcome = "won", log.append(claim(f"{name}-{number}")).seq
        except Fenced:
            outcome = "fenced", None
        results.put((number, name, log.log_table_id, *outcome))
        log = None if log.is_fenced else log
