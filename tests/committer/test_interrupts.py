"""Ctrl-C at any moment: the same driver continues from its log."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from eos import failpoints, waiting
from eos.errors import ConnectionLost
from eos.protocol import BATCH, State
from eos.steps import AnyStep, EndingStep, LogStep, Step
from tests.support.judge import drain
from tests.support.plain_driver import rows_of
from tests.transport.scripted import wait_until

PLACES = [*Step, *EndingStep, *LogStep]


def values(pulsar_standalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(pulsar_standalone.service_url, topic)]


def interrupt() -> None:
    if threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.label)
def test_after_an_interrupt_after_any_step_the_same_driver_continues(
    pulsar_standalone, make_driver, topic, place: AnyStep
):
    driver = make_driver()
    driver.run("first", query_id=BATCH)
    with failpoints.armed(place, interrupt), contextlib.suppress(KeyboardInterrupt):
        driver.run("key", query_id=BATCH)
    if driver.states("key")[-1:] != ["COMMITTED"]:
        driver.run("key", query_id=BATCH)
    driver.run("next", query_id=BATCH)
    expected = [row for key in ("first", "key", "next") for row in rows_of(key)]
    assert values(pulsar_standalone, topic) == expected


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM interrupts as Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGALRM, before)


def await_wait() -> None:
    """Wait until the main thread waits for another one: an interrupt elsewhere is another case."""
    main = threading.main_thread().ident
    assert main is not None
    wait_until(lambda: sys._current_frames()[main].f_code.co_filename == waiting.__file__)


@pytest.mark.usefixtures("alarm")
def test_the_next_call_waits_for_an_append_whose_call_was_interrupted(
    pulsar_standalone, make_driver, topic, monkeypatch
):
    driver = make_driver()
    driver.run("0", query_id=BATCH)
    append, late, is_interrupted = driver.log.append, [], threading.Event()

    def interrupting(draft):
        if draft.state is State.OPEN and not late:
            late.append(threading.current_thread())
            await_wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
            assert is_interrupted.wait(30)
            await_wait()  # in the next call
        return append(draft)

    monkeypatch.setattr(driver.log, "append", interrupting)
    with pytest.raises(KeyboardInterrupt):
        driver.run("1", query_id=BATCH)
    is_interrupted.set()
    assert late != [threading.main_thread()]
    assert driver.run("1", query_id=BATCH).status == "written"
    assert values(pulsar_standalone, topic) == [*rows_of("0"), *rows_of("1")]


@pytest.mark.usefixtures("alarm")
def test_a_begin_whose_call_was_interrupted_is_not_retried(
    pulsar_standalone, make_driver, topic, monkeypatch
):
    """Otherwise it would delay the process's exit, or the next call."""
    driver = make_driver(deadline_s=60)
    driver.run("0", query_id=BATCH)
    begin, tries = driver.participant.begin, []

    def unreachable(attempt):
        tries.append(time.monotonic())
        if len(tries) == 1:
            await_wait()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)
        raise ConnectionLost("made up")

    monkeypatch.setattr(driver.participant, "begin", unreachable)
    with pytest.raises(KeyboardInterrupt):
        driver.run("1", query_id=BATCH)
    before = len(tries)
    time.sleep(2)  # by then it would have been tried several times
    assert len(tries) <= before + 1
    monkeypatch.setattr(driver.participant, "begin", begin)
    assert driver.run("1", query_id=BATCH).status == "written"
    assert values(pulsar_standalone, topic) == [*rows_of("0"), *rows_of("1")]


# Python swallows an interrupt that arrives in a callback of the garbage collector.
@pytest.mark.filterwarnings("ignore:Exception ignored in:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("alarm")
def test_under_signals_at_random_moments_every_key_is_written_once(
    pulsar_standalone, make_driver, topic
):
    driver = make_driver()
    driver.run("0", query_id=BATCH)
    dice, interrupts = random.Random(7), 0
    for number in range(1, 25):
        for _ in range(6):
            result = None
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.001, 0.25))
                    result = driver.run(str(number), query_id=BATCH)
                finally:  # which the signal may interrupt as well
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            if result is not None:
                break
        else:
            driver.run(str(number), query_id=BATCH)
    assert interrupts > 5
    expected = [row for number in range(25) for row in rows_of(str(number))]
    assert sorted(values(pulsar_standalone, topic)) == sorted(expected)
