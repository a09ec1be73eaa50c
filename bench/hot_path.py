"""The cost of a row and of an epoch by phase, by process, by step; memory and bytes.

Phases are measured in one process that writes rows from Arrow under ``cProfile``. No function runs
once per row, so the profiler's own cost does not matter.
"""

from __future__ import annotations

import cProfile
import pstats
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, Final

import psutil

from bench.environment import Environment
from bench.row_sources import RowShape, arrow_rows, frame
from bench.spark_writers import EosSink
from eos import failpoints
from eos.client import PulsarClient
from eos.ids import TopicName
from eos.steps import Step
from eos.wire.batch import check_rows, encode_batches

_WARM_UP: Final = 5
_PHASE_RUNS: Final = 5
PHASES: Final = {
    "check the rows": ("_row_checks.py", "check_rows"),
    "message metadata": ("_metadata.py", "encode_rows"),
    "join to payloads": ("binary_columns.py", "joined"),
    "checksum of the log": ("checksum.py", "entry_checksum"),
    "frame and its crc32c": ("frames.py", "encode_send"),
    "socket": ("_stream.py", "send"),
    "wait for room": ("_window.py", "admit"),
    "wait for receipts": ("_entry_producer.py", "close"),
}
"""File and function of each phase. None calls another one, except the last, which sends one small
frame."""


def measure_phases(env: Environment, rows: int) -> dict[str, Any]:
    """Return ``{"ns_per_row": {phase: figure}, "rows": rows}``.

    One process, one partition, the mean of several transactions of ``rows`` after one that does not
    count.
    """
    columns = arrow_rows(RowShape(), 0, rows)
    profile = cProfile.Profile()
    with env.topic(1) as topic, PulsarClient(env.broker.service_url) as client:
        exact = str(TopicName.parse(topic).partition(0))
        for number in range(1 + _PHASE_RUNS):
            env.settle()
            producer = client.entry_producer(exact)
            with client.transaction(timeout_s=120) as txn, profile if number else nullcontext():
                check_rows(columns, producer.max_batch_bytes)
                for batch in encode_batches(columns):
                    producer.send_batch(batch, txn=txn)
                producer.close()
    stats: Any = pstats.Stats(profile)
    found = {
        phase: sum(
            cumulative_s
            for (path, _, name), (*_, cumulative_s, _) in stats.stats.items()
            if name == wanted and path.endswith(f"/{file}")
        )
        for phase, (file, wanted) in PHASES.items()
    }
    if lost := [phase for phase, second in found.items() if not second]:
        raise RuntimeError(f"These phases were not called: {', '.join(lost)}")
    found["everything else"] = stats.total_tt - sum(found.values())
    per_row = {
        phase: round(second / rows / _PHASE_RUNS * 1e9, 1) for phase, second in found.items()
    }
    return {"ns_per_row": per_row, "rows": rows}


class StepClock:
    """Times the steps of the commit (``eos.steps``), in milliseconds since the step before."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = {step.name.lower(): [] for step in Step}
        self._last = 0.0

    def time(self, epoch: Callable[[], object]) -> None:
        """Run one epoch and time its steps."""
        with ExitStack() as stack:
            for step in Step:
                stack.enter_context(failpoints.armed(step, partial(self._note, step)))
            self._last = time.perf_counter()
            epoch()

    def medians(self) -> dict[str, float]:
        """Return the median of each step that was reached."""
        return {
            name: round(statistics.median(found), 1)
            for name, found in self.times_ms.items()
            if found
        }

    def _note(self, step: Step) -> None:
        now = time.perf_counter()
        self.times_ms[step.name.lower()].append((now - self._last) * 1000)
        self._last = now


def measure_steps(env: Environment, epochs: int) -> dict[str, float]:
    """Return the median milliseconds of each step, for epochs of ten rows."""
    df = env.spark.range(10).selectExpr("string(id) AS value")
    clock = StepClock()
    with env.topic(1) as topic:
        sink = EosSink(env, topic)
        try:
            for _ in range(_WARM_UP):
                sink.write(df)
            for _ in range(epochs):
                clock.time(lambda: sink.write(df))
        finally:
            sink.close()
    return clock.medians()


def measure_processor(env: Environment, shape: RowShape, rows: int, epochs: int) -> dict[str, Any]:
    """Return the processor time of an epoch of ``rows`` by process, and its duration, in ms.

    Means of ``epochs`` epochs in a row.
    """
    df = frame(env.spark, shape, rows)
    with env.topic(shape.partitions) as topic:
        sink = EosSink(env, topic)
        try:
            for _ in range(_WARM_UP):
                sink.write(df)
            env.settle()  # the broker writes to its ledgers after the commit
            before = env.processor_s()
            began = time.perf_counter()
            for _ in range(epochs):
                sink.write(df)
            took_s = time.perf_counter() - began
            env.settle()
            after = env.processor_s()
        finally:
            sink.close()
    per_epoch = {who: round((after[who] - before[who]) / epochs * 1e3, 1) for who in after}
    return {
        "ms_per_epoch": per_epoch,
        "took_ms": round(took_s / epochs * 1e3, 1),
        "shape": vars(shape),
        "rows": rows,
        "epochs": epochs,
    }


def measure_memory(env: Environment, rows: int) -> dict[str, Any]:
    """Return the peak memory of the driver's Python and of a worker, in MB, during an epoch, and
    the bytes that the broker receives for each row of 100 bytes."""
    df = frame(env.spark, RowShape(), rows)
    driver = psutil.Process()
    with env.topic(1) as topic:
        sink = EosSink(env, topic)
        try:
            sink.write(df.limit(10))
            before = driver.memory_info().rss
            peaks = _peaks_during(driver, lambda: sink.write(df))
        finally:
            sink.close()
        stats = env.stats(topic)
    if not all(peaks.values()):
        raise RuntimeError(f"No memory was sampled: {peaks}")
    return {
        "driver_grows_mb": round((peaks["driver"] - before) / 1e6, 1),
        "worker_mb": round(peaks["worker"] / 1e6, 1),
        "rows": rows,
        "wire_bytes_per_row": round(stats["bytesInCounter"] / stats["msgInCounter"], 2),
    }


def _peaks_during(driver: psutil.Process, action: Callable[[], object]) -> dict[str, int]:
    peaks = {"driver": 0, "worker": 0}
    done = threading.Event()

    def sample() -> None:
        while not done.wait(0.05):
            peaks["driver"] = max(peaks["driver"], driver.memory_info().rss)
            for process in driver.children(recursive=True):
                try:
                    if "python" in process.name():
                        peaks["worker"] = max(peaks["worker"], process.memory_info().rss)
                except psutil.Error:
                    continue

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        action()
    finally:
        done.set()
        thread.join()
    return peaks
