"""``parallel_map``: results are in order, and after an error no call is still running."""

from __future__ import annotations

import signal
import threading

import pytest

from eos.waiting import parallel_map

MORE_THAN_THREADS = range(100)


def test_results_are_in_the_order_of_the_items():
    last_asked = threading.Event()

    def ask(number: int) -> int:
        if number:
            last_asked.set()
        assert last_asked.wait(30)  # the first one is answered last
        return number * 2

    assert parallel_map(ask, range(5)) == [0, 2, 4, 6, 8]


def test_an_error_is_raised_after_started_calls_have_ended():
    begun, ended = [], []

    def ask(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ZeroDivisionError
        threading.Event().wait(0.05)
        ended.append(number)

    with pytest.raises(ZeroDivisionError):
        parallel_map(ask, MORE_THAN_THREADS)
    assert sorted(begun) == sorted([0, *ended])
    assert len(begun) < len(MORE_THAN_THREADS)


def test_an_interrupt_is_raised_after_started_calls_have_ended():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun, ended = [], []

    def ask(number: int) -> None:
        begun.append(number)
        if number == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        threading.Event().wait(0.05)
        ended.append(number)

    try:
        with pytest.raises(KeyboardInterrupt):
            parallel_map(ask, MORE_THAN_THREADS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(begun) == sorted(ended)
    assert len(begun) < len(MORE_THAN_THREADS)
