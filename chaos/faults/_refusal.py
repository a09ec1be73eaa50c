"""What a driver finds at its start and has to refuse, until it is put right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eos.chaos.cluster.target import FaultTarget

_ENDS_WITHIN_S: Final = 240.0


def refused(
    target: FaultTarget,
    wanted: str,
    *,
    break_it: Callable[[], object],
    heal_it: Callable[[], object],
) -> str:
    """Kill the driver, break something, let the next one end by it, and put it right again.

    Returns:
        The error that it ended with; "" when it did not end, or ``wanted`` is not in the error.
    """
    with target.supervisor.paused():
        number = target.supervisor.kill().number
        break_it()
    try:
        return error_of_life(target, number + 1, wanted)
    finally:
        with target.supervisor.paused():
            target.supervisor.kill_all()
            heal_it()


def error_of_life(target: FaultTarget, number: int, wanted: str) -> str:
    """The error that this driver ends with; "" when it goes on, or ``wanted`` is not in it."""
    life = target.supervisor.await_life(number)
    error = life.last_error() if life.await_end(_ENDS_WITHIN_S) else ""
    return error if wanted in error else ""
