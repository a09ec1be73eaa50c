"""A driver that dies, or is overtaken, behind each of the ten commit steps: from the code's list.

For workloads that write with eos: the failpoints are in its committer.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

from chaos.faults.fault import Fault, Proof
from chaos.faults.rival import FENCED_WITHIN_S
from chaos.life import Life
from chaos.target import Target
from eos.steps import Step

_REACHED_WITHIN_S: Final = 60.0
_POLL_S: Final = 0.05


def _armed(target: Target, step: Step, action: str) -> Life:
    """Kill the driver; the next life is to ``action`` itself behind ``step``, in mid-stream."""
    count = 1 if step is Step.CLAIM else 2  # a claim is made once in a life
    target.supervisor.arm({"EOS_FAILPOINTS": f"{step.name.lower()}={action}@{count}"})
    before = target.supervisor.kill()
    while (life := target.supervisor.current).number == before.number:
        time.sleep(_POLL_S)
    return life


def _kill_at(step: Step) -> Fault:
    @contextmanager
    def act(target: Target) -> Iterator[Proof]:
        life = _armed(target, step, "kill")
        died = life.await_end(_REACHED_WITHIN_S) and life.exit_code == -signal.SIGKILL
        hit = f"life {life.number}, exit code {life.exit_code}"
        yield Proof(hit if died and not life.was_killed else "")

    text = f"the driver dies behind step {step.number}"
    return Fault(f"kill-at-{step.name.lower()}", "driver", text, act)


def _overtaken_at(step: Step) -> Fault:
    @contextmanager
    def act(target: Target) -> Iterator[Proof]:
        life = _armed(target, step, "stop")
        if not _await_stopped(life):
            yield Proof()
            return
        process = psutil.Process(life.pid)
        with target.supervisor.rival() as (older, younger):
            claim = target.await_claim(younger)
            yield Proof(claim and f"life {older.number} slept, a successor {claim}")
            process.resume()
            older.await_end(FENCED_WITHIN_S)

    text = f"the driver sleeps behind step {step.number} until another one has taken over"
    return Fault(f"overtaken-at-{step.name.lower()}", "rival", text, act)


def _await_stopped(life: Life) -> bool:
    deadline = time.monotonic() + _REACHED_WITHIN_S
    while life.is_alive and time.monotonic() < deadline:
        if psutil.Process(life.pid).status() == psutil.STATUS_STOPPED:
            return True
        time.sleep(_POLL_S)
    return False


FAULTS: Final = (*map(_kill_at, Step), *map(_overtaken_at, Step))
