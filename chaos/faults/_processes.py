"""Faults of processes, the job's and the counter's: killed, stopped, or joined by a second one."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, Literal

from eos.chaos.cluster.processes import kill_all, stopped
from eos.chaos.cluster.target import FaultTarget, path_of
from eos.chaos.faults._fault import WITHIN_S, Fault, Proof, acts, pids, resolve
from eos.chaos.faults.conditions import COUNTING
from eos.cli.reports import Exit


@contextmanager
def _driver_kill(target: FaultTarget) -> Iterator[Proof]:
    driver = target.supervisor.kill()
    was_alive = driver.exit_code == -signal.SIGKILL  # it may just have ended by itself
    yield Proof(f"pid {driver.pid}" if was_alive else "")


@contextmanager
def _driver_stop(target: FaultTarget) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with stopped(processes):
        yield Proof(pids(processes))


@acts
def _killed(
    target: FaultTarget, what: Literal["executors", "workers"], count: int | None = None
) -> Iterator[Proof]:
    victims = target.await_processes(what)[:count]
    kill_all(victims)
    yield Proof(pids(victims))


@acts
def _asleep(
    target: FaultTarget, what: Literal["executors", "workers"], count: int | None = None
) -> Iterator[Proof]:
    victims = target.await_processes(what)[:count]
    with stopped(victims):
        yield Proof(pids(victims))


_IN_TRANSACTION_S: Final = 0.05  # a fault of the counter comes within it

# A driver that was overtaken must notice within this time, or is killed.
FENCED_WITHIN_S: Final = 15.0


@contextmanager
def _hand_over(target: FaultTarget) -> Iterator[Proof]:
    processes = target.supervisor.current.driver_processes()
    with target.supervisor.rival() as (older, younger):
        with stopped(processes):
            claim = target.await_claim(younger)
            yield Proof(
                claim and f"a successor of driver {older.number} ({pids(processes)}), {claim}"
            )
        older.await_end(FENCED_WITHIN_S)


@contextmanager
def _second_driver(target: FaultTarget) -> Iterator[Proof]:
    with target.supervisor.rival() as (older, younger):
        both = f"drivers {older.number} and {younger.number}"
        claim = target.await_claim(younger)
        if claim:
            yield Proof(f"{both}, {claim}")
        elif not younger.is_alive:
            # Stopped by the older one through Spark's checkpoint, before the sink.
            yield Proof(f"{both}: {younger.last_error() or 'it ended'}")
        else:
            yield Proof()


@contextmanager
def _cli_resolve(target: FaultTarget) -> Iterator[Proof]:
    code = resolve(target)
    # Any other one: it could not be done.
    yield Proof(f"exit code {code}" if code in (Exit.CLEAN, Exit.NEEDS_ACTION) else "")


_HowToHit = Literal["kill", "cut", "overtake"]
_AT_COUNTER: Final[dict[_HowToHit, str]] = {
    "kill": "SIGKILL of the counter in a transaction",
    "cut": "all connections of the counter are cut in a transaction",
    "overtake": "SIGSTOP of the counter in a transaction until a second one works, then SIGCONT",
}


@acts
def _counter(target: FaultTarget, how: _HowToHit) -> Iterator[Proof]:
    counter = target.counter
    assert counter is not None
    delay_s = random.uniform(0.0, _IN_TRANSACTION_S)
    if how == "kill":
        yield Proof(counter.kill_in_transaction(delay_s, timeout_s=WITHIN_S))
    elif how == "cut":
        yield Proof(counter.cut_in_transaction(delay_s, timeout_s=WITHIN_S))
    else:
        unload = partial(target.broker.admin, "PUT", f"{path_of(counter.topic)}/unload")
        yield Proof(counter.overtake(delay_s, unload, timeout_s=WITHIN_S))


FAULTS: Final = (
    Fault("driver-kill", "driver", "SIGKILL of driver, JVM and executors", _driver_kill),
    Fault("driver-stop", "driver", "SIGSTOP of the driver, then SIGCONT", _driver_stop, True),
    Fault("executor-kill", "executor", "SIGKILL of an executor", _killed("executors", 1)),
    Fault(
        "executor-stop",
        "executor",
        "SIGSTOP of an executor, then SIGCONT",
        _asleep("executors", 1),
        True,
    ),
    Fault("worker-kill", "executor", "SIGKILL of all Python workers", _killed("workers")),
    Fault(
        "worker-stop",
        "executor",
        "SIGSTOP of all Python workers, then SIGCONT",
        _asleep("workers"),
        True,
    ),
    Fault(
        "hand-over",
        "rival",
        "SIGSTOP of the driver until a second one has taken over, then SIGCONT",
        _hand_over,
    ),
    Fault("second-driver", "rival", "a second driver at the same time", _second_driver),
    Fault(
        "cli-resolve", "rival", "`eos recovery resolve --apply` while a driver runs", _cli_resolve
    ),
    *(
        Fault(f"counter-{how}", "state", text, _counter(how), needs=COUNTING, needs_own=True)
        for how, text in _AT_COUNTER.items()
    ),
)
