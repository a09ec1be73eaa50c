"""The run and its report: a stream of changes under kills, and three outputs beside the truth."""

from __future__ import annotations

import json
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
import psycopg
from deltalake import DeltaTable
from matplotlib import pyplot as plt

from eos.commit_log import CommitLog
from eos.protocol import State
from eos.testing import PostgresServer, PulsarStandalone
from examples._demo.demo_command import Conclusion, DemoFailed, DemoReport, ReportLine, log_tail
from examples._demo.demo_topic import read_all
from examples._demo.epoch_chart import BLUE
from examples._demo.subprocesses import SparkDriver
from examples.cdc.follow_changes import SINK_ID, CdcTask
from examples.cdc.shop import CHANGES, Row, Shop, send

OUTPUTS: Final = ("Delta table", "PostgreSQL", "compacted topic")
KILLS: Final = ("executor", "database", "driver", "broker")
_COLORS: Final = {"the shop": "#777777", "Delta table": BLUE, "PostgreSQL": "#c2571a"}
_TOPIC: Final = "customers"
_BATCH_S: Final = 0.25
_EPOCHS: Final = 4  # between two kills
_SPREAD_S: Final = 2.0
_WAIT_S: Final = 180.0
_SAMPLE_S: Final = 0.5

Customers = dict[int, Row]


@dataclass
class CdcRun:
    """The results.

    Attributes:
        shop: with its rows at the end, the truth.
        found: each output's, by a plain reader.
        kills: their kinds and times.
        samples: time and number of rows, by output.
    """

    shop: Shop
    found: dict[str, Customers] = field(default_factory=dict)
    kills: list[tuple[str, float]] = field(default_factory=list)
    samples: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    epochs: int = 0
    attempts_failed: int = 0
    seconds: float = 0.0

    # Compared whole: also the number of the last change must be that of the shop.
    def counts(self, output: str) -> tuple[int, int, int]:
        """Return how many rows an output lacks, has in addition, and has with wrong values."""
        truth, found = self.shop.rows, self.found[output]
        wrong = sum(found[key] != truth[key] for key in truth.keys() & found.keys())
        return len(truth.keys() - found.keys()), len(found.keys() - truth.keys()), wrong


