"""Faults by a rival: a second driver, or the recovery tool, for the same sink."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Fault, Proof, pids

FENCED_WITHIN_S: Final = 15.0
"""A driver that was overtaken must notice within this time, or is killed."""


@contextmanager
def _hand_over(target: FaultTarget) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with target.supervisor.rival() as (older, younger):
        with stopped(processes):
            claim = target.await_claim(younger)
            yield Proof(
                claim and f"a successor of driver {older.number} ({pids(processes)}), {claim}"
            )
        older.await_end(FENCED_WITHIN_S)


@contextmanager
def _second_driver(target: FaultTarget) -> Iterator[Proof]:
    with target.supervisor.rival() as (older, younger):
        both = f"drivers {older.number} and {younger.number}"
        claim = target.await_claim(younger)
        if claim:
            yield Proof(f"{both}, {claim}")
        elif (
            not younger.is_alive
        ):  # stopped by the older one through Spark's checkpoint, before the sink
            yield Proof(f"{both}: {younger.last_error() or 'it ended'}")
        else:
            yield Proof()


@contextmanager
def _cli_resolve(target: FaultTarget) -> Iterator[Proof]:
    ended = target.recovery("resolve", "--apply", "--yes")
    yield Proof(f"exit code {ended.returncode}")


FAULTS: Final = (
    Fault(
        "hand-over",
        "rival",
        "SIGSTOP of the driver until a second one has taken over, then SIGCONT",
        _hand_over,
    ),
    Fault("second-driver", "rival", "a second driver at the same time", _second_driver),
    Fault(
        "cli-resolve", "rival", "`eos recovery resolve --apply` while a driver runs", _cli_resolve
    ),
)
