"""Runs in processes of their own: drivers that want the same claim at the same time."""

from __future__ import annotations

from epochs import claim

from eos.commit_log import CommitLog
from eos.errors import Fenced


def compete(root, name, rounds, barrier, results):
    """In each round open the log, wait for the others, append a claim; tell who won."""
    for number in range(rounds):
        barrier.wait()
        log = CommitLog.open(root, "orders")
        barrier.wait()
        try:
            outcome = "won", log.append(claim(f"{name}-{number}")).seq
        except Fenced:
            outcome = "fenced", None
        results.put((number, name, log.log_table_id, *outcome))