def play(rate: int, log_file: Path, log: Callable[[str], None]) -> CdcRun:
    """Run the stream with ``rate`` changes a second, kill its parts, and read the outputs.

    Raises:
        DemoFailed: the outputs did not get the newest change.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eos-cdc-")))
        broker = stack.enter_context(PulsarStandalone())
        database = stack.enter_context(PostgresServer())
        os.environ.update(database.environment)
        broker.admin("PUT", f"/v2/persistent/public/default/{CHANGES}/partitions", 2)
        return _Scenario(broker, database, folder, rate, log_file, log).run()


class _Scenario:
    """Producer, job, kills and samples of one run."""

    def __init__(
        self,
        broker: PulsarStandalone,
        database: PostgresServer,
        folder: Path,
        rate: int,
        log_file: Path,
        log: Callable[[str], None],
    ) -> None:
        self._broker, self._database = broker, database
        self._rate, self._log_file, self._log = rate, log_file, log
        (folder / "scratch").mkdir()
        self._task = CdcTask(
            scratch_dir=str(folder / "scratch"),
            checkpoint=str(folder / "checkpoint"),
            service_url=broker.service_url,
            conninfo=database.conninfo,
            table=str(folder / "table"),
            topic=_TOPIC,
            commit_log=str(folder / "log"),
        )
        self._run = CdcRun(Shop(), samples={name: [] for name in _COLORS})
        self._over, self._sent = threading.Event(), threading.Event()
        self._began = time.monotonic()
        self._driver: SparkDriver | None = None
        self._ended = 0  # epochs

    def run(self) -> CdcRun:
        # Daemons: a demo that fails must end, whatever waits for a server.
        threads = [
            threading.Thread(target=target, daemon=True)
            for target in (self._produce, self._sample, self._drive)
        ]
        for thread in threads:
            thread.start()
        try:
            chance = random.Random(1)
            for kind in KILLS:
                self._await_epochs()
                time.sleep(chance.uniform(0.0, _SPREAD_S))
                self._kill(kind)
            self._await_epochs()
            self._sent.set()
            threads[0].join(_WAIT_S)
            self._log(f"{self._run.shop.changes:,} changes are sent; waiting for the last one")
            self._await(self._has_all, "the newest change")
        finally:
            self._over.set()
            for thread in threads:
                thread.join(60)
        return self._finished()

    def _finished(self) -> CdcRun:
        run = self._run
        run.seconds = time.monotonic() - self._began
        records = CommitLog.open_read_only(self._task.commit_log, SINK_ID).records()
        run.epochs = sum(one.state is State.COMMITTED for one in records)
        run.attempts_failed = sum(one.state is State.ABORTED for one in records)
        self._log("reading the three outputs with plain readers")
        run.found = {
            "Delta table": _by_id(DeltaTable(self._task.table).to_pyarrow_table().to_pylist()),
            "PostgreSQL": _by_id(self._rows_in_database()),
            "compacted topic": _in_topic(self._broker.service_url),
        }
        return run

    def _produce(self) -> None:
        def rate() -> int:
            time.sleep(_BATCH_S)
            return 0 if self._sent.is_set() else max(1, round(self._rate * _BATCH_S))

        for _ in send(self._run.shop, self._broker.service_url, rate):
            pass

    def _drive(self) -> None:
        """Run the driver program again whenever it has died."""
        while not self._over.is_set():
            module, scratch = "examples.cdc.follow_changes", Path(self._task.scratch_dir)
            with SparkDriver(module, self._task, self._log_file, scratch) as driver:
                self._driver = driver
                while not self._over.is_set():
                    try:
                        event = driver.next_event(1.0).event
                        if event == "died":
                            break
                        self._ended += event == "end"
                    except TimeoutError:
                        continue

    def _kill(self, kind: str) -> None:
        assert self._driver is not None
        self._run.kills.append((kind, time.monotonic() - self._began))
        if kind == "executor":
            self._log(f"executor killed (pid {self._driver.kill_oldest_executor()})")
        elif kind == "driver":
            self._log(f"driver killed (pid {self._driver.pid}), with all its processes")
            self._driver.kill()
        else:
            server = self._database if kind == "database" else self._broker
            self._log(f"{kind} killed (pid {server.pid})")
            server.kill()
            time.sleep(2)
            if isinstance(server, PostgresServer):
                server.start()
            else:
                server.restart()

    def _sample(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            at = time.monotonic() - self._began
            self._run.samples["the shop"].append((at, len(self._run.shop.rows)))
            try:
                # A server that was just killed is looked at again soon.
                in_table = DeltaTable(self._task.table).to_pyarrow_dataset().count_rows()
                self._run.samples["Delta table"].append((at, in_table))
                self._run.samples["PostgreSQL"].append((at, len(self._rows_in_database())))
            except Exception:
                continue

    def _rows_in_database(self) -> list[Row]:
        with psycopg.connect(self._database.conninfo, connect_timeout=2) as connection:
            cursor = connection.execute("SELECT id, name, city, spent, lsn FROM customers")
            names = [column.name for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    def _has_all(self) -> bool:
        newest = self._run.shop.changes
        return any(row["lsn"] == newest for row in self._rows_in_database())

    def _await_epochs(self) -> None:
        before = self._ended
        self._await(lambda: self._ended >= before + _EPOCHS, "further epochs")

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not condition():
            if time.monotonic() > deadline:
                raise DemoFailed(f"The outputs did not get {what}.\n{log_tail(self._log_file)}")
            time.sleep(0.2)


def _by_id(rows: Sequence[Row]) -> Customers:
    found = {row["id"]: row for row in rows}
    if len(found) < len(rows):
        raise DemoFailed("An output has two rows of a key.")
    return found


def _in_topic(service_url: str) -> Customers:
    found: Customers = {}
    for message in read_all(service_url, _TOPIC):
        key = int(message.partition_key())
        if message.data():
            found[key] = json.loads(message.data())
        else:  # a deletion
            found.pop(key, None)
    return found


def report_on(run: CdcRun) -> DemoReport:
    """Return the report."""
    kills = ", ".join(kind for kind, _ in run.kills)
    return DemoReport(
        title="change data in three outputs",
        conclusion=conclude(run),
        summary=f"{run.shop.changes:,} changes of a shop's customers, {run.shop.deletes:,} of them "
        "deletes, in Debezium's format; by Spark into a Delta table, PostgreSQL and a compacted "
        f"topic, each epoch in all three or in none. Killed meanwhile: {kills}.",
        table_title="the outputs beside the shop",
        columns=OUTPUTS,
        lines=tuple(_lines(run)),
        caption=f"By deltalake, psycopg and pulsar-client. {run.epochs} epochs; "
        f"attempts aborted, whose epochs were written again: {run.attempts_failed}.",
        picture_title="Customers over time",
        picture_caption="Lines at the kills. Each output follows the shop, and ends with its rows.",
    )


def _lines(run: CdcRun) -> Iterator[ReportLine]:
    nothing = (False,) * len(OUTPUTS)
    cells = tuple(f"{len(run.found[output]):,}" for output in OUTPUTS)
    yield ReportLine(f"rows; the shop has {len(run.shop.rows):,}", cells, nothing)
    for n, label in enumerate(("rows missing", "rows too many", "rows with wrong values")):
        numbers = [run.counts(output)[n] for output in OUTPUTS]
        yield ReportLine(label, tuple(f"{n:,}" for n in numbers), tuple(n > 0 for n in numbers))


def conclude(run: CdcRun) -> Conclusion:
    """Judge the outputs by the shop."""
    words = ("rows are missing", "rows are too many", "rows have wrong values")
    found = [
        f"{output}: {count:,} {word}"
        for output in OUTPUTS
        for count, word in zip(run.counts(output), words, strict=True)
        if count
    ]
    unproved = [] if run.attempts_failed else ["no kill hit an epoch"]
    return Conclusion(
        tuple(found),
        tuple(unproved),
        f"After {len(run.kills)} kills all three outputs have the shop's "
        f"{len(run.shop.rows):,} rows.",
    )


def draw(run: CdcRun, *files: Path) -> None:
    """Draw the rows of shop and outputs over time; write the picture to ``files``."""
    figure: Any
    with matplotlib.rc_context({"font.size": 11, "font.family": "DejaVu Sans"}):
        figure, axes = plt.subplots(figsize=(11, 3.8))
        for name, color in _COLORS.items():
            points = run.samples[name]
            # The two tables are mostly equal: one line must be seen behind the other.
            style = {"the shop": ("--", 1.5), "Delta table": ("-", 5.0)}.get(name, ("-", 1.5))
            axes.step(
                [at for at, _ in points], [n for _, n in points], style[0], where="post",
                color=color, linewidth=style[1], label=name,
            )  # fmt: skip
        for n, (kind, at) in enumerate(run.kills):
            axes.axvline(at, color="#b3261e", linewidth=1)
            # At two heights: kills may be close.
            axes.text(
                at, 1.02 + 0.07 * (n % 2), kind, transform=axes.get_xaxis_transform(), fontsize=10
            )
        axes.set_xlabel("seconds")
        axes.set_ylabel("rows")
        axes.yaxis.set_major_formatter("{x:,.0f}")
        axes.set_ylim(bottom=0)
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        for file in files:
            figure.savefig(file, dpi=120, bbox_inches="tight")
        plt.close(figure)
