"""Rows per second by path, and where the time of a row and of an epoch goes."""

from __future__ import annotations

import cProfile
import pstats
import statistics
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, Final

import numpy as np
import psutil

from bench import plain
from bench.environment import (
    WARM_UP,
    Environment,
    Spread,
    chosen,
    interleaved_rates,
    timed_s,
)
from bench.peers import JavaClient, WriterProcesses, start_writers, write_by_pulsar_spark
from bench.spark_writers import (
    EosSink,
    RowShape,
    arrow_rows,
    flight_values,
    frame,
    pass_through_python,
    write_by_pulsar_client,
)
from eos import failpoints
from eos.client import PulsarClient
from eos.ids import TopicName
from eos.steps import Step
from eos.wire.batch import check_rows, encode_batches

BASE: Final = RowShape()
SHAPES: Final = tuple(
    RowShape(value_bytes, columns, partitions)
    for value_bytes in (100, 1024)
    for columns in ("value", "keyed", "properties")
    for partitions in ((1, 4, 16) if columns == "value" else (1, 16))
)
WITH_A_TARGET: Final = {
    RowShape(value_bytes, "value", partitions)
    for value_bytes in (100, 1024)
    for partitions in (1, 4)
}
# Rounds by shape. The medians of three rounds vary by a tenth and more from run to run.
ROUNDS: Final = {shape: 7 if shape in WITH_A_TARGET else 3 for shape in SHAPES}
# Rounds of the first shape that do not count, since all JVMs are new; later shapes have one.
# Measured over 45 epochs of two million rows: after the third, Spark's JVM needs hardly less.
_WARM_UP: Final = 3
# Most rows that ``pulsar_client`` writes, by bytes of a value. Measured, medians of three: 100
# bytes 69 thousand rows/s for 250,000 rows and for a million, 61 thousand for 125,000; 1,024
# bytes 42 thousand for 100,000 and for 195,000, 34 thousand for 24,000.
_SLOW_ROWS: Final = {100: 250_000, 1024: 100_000}

WriteRows = Callable[[str, int], float]  # writes a number of rows to a topic; returns rows/s


