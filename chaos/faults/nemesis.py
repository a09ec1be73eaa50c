"""Carries out a schedule: waits for each fault's moment, injects it, holds it, heals it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from eos.chaos.checker.history import Operation
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults import FAULTS
from eos.chaos.faults._fault import Proof
from eos.chaos.schedule import Planned, Schedule

_FIRES_WITHIN_S: Final = 30.0


@dataclass(frozen=True)
class Happened:
    """What became of one planned fault; ``hit`` is "" when there was nothing to hit.

    ``error``: why it did not begin, or, when ``is_unhealed``, what broke while it was in effect or
    was being healed: nobody knows what state it left.
    """

    planned: Planned
    began_at: float
    healed_at: float
    hit: str
    error: str = ""
    is_unhealed: bool = False


class Nemesis:
    """Works through the faults in a thread, one after the other.

    Args:
        tell: gets one line of text for each fault that begins or ends.
    """

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
        """Heal what is in effect, and let no further fault begin."""
        self._over.set()
        for event in self._begun.values():
            event.set()

    def epoch_begins(self, epoch: int) -> None:
        """The driver has this epoch to write: its faults are due, and those of earlier ones."""
        for planned, event in self._begun.items():
            if planned <= epoch:
                event.set()

    def may_begin(self, epoch: int) -> bool:
        """Whether all faults of earlier epochs have begun: the job must not run away from them."""
        return all(planned.epoch >= epoch for planned in self._schedule.faults[self._next :])

    @property
    def is_busy(self) -> bool:
        """Whether a fault is in effect; some need the job to get on meanwhile."""
        return self._next > len(self.happened)

    def join(self, timeout_s: float) -> None:
        """Wait until all faults are healed.

        Raises:
            TimeoutError: one of them does not end.
            RuntimeError: one of them could not be healed; nobody knows what it left behind.
        """
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError("a fault does not end")
        unhealed = [f"{one.planned.fault}: {one.error}" for one in self.happened if one.is_unhealed]
        if unhealed:
            raise RuntimeError("not healed: " + "; ".join(unhealed))

    def operations(self) -> list[Operation]:
        """The faults, for the history."""
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
            self._next = number + 1  # before it is in effect: some wait for the job to get on
            self.happened.append(self._carry_out(planned))

    def _carry_out(self, planned: Planned) -> Happened:
        began_at = time.time()
        proof: Proof | None = None
        error = ""
        try:
            with FAULTS[planned.fault].act(self._target) as proof:
                if proof.fired is not None:
                    proof.fired.wait(_FIRES_WITHIN_S)
                self._over.wait(planned.hold_s)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        healed_at = time.time()
        hit = proof.hit if proof is not None else ""
        self._tell(f"healed: {planned.fault}: {error or hit or 'there was nothing to hit'}")
        is_unhealed = bool(error) and proof is not None
        return Happened(planned, began_at, healed_at, hit, error, is_unhealed)
