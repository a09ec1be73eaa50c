"""Where the time of a row and of an epoch goes: by phase, by process, by step; and its bytes.

The phases are of one process that writes rows from Arrow under ``cProfile``: nothing runs once for
each row, so that the profiler's own cost does not show.
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

from bench.environment import Setting
from bench.paths import EosSink
from bench.processor import processor_s
from bench.rows import RowShape, arrow_rows, frame
from eos import failpoints
from eos.client import PulsarClient
from eos.ids import TopicName
from eos.steps import Step
from eos.wire.batch import check_rows, encode_batches

_WARM_UP: Final = 5
_PHASE_RUNS: Final = 5
PHASES: Final = {
    "check the rows": ("_checks.py", "check_rows"),
    "message metadata": ("_metadata.py", "encode_rows"),
    "join to payloads": ("columns.py", "joined"),
    "checksum of the log": ("checksum.py", "entry_checksum"),
    "frame and its crc32c": ("frames.py", "encode_send"),
    "socket": ("_stream.py", "send"),
    "wait for room": ("_window.py", "admit"),
    "wait for receipts": ("_entry_producer.py", "close"),
}
"""Phase -> file and function. None calls another, but for the last, which sends one small frame."""


def measure_phases(setting: Setting, rows: int) -> dict[str, Any]:
    """``{"ns_per_row": {phase: figure}, "rows": rows}``; one process, one partition, the mean of
    several transactions of ``rows`` after one that does not count."""
    columns = arrow_rows(RowShape(), 0, rows)
    profile = cProfile.Profile()
    with setting.topic(1) as topic, PulsarClient(setting.broker.service_url) as client:
        exact = str(TopicName.parse(topic).partition(0))
        for number in range(1 + _PHASE_RUNS):
            setting.settle()
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
        raise RuntimeError(f"no such function: {', '.join(lost)}")
    found["everything else"] = stats.total_tt - sum(found.values())
    per_row = {
        phase: round(second / rows / _PHASE_RUNS * 1e9, 1) for phase, second in found.items()
    }
    return {"ns_per_row": per_row, "rows": rows}


class StepClock:
    """Times each step of the commit (``eos.steps``), from one to the next, in milliseconds."""

    def __init__(self) -> None:
        self.times_ms: dict[str, list[float]] = {step.name.lower(): [] for step in Step}
        self._last = 0.0

    def time(self, epoch: Callable[[], object]) -> None:
        """Run one epoch."""
        with ExitStack() as stack:
            for step in Step:
                stack.enter_context(failpoints.armed(step, partial(self._note, step)))
            self._last = time.perf_counter()
            epoch()

    def medians(self) -> dict[str, float]:
        """Step -> its median; those that were not reached are left out."""
        return {
            name: round(statistics.median(found), 1)
            for name, found in self.times_ms.items()
            if found
        }

    def _note(self, step: Step) -> None:
        now = time.perf_counter()
        self.times_ms[step.name.lower()].append((now - self._last) * 1000)
        self._last = now


def measure_steps(setting: Setting, epochs: int) -> dict[str, float]:
    """Median milliseconds of each step, for epochs of ten rows."""
    df = setting.spark.range(10).selectExpr("string(id) AS value")
    clock = StepClock()
    with setting.topic(1) as topic:
        sink = EosSink(setting, topic)
        try:
            for _ in range(_WARM_UP):
                sink.write(df)
            for _ in range(epochs):
                clock.time(lambda: sink.write(df))
        finally:
            sink.close()
    return clock.medians()


def measure_processor(setting: Setting, shape: RowShape, rows: int, epochs: int) -> dict[str, Any]:
    """Milliseconds of processor time that an epoch of ``rows`` takes, by process, and how long it
    takes; the means of ``epochs`` one after the other."""
    df = frame(setting.spark, shape, rows)
    with setting.topic(shape.partitions) as topic:
        sink = EosSink(setting, topic)
        try:
            for _ in range(_WARM_UP):
                sink.write(df)
            setting.settle()  # it still writes to its ledgers when an epoch is committed
            before = processor_s(setting)
            began = time.perf_counter()
            for _ in range(epochs):
                sink.write(df)
            took_s = time.perf_counter() - began
            setting.settle()
            after = processor_s(setting)
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


def measure_memory(setting: Setting, rows: int) -> dict[str, Any]:
    """Peak resident memory of the driver's Python and of a worker, in MB, while an epoch is
    written; and what the broker receives for each row of 100 bytes."""
    df = frame(setting.spark, RowShape(), rows)
    driver = psutil.Process()
    with setting.topic(1) as topic:
        sink = EosSink(setting, topic)
        try:
            sink.write(df.limit(10))
            before = driver.memory_info().rss
            peaks = _peaks_during(driver, lambda: sink.write(df))
        finally:
            sink.close()
        stats = setting.stats(topic)
    if not all(peaks.values()):
        raise RuntimeError(f"nobody was seen: {peaks}")
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
