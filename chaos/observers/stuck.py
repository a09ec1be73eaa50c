"""Anomaly 14 as the broker tells it: readers that are held back, transactions past their time."""

from __future__ import annotations

import json
from typing import Final

from eos.chaos.cluster.target import FaultTarget

GRACE_S: Final = 60.0
"""So long after its time to live a transaction may still be there."""


def held_back(target: FaultTarget) -> list[str]:
    """What does not get on although all is quiet, each as a line of text.

    A transaction that is open and young is no fault: a driver that dies between NEW_TXN and OPEN
    leaves an empty one, which expires.
    """
    ended = target.recovery("orphans", "--json")
    try:
        return lines_of(json.loads(ended.stdout))
    except (ValueError, KeyError, TypeError):
        return [f"eos recovery orphans, exit code {ended.returncode}: {ended.stderr[:500]}"]


def lines_of(report: dict[str, list[dict[str, object]]]) -> list[str]:
    """What is wrong, by the report of ``eos recovery orphans --json``."""
    old = [one for one in report["orphans"] if float(str(one["ttl_left_s"])) < -GRACE_S]
    return [
        *(
            f"transaction {one['txn']} is past its time to live: {one['ttl_left_s']} s"
            for one in old
        ),
        *(
            f"{one['topic']} is read to {one['max_read']}: {one['cause']}"
            for one in report["held_back"]
        ),
        *(str(problem) for problem in report["problems"]),
    ]
