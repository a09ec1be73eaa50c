"""An interrupt anywhere in a wait is raised, and the lock is free afterwards."""

from __future__ import annotations

import gc
import itertools
import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest

from eos import waiting
from eos.waiting import Future, Monitor, close_when_freed, parallel_map, run_both, submit

WAIT_S = 0.001
TRACED = (waiting.__file__,)


class Tracing:
    """Counts the bytecode steps of ``TRACED`` files in this thread, and interrupts one of them."""

    def __init__(self, interrupt_at: int) -> None:
        self.steps = 0
        self._interrupt_at = interrupt_at

    def __call__(self, frame, event, _argument):
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.steps += 1
            if self.steps == self._interrupt_at:
                raise KeyboardInterrupt
        return self

    def __enter__(self):
        sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for one only in settrace
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(None)


def is_free(condition: Monitor) -> bool:
    with ThreadPoolExecutor(1) as other:
        return other.submit(condition.acquire, blocking=False).result()


def wait_under_the_lock(condition: Monitor) -> None:
    with condition:
        condition.wait(WAIT_S)


def wait_for_under_the_lock(condition: Monitor) -> None:
    with condition:
        condition.wait_for(lambda: False, WAIT_S)


@pytest.mark.parametrize("wait", [wait_under_the_lock, wait_for_under_the_lock])
def test_an_interrupt_at_any_step_of_a_wait_is_raised_and_leaves_the_lock_free(wait, monkeypatch):
    for step in itertools.count(1):
        clock = iter([0.0, 0.0])  # the same number of steps in each run, also on a slow machine
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=partial(next, clock, 1.0)))
        condition, traced = Monitor(), Tracing(step)
        try:
            with traced:
                wait(condition)
        except KeyboardInterrupt:
            assert is_free(condition), step
        else:
            break
    assert traced.steps == step - 1  # the wait has ended, and no interrupt was swallowed
    assert step > 50


def test_taking_the_lock_is_atomic_for_signals():
    condition = Monitor()
    with Tracing(interrupt_at=0) as seen, condition:
        pass
    assert seen.steps == 0


def test_all_waiters_are_woken():
    condition, woken = Monitor(), []

    def wait() -> None:
        with condition:
            woken.append(condition.wait(30))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    while len(condition._waiters) < len(threads):
        time.sleep(0.001)
    with condition:
        condition.notify_all()
    for thread in threads:
        thread.join(30)
    assert woken == [True, True, True]


def test_a_wait_that_times_out_leaves_no_waiter():
    condition = Monitor()
    with condition:
        assert not condition.wait(0)
        assert not condition.wait_for(lambda: False, WAIT_S)
    assert condition._waiters == []


@pytest.mark.parametrize("timeout_s", [1e10, math.inf])
def test_a_wait_may_be_longer_than_a_lock_can_wait(timeout_s):
    condition = Monitor()

    def wake():
        with condition:
            condition.notify_all()

    with condition:
        threading.Timer(0.01, wake).start()
        assert condition.wait(timeout_s)


def test_a_true_predicate_needs_no_wait():
    with (condition := Monitor()):
        assert condition.wait_for(lambda: True, 0)


def test_a_future_waits_as_any_other():
    future: Future[int] = Future()
    threading.Timer(0.01, future.set_result, [7]).start()
    assert future.result(30) == 7
    with pytest.raises(TimeoutError):
        Future().result(0)


def test_a_call_in_a_pool_sets_its_futures_result_or_error():
    def fail() -> None:
        raise ZeroDivisionError

    with ThreadPoolExecutor(1) as pool:
        assert submit(pool, lambda: 7).result(30) == 7
        with pytest.raises(ZeroDivisionError):
            submit(pool, fail).result(30)


def test_run_both_waits_for_both_calls():
    begun, ended = threading.Event(), []

    def fail() -> None:
        begun.set()
        time.sleep(0.05)
        ended.append(True)
        raise ZeroDivisionError

    def fail_otherwise() -> None:
        assert begun.wait(30)
        raise KeyError

    with pytest.raises(ZeroDivisionError):
        run_both(fail, lambda: None)
    begun.clear()
    with pytest.raises(KeyError):
        run_both(fail, fail_otherwise)
    assert ended == [True, True]
    assert run_both(lambda: 1, lambda: 2) == 2


class Work:
    """Counts begun and ended calls."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def __call__(self, number: int = 0) -> None:
        self.begun.append(number)
        time.sleep(0.002)
        self.ended.append(number)


@pytest.mark.parametrize(
    "run",
    [lambda work: parallel_map(work, range(3)), lambda work: run_both(work, work)],
    ids=["at once", "beside"],
)
def test_after_an_interrupt_at_any_step_no_call_runs_or_begins(run):
    interrupted = 0
    for step in range(1, 150):  # more than the wait has; it has fewer if other calls end first
        work, traced = Work(), Tracing(step)
        try:
            with traced:
                run(work)
        except KeyboardInterrupt:
            interrupted += 1
            under_way = len(work.begun) - len(work.ended)
            begun = len(work.begun)
            time.sleep(0.003)
            assert (under_way, len(work.begun)) == (0, begun), step
    assert interrupted > 30


class Owner:
    """An object in a cycle: only the garbage collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_what_the_collector_frees_is_closed_outside_of_the_thread_that_collects():
    lock, closed = threading.Lock(), threading.Event()

    def close() -> None:
        if lock.acquire(timeout=10):
            closed.set()

    close_when_freed(Owner(), close)
    with lock:
        started = time.monotonic()
        gc.collect()
        assert time.monotonic() - started < 5
        assert not closed.is_set()
    assert closed.wait(10)


PROGRAM = """
import gc, os, time
from eos.waiting import close_when_freed

class Owner:
    pass

def close(name):
    time.sleep(0.3)
    # In one piece, beside the other thread.
    os.write(1, f"closed {name}{os.linesep}".encode())

freed, kept = Owner(), Owner()
close_when_freed(freed, lambda: close("freed"))
close_when_freed(kept, lambda: close("kept"))
child = os.fork()
if child:
    os.waitpid(child, 0)
    del freed
"""


def test_at_the_exit_everything_is_closed_once_and_nothing_by_a_forked_child():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert sorted(ended.stdout.splitlines()) == ["closed freed", "closed kept"]
    assert ended.stderr == ""
