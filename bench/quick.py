"""The main figures, each beside its peer, in one run of ten minutes: ``make bench-quick``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.table import Table

from bench import latency, reading, sending, throughput
from bench.environment import (
    WARM_UP,
    Environment,
    Spread,
    environment,
    full_page_cache,
    interleaved,
    machine,
)
from bench.log_growth import LogDriver
from bench.peers import built_jars, read_by_pulsar_spark, stream_by_pulsar_spark
from bench.publish import OUT, OutFolder, Page, progress, publish, put_between, split_at
from bench.spark_writers import EosSink, EosSource, RowShape, epochs_ms, frame

Spreads = dict[str, dict[str, Any]]  # of ``eos`` and, except for the command line, ``peer``

_ROWS: Final = 2_000_000
_RECORDS: Final = 1_000_000
_CLUSTER_ROWS: Final = 4_000_000
_ROUNDS: Final = 5
# By bytes of a value. With fewer rows of 1 KiB a run takes half a second: then the figures of two
# benchmarks differ by a third.
_WRITTEN: Final = {100: _ROWS, 1024: 4 * _ROWS}
_MARKER: Final = "bench-table"
_COPIED: Final = RowShape(partitions=4)
_LOG_EPOCHS: Final = 10_000


@dataclass(frozen=True)
class Line:
    """A line of the table: what is measured, its peer, and the ratio that is wanted."""

    text: str
    peer: str
    wanted: float
    unit: Literal["rows/s", "ms", "s", "processor s"] = "rows/s"

    @property
    def more_is_better(self) -> bool:
        """Whether the ratio should be at least, or at most, ``wanted``."""
        return self.unit == "rows/s"

    def ratio(self, found: Spreads) -> float:
        """Return how many times as much as its peer eos has; without a peer, its own figure."""
        ours: float = found["eos"]["median"]
        return round(ours / found["peer"]["median"] if "peer" in found else ours, 2)

    def is_reached(self, found: Spreads) -> bool:
        """Return whether the ratio is as wanted."""
        ratio = self.ratio(found)
        return ratio >= self.wanted if self.more_is_better else ratio <= self.wanted


_OTHER: Final = "pulsar-spark"
LINES: Final = {
    "write_100_1": Line("rows of 100 bytes, one partition", _OTHER, 1.5),
    "write_100_4": Line("the same, four partitions", _OTHER, 1.5),
    "write_1024_1": Line("rows of 1 KiB, one partition", _OTHER, 1.0),
    "write_1024_4": Line("the same, four partitions", _OTHER, 1.0),
    "flights": Line("real JSON (301 bytes), by defaults", _OTHER, 1.5),
    "avro": Line("Avro records from columns", _OTHER, 2.0),
    "copy": Line("topic to topic", _OTHER, 2.0),
    "read_value": Line("reading in Spark, value", _OTHER, 3.0),
    "read_all": Line("reading in Spark, all columns", _OTHER, 2.0),
    "read_outside": Line("reading outside of Spark", "a raw socket", 0.7),
    "small_epoch": Line("an epoch of ten rows", _OTHER, 1.2, "ms"),
    "first_epoch": Line("first epoch of a fresh driver", "`pulsar-client`", 1.1, "s"),
    "cluster": Line("16 executors: 2 to 64 tasks, lowest", "the highest", 0.9),
    "help": Line("`eos --help`", "", 0.5, "processor s"),
    "status": Line("`eos recovery status`, 10,000 epochs", "", 0.8, "processor s"),
}


def measure(env: Environment, tell: Callable[[str], None]) -> dict[str, Spreads]:
    """Return the figures of each line of ``LINES``."""
    found = _written(env, tell)
    with full_page_cache(env.folder):  # again: the rows have used it
        found |= _read(env, tell)
    epochs = latency.measure(
        env, 30, tell, sizes=(10,), only=("eos", "pulsar_spark"), warm_up=latency.WARM_UP_COLD
    )
    found["small_epoch"] = _beside(epochs["10"], "eos", "pulsar_spark")
    first = latency.measure_first_epoch(env, 3, tell)
    found["first_epoch"] = _beside(first, "eos", "pulsar_client")
    found |= {name: {"eos": spread} for name, spread in measure_cli(env, 5, tell).items()}
    rates = latency.measure_cluster(env, _CLUSTER_ROWS, 3, tell)
    by_rate = sorted(rates.values(), key=lambda spread: float(spread["median"]))
    found["cluster"] = {"eos": by_rate[0], "peer": by_rate[-1]}
    return found


def _written(env: Environment, tell: Callable[[str], None]) -> dict[str, Spreads]:
    both = ("eos", "pulsar_spark")
    by_shape: dict[RowShape, Spreads] = {}
    for value_bytes, rows in _WRITTEN.items():
        wanted = [one for one in throughput.WITH_A_TARGET if one.value_bytes == value_bytes]
        rounds = {one: _ROUNDS for one in throughput.SHAPES if one in wanted}
        for entry in throughput.measure(env, rows, rounds, tell, only=both):
            shape = RowShape(**entry["shape"])
            by_shape.setdefault(shape, {})[entry["path"]] = entry["rows_per_s"]
    found = {
        f"write_{shape.value_bytes}_{shape.partitions}": _beside(spreads, *both)
        for shape, spreads in by_shape.items()
    }
    flights = throughput.measure_flights(env, _ROUNDS, tell)
    found["flights"] = _beside(flights["rows_per_s"], *both)
    avro = sending.measure_schemas(env, _RECORDS, _ROUNDS, tell, only=("avro", "pulsar_spark"))
    found["avro"] = _beside(avro, "avro", "pulsar_spark")
    return found


def _read(env: Environment, tell: Callable[[str], None]) -> dict[str, Spreads]:
    found = {"copy": _beside(measure_copying(env, _ROWS, _ROUNDS, tell), "eos", "pulsar_spark")}
    columns = {"read_value": "value", "read_all": "metadata"}
    names = {name: (f"eos_{column}", f"pulsar_spark_{column}") for name, column in columns.items()}
    tell("reading in Spark")
    inside = reading.inside(env, _ROWS, _ROUNDS, tell, only=list(chain(*names.values())))
    found |= {name: _beside(inside, *pair) for name, pair in names.items()}
    tell("reading outside of Spark")
    memory = replace(reading.SHAPES["memory"], has_peers=False)
    outside = reading.outside(env, _ROWS, _ROUNDS, tell, memory)
    found["read_outside"] = _beside(outside, "eos", "raw_socket")
    return found


def _beside(spreads: dict[str, Any], ours: str, peer: str) -> Spreads:
    return {"eos": spreads[ours], "peer": spreads[peer]}


# --- from a topic to a topic ---------------------------------------------------------------------


def measure_copying(
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return for each way its rows per second, as a spread.

    The values of a topic with four partitions are copied by a streaming query in one epoch; timed
    as Spark times it, from the offsets to the commit, without the start of the query.
    """
    env.spark.dataSource.register(EosSource)
    with ExitStack() as stack:
        source, ours, theirs = (
            stack.enter_context(env.topic(_COPIED.partitions)) for _ in range(3)
        )
        with EosSink(env, source) as sink:
            sink.write(frame(env.spark, _COPIED, rows))
        ways = {
            "eos": partial(_by_eos, env, source, ours, rows),
            "pulsar_spark": partial(_by_pulsar_spark, env, source, theirs, rows),
        }
        rates = interleaved(
            env, ways, rounds, lambda text: tell(f"copying: {text}"), warm_up=WARM_UP
        )
        for topic in (ours, theirs):
            env.await_count(topic, (rounds + WARM_UP) * rows)
    return {name: vars(Spread.of(found, 0)) for name, found in rates.items()}


