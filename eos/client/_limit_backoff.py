"""Policies that admit fewer producers or readers than there are processes that park some."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from eos.errors import ConsumerBusy, EosError, NotAllowed, ProducerBusy

T = TypeVar("T")

PARKED_FOR_S: Final = 30.0
"""Longer than most triggers. A topic with a producer or reader can't be deleted without force."""
Refusals = tuple[type[EosError], ...]
OF_PRODUCERS: Final[Refusals] = (ProducerBusy,)
OF_READERS: Final[Refusals] = (ConsumerBusy, NotAllowed)
"""What brokers answer where a policy limits consumers, or subscriptions (measured)."""
_PAUSE_S: Final = 0.5


class Crowd:
    """What one client knows of it.

    Attributes:
        was_met: somebody was once refused, while others may have parked what is in the way.
    """

    def __init__(self) -> None:
        self.was_met = False

    @contextmanager
    def noting(self, refusals: Refusals) -> Iterator[None]:
        """Whoever is refused in the block has met it."""
        try:
            yield
        except refusals:
            self.was_met = True
            raise

    def outwait(self, call: Callable[[], T], refusals: Refusals, timeout_s: float) -> T:
        """``call()``; while it is refused, again, until what other processes have parked is closed.

        Raises:
            EosError: what ``call`` raises; a refusal when it has lasted for ``timeout_s`` more.
        """
        deadline = time.monotonic() + PARKED_FOR_S + timeout_s
        while True:
            try:
                with self.noting(refusals):
                    return call()
            except refusals:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)  # by hand: executors have no tenacity