def measure(
    env: Environment,
    rows: int,
    rounds: dict[RowShape, int],
    tell: Callable[[str], None],
    *,
    only: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return an entry for each path and shape: ``path``, ``shape``, the ``rows`` of a run, and
    ``rows_per_s``, a spread over the shape's rounds. ``only``: these paths, if not empty."""
    results: list[dict[str, Any]] = []
    order = np.random.default_rng(0)
    url = env.broker.service_url
    with JavaClient(url) as java, start_writers(url) as processes:
        for shape, wanted_rounds in rounds.items():
            paths = chosen(_paths(env, shape, java, processes), only)
            found: dict[str, list[float]] = {name: [] for name in paths}
            for number in range(-1 if results else -_WARM_UP, wanted_rounds):
                tell(f"{shape.name}: {'warm-up' if number < 0 else f'round {number + 1}'}")
                # Each round runs every path once: other load of the machine affects all alike.
                for name in order.permutation(list(paths)):
                    rate = _run(env, name, paths[name], shape, _rows_of(name, shape, rows))
                    if number >= 0:
                        found[name].append(rate)
            results += [
                {
                    "path": name,
                    "shape": vars(shape),
                    "rows": _rows_of(name, shape, rows),
                    "rows_per_s": vars(Spread.of(rates, 0)),
                }
                for name, rates in found.items()
            ]
    return results


def _rows_of(path: str, shape: RowShape, rows: int) -> int:
    count = shape.count(rows)
    return min(count, _SLOW_ROWS[shape.value_bytes]) if path == "pulsar_client" else count


def _run(env: Environment, name: str, write: WriteRows, shape: RowShape, count: int) -> float:
    env.settle()  # a broker that still works on the run before would slow this one down
    with env.topic(shape.partitions) as topic:
        rate = write(topic, count)
        if name != "spark_empty":  # which writes nothing
            env.await_count(topic, count)
    return rate


def _paths(
    env: Environment, shape: RowShape, java: JavaClient, processes: WriterProcesses
) -> dict[str, WriteRows]:
    url = env.broker.service_url

    def eos(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        with EosSink(env, topic) as sink:
            sink.write(df.limit(0))  # claims the sink, which a query does once
            return count / timed_s(lambda: sink.write(df))

    def pulsar_client(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: write_by_pulsar_client(df, url, topic))

    def by_pulsar_spark(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: write_by_pulsar_spark(df, url, topic))

    def no_transaction(topic: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        task = plain.PlainTask.of(url, topic, shape.partitions)
        return count / timed_s(lambda: plain.write(df, task))

    def spark_empty(_: str, count: int) -> float:
        df = frame(env.spark, shape, count)
        return count / timed_s(lambda: pass_through_python(df))

    paths: dict[str, WriteRows] = {
        "eos": eos,
        "pulsar_client": pulsar_client,
        "spark_empty": spark_empty,
    }
    if shape.columns == "value":
        paths["java_transaction"] = partial(java.rows_per_s, shape)
    if shape.columns == "value" and env.has_pulsar_spark:
        paths["pulsar_spark"] = by_pulsar_spark
    if shape.columns == "value" and shape.partitions == 1:
        paths["no_transaction"] = no_transaction
        paths["eos_from_arrow"] = partial(processes.rows_per_s, "arrow", shape)
        paths["raw_sockets"] = partial(processes.rows_per_s, "raw", shape)
    return paths


def measure_flights(env: Environment, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Write real rows, the flights of 2013 as JSON, each path with its own defaults.

    Return ``rows`` of a run, the mean ``value_bytes``, and ``rows_per_s`` of each path, a spread.

    Raises:
        RuntimeError: the broker has not counted all rows.
    """
    values = flight_values(env)
    rows = values.count()
    size = values.selectExpr("avg(length(value))").collect()[0][0]
    url = env.broker.service_url
    with (
        env.topic(1) as ours,
        env.topic(1) as theirs,
        # The default: it compresses entries that become smaller. pulsar-spark's compresses none.
        EosSink(env, ours, compression="auto") as sink,
    ):

        def counted(write: Callable[[], None]) -> Callable[[], float]:
            def run() -> float:
                write()
                return rows

            return run

        ways = {
            "eos": counted(lambda: sink.write(values)),
            "spark_empty": counted(lambda: pass_through_python(values)),
        }
        if env.has_pulsar_spark:
            ways["pulsar_spark"] = counted(lambda: write_by_pulsar_spark(values, url, theirs))
        rates = interleaved_rates(env, ways, rounds, lambda text: tell(f"flights: {text}"))
        for way, topic in (("eos", ours), ("pulsar_spark", theirs)):
            if way in ways:
                env.await_count(topic, (rounds + WARM_UP) * rows)
    return {"rows": rows, "value_bytes": round(size), "rows_per_s": rates}


_EPOCH_WARM_UP: Final = 5
_PHASE_RUNS: Final = 5
# File and function of each phase. None calls another one, except the last, which sends one small
# frame.
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


def measure_phases(env: Environment, rows: int) -> dict[str, Any]:
    """Return ``{"ns_per_row": {phase: figure}, "rows": rows}``, of one process and partition."""
    columns = arrow_rows(RowShape(), 0, rows)
    # No function runs once per row, so the profiler's own cost does not matter.
    profile = cProfile.Profile()
    with env.topic(1) as topic, PulsarClient(env.broker.service_url) as client:
        exact = str(TopicName.parse(topic).partition(0))
        # The first run warms up, and is not profiled.
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
    with env.topic(1) as topic, EosSink(env, topic) as sink:
        for _ in range(_EPOCH_WARM_UP):
            sink.write(df)
        for _ in range(epochs):
            clock.time(lambda: sink.write(df))
    return clock.medians()


def measure_processor(env: Environment, shape: RowShape, rows: int, epochs: int) -> dict[str, Any]:
    """Return the processor time of an epoch of ``rows`` by process, and its duration, in ms.

    Means of ``epochs`` epochs in a row.
    """
    df = frame(env.spark, shape, rows)
    with env.topic(shape.partitions) as topic, EosSink(env, topic) as sink:
        for _ in range(_EPOCH_WARM_UP):
            sink.write(df)
        env.settle()  # the broker writes to its ledgers after the commit
        before = env.processor_s()
        began = time.perf_counter()
        for _ in range(epochs):
            sink.write(df)
        took_s = time.perf_counter() - began
        env.settle()
        after = env.processor_s()
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
        with EosSink(env, topic) as sink:
            sink.write(df.limit(10))  # claims the sink
            before = driver.memory_info().rss
            peaks = _peaks_during(driver, lambda: sink.write(df))
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
                    continue  # it has ended

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        action()
    finally:
        done.set()
        thread.join()
    return peaks
