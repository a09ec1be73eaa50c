"""Runs the faults of a schedule: waits for each one's time, injects it, holds it, heals it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eos.chaos.checker.history import Operation
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults import FAULTS
from eos.chaos.faults._fault import Proof, Violated
from eos.chaos.schedule import Planned, Schedule

_FIRES_WITHIN_S: Final = 30.0


@dataclass(frozen=True)
class Happened:
    """The result of a planned fault."""

    planned: Planned
    began_at: float
    healed_at: float
    hit: str  # "" if it hit nothing
    error: str = ""  # why it did not begin, or failed
    is_unhealed: bool = False  # failed once begun: the resulting state is unknown
    is_violation: bool = False  # failed because the job did what it must not do


class Nemesis:
    """Injects the faults in a thread, one after the other."""

    def __init__(
        self, schedule: Schedule, target: FaultTarget, tell: Callable[[str], None]
    ) -> None:
        self.happened: list[Happened] = []
        self._schedule = schedule
        self._target = target
        self._tell = tell
        self._begun = {planned.epoch: threading.Event() for planned in schedule.faults}
        self._next = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nemesis", daemon=True)

    def __enter__(self) -> Nemesis:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join(timeout=300)

    def stop(self) -> None:
        """Heal the active fault, and begin no further one."""
        self._over.set()
        # Also wakes the thread while it waits for an epoch that never begins.
        for event in self._begun.values():
            event.set()

    def epoch_begins(self, epoch: int) -> None:
        """Make the faults of this epoch, and of earlier ones, due."""
        for planned, event in self._begun.items():
            if planned <= epoch:
                event.set()

    def may_begin(self, epoch: int) -> bool:
        """Whether all faults of earlier epochs have begun; until then, the job must wait."""
        return all(planned.epoch >= epoch for planned in self._schedule.faults[self._next :])

    @property
    def is_busy(self) -> bool:
        """Whether a fault is active; some need progress of the job meanwhile."""
        return self._next > len(self.happened)

    def join(self, timeout_s: float) -> None:
        """Wait until all faults are healed, up to ``timeout_s`` for each that is left.

        Raises:
            TimeoutError: a fault does not end.
            RuntimeError: a fault could not be healed; the resulting state is unknown.
        """
        # One that can't hit any more waits for as long as it may.
        self._thread.join(timeout_s * max(1, len(self._schedule.faults) - len(self.happened)))
        if self._thread.is_alive():
            raise TimeoutError("a fault does not end")
        unhealed = [f"{one.planned.fault}: {one.error}" for one in self.happened if one.is_unhealed]
        if unhealed:
            raise RuntimeError("not healed: " + "; ".join(unhealed))

    def operations(self) -> list[Operation]:
        """The faults as operations, for the history."""
        return [
            Operation(
                f"fault {one.planned.fault}",
                one.began_at,
                one.healed_at,
                "ok" if one.hit else "fail",
                one.error or one.hit,
            )
            for one in self.happened
        ]

    def _run(self) -> None:
        for number, planned in enumerate(self._schedule.faults):
            self._begun[planned.epoch].wait()
            if self._over.wait(planned.delay_s):
                return
            self._tell(f"fault: {planned}")
            self._next = number + 1  # before it is active: some wait for progress of the job
            self.happened.append(self._carry_out(planned))

    def _carry_out(self, planned: Planned) -> Happened:
        began_at = time.time()
        proof: Proof | None = None
        error, is_violation = "", False
        try:
            with FAULTS[planned.fault].act(self._target) as proof:
                if proof.fired is not None:  # the time to hold it begins when it acts
                    proof.fired.wait(_FIRES_WITHIN_S)
                self._over.wait(planned.hold_s)
        except Exception as failure:  # of any fault: the run continues, and the report has it
            error = f"{type(failure).__name__}: {failure}"
            is_violation = isinstance(failure, Violated)
        healed_at = time.time()
        hit = proof.hit if proof is not None else ""
        self._tell(f"healed: {planned.fault}: {error or hit or 'there was nothing to hit'}")
        # An error before the proof was yielded: it did not begin, so there is nothing to heal.
        is_unhealed = bool(error) and proof is not None
        return Happened(planned, began_at, healed_at, hit, error, is_unhealed, is_violation)
