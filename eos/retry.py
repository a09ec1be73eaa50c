"""The retry policy of the project: exponential back-off with jitter, up to a deadline."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_random_exponential,
)

from eos.errors import EosError, RequestTimeout, Retriable

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A longer wait is told, again and again.
_SILENT_S: Final = 10.0
_BACKOFF: Final = wait_random_exponential(multiplier=0.05, max=2.0)


def attempts(
    deadline_s: float,
    *,
    retry_on: tuple[type[EosError], ...] = (Retriable, RequestTimeout),
) -> Retrying:
    """Retry until an attempt succeeds or the deadline passes; call it or loop over it.

    ::

        answer = attempts(60)(ask_the_broker)

        for attempt in attempts(60):
            with attempt:
                talk_to_the_broker()

    Only for idempotent calls: a missing answer is retried as well. Errors that are not in
    ``retry_on`` are raised immediately; after ``deadline_s`` the last error is.
    """
    return Retrying(
        retry=retry_if_exception_type(retry_on),
        stop=stop_after_delay(deadline_s),
        wait=_BACKOFF,
        before_sleep=_log_waits(deadline_s),
        reraise=True,
    )


def _log_waits(deadline_s: float) -> Callable[[RetryCallState], None]:
    told_s = 0.0

    def log(state: RetryCallState) -> None:
        nonlocal told_s
        waited_s = state.seconds_since_start or 0.0
        if waited_s - told_s >= _SILENT_S:
            told_s = waited_s
            error = state.outcome.exception() if state.outcome else None
            logger.warning("waiting for %.0f of %.0f s: %s", waited_s, deadline_s, error)

    return log


def reruns(max_attempts: int, may_rerun: Callable[[], bool] = lambda: True) -> Retrying:
    """Run a whole epoch up to ``max_attempts`` times, with longer and longer pauses.

    ``may_rerun`` is called after each failed attempt.
    """
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, Retriable) and may_rerun()),
        stop=stop_after_attempt(max_attempts),
        wait=wait_random_exponential(multiplier=0.5, max=30.0),
        before_sleep=_log_rerun,
        reraise=True,
    )


def _log_rerun(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    logger.warning("the epoch runs again in %.1f s: %s", state.upcoming_sleep, error)


class Patience:
    """The remaining time of a polling loop, and the pauses between its questions."""

    def __init__(self, deadline_s: float) -> None:
        self._deadline = time.monotonic() + deadline_s
        retrying: Any = None
        self._state = RetryCallState(retrying, None, (), {})

    @property
    def left_s(self) -> float:
        """Seconds left; at least 0.1, so that a last question can still be asked."""
        return max(0.1, self._deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self._deadline

    def pause(self) -> None:
        """Sleep before the next question, longer each time."""
        time.sleep(min(_BACKOFF(self._state), self.left_s))
        self._state.attempt_number += 1


def ask_until(ask: Callable[[], T], is_final: Callable[[T], bool], deadline_s: float) -> T:
    """Repeat ``ask`` until its answer is final, or the deadline has passed; return the last one."""
    patience = Patience(deadline_s)
    while not is_final(answer := ask()) and not patience.is_over:
        patience.pause()
    return answer