def _by_eos(env: Environment, source: str, target: str, rows: int) -> float:
    messages = env.spark.readStream.format(EosSource.name()).options(
        serviceUrl=env.broker.service_url,
        topic=source,
        startingOffsets="earliest",
        durableSubscription=False,
    )
    name = f"copy-{uuid.uuid4().hex[:8]}"
    with EosSink(env, target, sink_id=name) as sink:
        return _epoch_rate(env, messages.load().writeStream.foreachBatch(sink.sink), rows)


def _by_pulsar_spark(env: Environment, source: str, target: str, rows: int) -> float:
    url = env.broker.service_url
    messages = read_by_pulsar_spark(env.spark.readStream, url, source).load()
    return _epoch_rate(env, stream_by_pulsar_spark(messages, url, target), rows)


def _epoch_rate(env: Environment, writer: DataStreamWriter, rows: int) -> float:
    folder = env.folder / f"copying-{uuid.uuid4().hex[:8]}"
    query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
    query.awaitTermination()
    took_ms = epochs_ms(query)
    if len(took_ms) != 1:
        raise RuntimeError(f"The query had {len(took_ms)} epochs with rows instead of one")
    return 1000 * rows / took_ms[0]


# --- the command line ----------------------------------------------------------------------------


def measure_cli(
    env: Environment, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, Any]]:
    """Return the seconds of processor time, a spread, of ``help`` and of ``status`` on a log of
    10,000 epochs.

    Raises:
        RuntimeError: a command failed.
    """
    tell(f"a commit log of {_LOG_EPOCHS:,} epochs")
    root = env.folder / "cli-log"
    driver = LogDriver(root, "orders")
    driver.claim()
    driver.write_in_bulk(_LOG_EPOCHS)
    driver.claim()
    for _ in range(10):  # with real appends as the newest ones
        driver.write_epoch()
    program = str(Path(sys.executable).with_name("eos"))
    commands = {
        "help": [program, "--help"],
        "status": [program, "recovery", "status", "--commit-log", str(root)],
    }
    tell("the command line")
    return {
        name: vars(Spread.of([_processor_s(command) for _ in range(rounds)], 3))
        for name, command in commands.items()
    }


