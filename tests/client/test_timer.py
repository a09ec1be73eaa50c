"""The thread that sends lingering batches, and the futures that messages of a batch share."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ALL_COMPLETED, Future, as_completed, wait

import pytest

from eos.client._accumulator import MessageFuture, PendingBatch, complete_all
from eos.client._timer import Timer
from eos.errors import ConnectionLost
from eos.ids import MessageId
from tests.transport.scripted import wait_until


def test_calls_come_in_the_order_of_their_times():
    clock, calls = Timer(), []
    clock.call_after(120, lambda: calls.append(3), "one")
    clock.call_after(0.2, lambda: calls.append(2), "one")  # not only in two minutes
    clock.call_after(0.1, lambda: calls.append(1), "other")
    wait_until(lambda: len(calls) == 2)
    assert calls == [1, 2]
    clock.stop()


def test_a_call_that_is_stuck_delays_only_those_of_its_owner():
    """One producer's lingering batch waits for a broker; others are sent."""
    clock, calls = Timer(), []
    held, is_held = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        held.wait(20)

    clock.call_after(0, hold, "stuck")
    assert is_held.wait(20)
    for number in range(3):
        clock.call_after(0, lambda number=number: calls.append(number), "stuck")
        clock.call_after(0, lambda number=number: calls.append(f"free {number}"), "free")
    wait_until(lambda: len(calls) == 3)
    assert calls == ["free 0", "free 1", "free 2"]
    held.set()
    wait_until(lambda: len(calls) == 6)
    assert calls[3:] == [0, 1, 2]
    clock.stop()


def test_not_more_threads_than_allowed_are_started(monkeypatch):
    monkeypatch.setattr("eos.client._timer._MOST_THREADS", 2)
    clock, calls, held = Timer(), [], threading.Event()
    for owner in range(4):
        clock.call_after(0, lambda owner=owner: (held.wait(20), calls.append(owner)), owner)
    wait_until(lambda: len(clock._busy) == 2)
    assert (clock._threads, calls) == (2, [])
    held.set()
    wait_until(lambda: sorted(calls) == [0, 1, 2, 3])
    clock.stop()


def test_a_thread_with_nothing_to_do_ends_and_another_one_takes_its_place(monkeypatch):
    monkeypatch.setattr("eos.client._timer._IDLE_S", 0.05)
    clock, calls = Timer(), []
    for number in range(2):
        clock.call_after(0, lambda number=number: calls.append(number), clock)
        wait_until(lambda number=number: len(calls) > number)
        wait_until(lambda: not clock._threads)
    assert calls == [0, 1]


def test_what_waits_is_called_at_the_stop_and_what_comes_later_at_once():
    clock, calls = Timer(), []
    clock.call_after(60, lambda: calls.append("waited"), clock)
    clock.stop()
    clock.call_after(60, lambda: calls.append("late"), clock)
    assert calls == ["waited", "late"]


def test_a_thread_that_can_not_be_started_is_started_at_the_next_call(monkeypatch):
    clock, calls = Timer(), []

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError):
            clock.call_after(0, lambda: calls.append("failed"), clock)
    clock.call_after(0, lambda: calls.append("next"), clock)
    wait_until(lambda: calls)
    clock.stop()
    assert calls == ["next"]


@pytest.fixture
def batch() -> PendingBatch:
    """Four messages that share a lock."""
    gathered = PendingBatch(0, None)
    gathered.futures += [MessageFuture(gathered.shared) for _ in range(4)]
    return gathered


def ended(entry: int) -> Future[MessageId]:
    done: Future[MessageId] = Future()
    done.set_result(MessageId(1, entry))
    return done


def test_a_future_is_waited_for_although_others_of_its_batch_end_before(batch):
    def end() -> None:
        for entry, futures in enumerate((batch.futures[:2], batch.futures[2:])):
            time.sleep(0.1)
            complete_all(futures, -1, ended(entry))

    threading.Thread(target=end).start()
    assert batch.futures[3].result() == MessageId(1, 1, -1, 1)
    assert batch.futures[0].exception() is None


def test_a_future_times_out_and_can_not_be_cancelled(batch):
    future = batch.futures[0]
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    with pytest.raises(TimeoutError):
        future.exception(timeout=0.05)
    assert not future.cancel()


def test_futures_are_waited_for_as_any_others(batch):
    def end() -> None:
        time.sleep(0.1)
        complete_all(batch.futures[:3], 5, ended(0))
        batch.fail(ConnectionLost("gone"))

    threading.Thread(target=end).start()
    assert set(as_completed(batch.futures, timeout=10)) == set(batch.futures)
    done, left = wait(batch.futures, timeout=10, return_when=ALL_COMPLETED)
    assert (len(done), left) == (4, set())
    assert batch.futures[2].result(timeout=0) == MessageId(1, 0, 5, 2)
    with pytest.raises(ConnectionLost):
        batch.futures[3].result(timeout=0)
    called: list[object] = []
    batch.futures[3].add_done_callback(called.append)
    assert called == [batch.futures[3]]


def test_a_call_that_fails_stops_no_other_call():
    """A user's callback may end with sys.exit()."""
    timer, called = Timer(), threading.Event()
    timer.call_after(0.0, sys.exit, "one")
    timer.call_after(0.01, called.set, "one")
    assert called.wait(10)
    timer.stop()