def _processor_s(command: Sequence[str]) -> float:
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


# --- the tables ---------------------------------------------------------------------------------


def ratios(found: dict[str, Spreads]) -> str:
    """Return the table of docs/performance.md."""
    lines = ["| eos, exactly once | beside | ratio | wanted |", "|---|---|---:|---|"]
    for name, line in LINES.items():
        wanted = f"{'at least' if line.more_is_better else 'at most'} {line.wanted:g}"
        missed = "" if line.is_reached(found[name]) else ", missed"
        unit = "" if line.peer else " s"
        lines.append(
            f"| {line.text} | {line.peer} | {line.ratio(found[name]):g}{unit} | {wanted}{missed} |"
        )
    return "\n".join(lines) + "\n"


def figures(results: dict[str, Any]) -> str:
    """Return the table of docs/measured.md."""
    lines = [
        f"{results['machine']['cores']} cores; one run of {results['took_s'] / 60:.0f} minutes; "
        "eos's claim is not timed.",
        "",
        "| | eos: median, lowest to highest | beside |",
        "|---|---|---|",
    ]
    for name, line in LINES.items():
        found = results["lines"][name]
        peer = f"{line.peer}: {_spread(found['peer'], line)}" if "peer" in found else ""
        lines.append(f"| {line.text}, {line.unit} | {_spread(found['eos'], line)} | {peer} |")
    return "\n".join(lines) + "\n"


def _spread(spread: dict[str, Any], line: Line) -> str:
    digits = {"rows/s": ",.0f", "ms": ",.0f", "s": ".1f", "processor s": ".2f"}[line.unit]
    middle, low, high = (format(spread[at], digits) for at in ("median", "lowest", "highest"))
    return f"{middle}, {low} to {high}"


def quick(
    out: OutFolder = OUT,
    page: Page = None,
    ratios_page: Annotated[
        Path | None, typer.Option(help="Also put the ratios between the marks in this file.")
    ] = None,
) -> None:
    """Measure the main figures, each beside its peer; write table.json."""
    console, tell = progress()
    began = time.monotonic()
    for one in (page, ratios_page):
        if one is not None:
            split_at(one, _MARKER)  # fails now, and not after the run
    jars = built_jars(tell)
    if not jars:
        raise typer.Exit(2)  # most lines are beside pulsar-spark; the reason was told
    with environment(jars) as env:
        found = measure(env, tell)
    results = {"machine": machine(), "took_s": round(time.monotonic() - began), "lines": found}
    publish(results, out / "table.json", figures(results), page)
    if ratios_page is not None:
        put_between(ratios_page, ratios(found), _MARKER)
    table = Table("", "beside", "ratio", "wanted")
    for name, line in LINES.items():
        color = "green" if line.is_reached(found[name]) else "red"
        table.add_row(
            line.text, line.peer, f"[{color}]{line.ratio(found[name]):g}[/]", f"{line.wanted:g}"
        )
    console.print(table)
