"""The cost of a commit log at epoch 100,000, compared with epoch 100; many logs at once."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.environment import Spread, percentile, timed_s
from bench.publish import OUT, OutFolder, publish
from eos.commit_log import CommitLog, list_sinks
from eos.commit_log.schema import to_table
from eos.ids import MessageId, TxnId
from eos.protocol import LogRecord, State
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.task_report import PartitionFigures

QUERY: Final = "6f2c7a52-9c3e-4b5f-8d0a-1b2c3d4e5f60"
REAL_EPOCHS: Final = 1_000  # the newest ones of the long log: real appends, with compaction
BULK_ROWS: Final = 30_000
COMMITS_PER_EPOCH: Final = 3  # OPEN, PREPARED, COMMITTED


def epoch_records(claim: LogRecord, epoch: int, mark: uuid.UUID) -> Iterator[LogRecord]:
    """Yield OPEN, PREPARED and COMMITTED of one epoch, as a driver writes them."""
    opened = LogRecord.opened(
        claim,
        query_id=QUERY,
        epoch=str(epoch),
        attempt=1,
        opened_at=datetime.now(UTC),
        participants=[
            replace(
                pulsar_part(claim),
                txn=TxnId(epoch % 16, epoch),
                ttl_ms=600_000,
                mark_id=MessageId(7, epoch),
                mark_uuid=str(mark),
            )
        ],
    )
    figures = tuple(
        PartitionFigures(
            topic=f"persistent://public/default/orders-partition-{n}",
            producers=(f"standalone-0-{epoch * 4 + n}",),
            records=1000,
            bytes=100_000,
            checksum=epoch + n,
            first_id=MessageId(9, epoch),
            last_id=MessageId(9, epoch),
        )
        for n in range(4)
    )
    part = replace(pulsar_part(opened), partitions=figures, receipt_id=MessageId(7, epoch + 1))
    prepared = opened.advance(State.PREPARED, claim=claim, participants=[part])
    yield opened
    yield prepared
    yield prepared.advance(State.COMMITTED, claim=claim)


def new_claim(sink_id: str) -> LogRecord:
    """Return the claim of a new run."""
    return LogRecord.claimed(
        sink_id=sink_id,
        run_id=str(uuid.uuid4()),
        participants=[
            PulsarPart(
                service_url="pulsar://localhost:6650",
                receipt_topic=f"persistent://public/default/__eos-receipts-{sink_id}-1",
            )
        ],
    )


class LogDriver:
    """A sink's log, with the operations of a driver."""

    def __init__(self, root: Path, sink_id: str) -> None:
        self._root = root
        self._sink_id = sink_id
        self.log = CommitLog.open(root, sink_id)
        self.epoch = 0

    def claim(self) -> None:
        """Open the log again and claim the sink, like a restart."""
        self.log = CommitLog.open(self._root, self._sink_id)
        self.log.append(new_claim(self._sink_id))

    def write_epoch(self) -> list[float]:
        """Append the records of one epoch; return the seconds of each append."""
        took = []
        claim = self.log.history.last_claim
        assert claim is not None
        for record in epoch_records(claim, self.epoch, uuid.uuid4()):
            start = time.perf_counter()
            self.log.append(record)
            took.append(time.perf_counter() - start)
        self.epoch += 1
        return took

    def write_in_bulk(self, epochs: int) -> None:
        """Write the rows that ``epochs`` epochs of appends leave, in a few large commits."""
        claim = self.log.history.last_claim
        assert claim is not None
        seq, rows = self.log.history.last_seq, []
        table = DeltaTable(self.log.uri)
        for epoch in range(epochs):
            for record in epoch_records(claim, epoch, uuid.uuid4()):
                seq += 1
                rows.append(replace(record, seq=seq, written_at=datetime.now(UTC)))
            if len(rows) >= BULK_ROWS or epoch == epochs - 1:
                write_deltalake(
                    table,
                    to_table(*rows),
                    mode="append",
                    commit_properties=CommitProperties(
                        app_transactions=[Transaction(f"eos/{self._sink_id}", seq)]
                    ),
                )
                rows.clear()
        self.epoch = epochs
        CommitLog.open(self._root, self._sink_id).compact()


def age_commits(table: Path, epoch_every_s: float) -> None:
    """Make the commits as old as if an epoch had been written every ``epoch_every_s``."""
    # Commits are deleted by age; this run writes in a minute as many epochs as a query in hours.
    newest = DeltaTable(table).version()
    for path in (table / "_delta_log").glob("0*"):  # commits and checkpoints, by their version
        age_s = (newest - int(path.name[:20])) // COMMITS_PER_EPOCH * epoch_every_s
        os.utime(path, (time.time() - age_s,) * 2)


def measure_logs(
    root: Path, epochs: int, rounds: int, epoch_every_s: float, console: Console
) -> dict[str, Any]:
    """Time append, claim, status, restart of a short and a long log; ratios are long to short."""
    short, long = LogDriver(root, "short"), LogDriver(root, "long")
    short.claim()
    long.claim()
    for _ in track(range(100), "100 epochs", console=console):
        short.write_epoch()
    # Everything measured consists of real appends, too.
    long.write_in_bulk(epochs - REAL_EPOCHS)
    long.claim()
    for _ in track(range(REAL_EPOCHS), f"to epoch {epochs:,}", console=console):
        long.write_epoch()
    for driver in (short, long):
        age_commits(Path(driver.log.uri), epoch_every_s)
        driver.log.compact()  # both begin a new round of compaction
    actions: dict[str, Callable[[LogDriver], list[float]]] = {
        "append": LogDriver.write_epoch,
        "claim": lambda driver: [timed_s(driver.claim)],
        "status": lambda driver: [
            timed_s(lambda: CommitLog.open_read_only(root, driver.log.sink_id).history)
        ],
        "restart": lambda driver: [timed_s(lambda: CommitLog.open(root, driver.log.sink_id))],
    }
    times: dict[str, dict[str, list[float]]] = {name: {"short": [], "long": []} for name in actions}
    for number in track(range(rounds), "measuring", console=console):
        # In turn: other load of the machine affects both.
        both = [("short", short), ("long", long)]
        for name, action in actions.items():
            for which, driver in both if number % 2 else reversed(both):
                times[name][which] += action(driver)
    return {
        name: {
            "short": _in_ms(found["short"]),
            "long": _in_ms(found["long"]),
            "ratio": round(statistics.median(found["long"]) / statistics.median(found["short"]), 3),
        }
        for name, found in times.items()
    }


def _in_ms(seconds: list[float]) -> dict[str, Any]:
    return vars(Spread.of([1000 * second for second in seconds], digits=2))


def many_at_once(root: Path, count: int, epochs: int) -> dict[str, Any]:
    """Time appends of ``count`` sinks below one root at the same time, each in its own thread."""
    drivers = [LogDriver(root, f"sink-{number}") for number in range(count)]
    for driver in drivers:
        driver.claim()

    def work(driver: LogDriver) -> list[float]:
        return [seconds for _ in range(epochs) for seconds in driver.write_epoch()]

    with ThreadPoolExecutor(count) as pool:
        times = [second for found in pool.map(work, drivers) for second in found]
    # The log has the claim, and three records of each epoch.
    lost = sum(1 + 3 * epochs - driver.log.history.last_seq for driver in drivers)
    lost += sum(1 + 3 * epochs - len(driver.log.records()) for driver in drivers)
    return {
        "sinks": count,
        "appends": len(times),
        "lost": lost,
        "p50_ms": round(statistics.median(times) * 1000, 1),
        "p99_ms": round(percentile(times, 0.99) * 1000, 1),
    }


def list_many(root: Path, count: int) -> dict[str, Any]:
    """Time the listing of ``count`` sinks."""
    first = CommitLog.open(root, "sink-0")
    first.append(new_claim("sink-0"))
    for number in range(1, count):
        shutil.copytree(root / "sink-0", root / f"sink-{number}")
    seconds = [timed_s(lambda: list_sinks(root)) for _ in range(5)]
    assert len(list_sinks(root)) == count
    return {"sinks": count, "list_ms": round(statistics.median(seconds) * 1000, 1)}


def log(
    epochs: Annotated[int, typer.Option(help="Epochs of the long log.")] = 100_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 60,
    epoch_every_s: Annotated[float, typer.Option(help="Assumed seconds between epochs.")] = 1.0,
    out: OutFolder = OUT,
) -> None:
    """Time a commit log after 100 and after 100,000 epochs; write log.json and log.png."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="eos-bench-log-") as folder:
        root = Path(folder)
        results = {
            "epochs": {"short": 100, "long": epochs},
            "epoch_every_s": epoch_every_s,
            "log": measure_logs(root / "two", epochs, rounds, epoch_every_s, console),
            "many": many_at_once(root / "many", 50, 10),
            "listing": list_many(root / "listed", 1000),
        }
    publish(results, out / "log.json")
    draw_logs(results, out / "log.png")
    show_logs(results, console)
    console.print(f"{out}/log.json, {out}/log.png")


TARGET: Final = 1.2  # of the ratios: the long log's time to the short log's


def draw_logs(results: dict[str, Any], path: Path) -> None:
    """Draw medians with their spread, short next to long, a group for each operation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    names = list(results["log"])
    for offset, which in ((-0.2, "short"), (0.2, "long")):
        spreads = [results["log"][name][which] for name in names]
        medians = [spread["median"] for spread in spreads]
        below = [spread["median"] - spread["p10"] for spread in spreads]
        above = [spread["p90"] - spread["median"] for spread in spreads]
        label = f"epoch {results['epochs'][which]:,}"
        places = [place + offset for place in range(len(names))]
        axes.bar(places, medians, 0.4, yerr=[below, above], capsize=3, label=label)
    labels = [f"{name}\nratio {results['log'][name]['ratio']}" for name in names]
    axes.set_xticks(range(len(names)), labels)
    axes.set_ylabel("milliseconds (median, 10th to 90th percentile)")
    axes.set_title("What the commit log costs, by how long it has been written")
    axes.legend()
    figure.savefig(path, dpi=120)


def show_logs(results: dict[str, Any], console: Console) -> None:
    """Print the table."""
    short, long = (f"epoch {results['epochs'][which]:,}" for which in ("short", "long"))
    table = Table("median (10 % .. 90 %), ms", short, long, "ratio", f"target {TARGET}")
    for name, found in results["log"].items():
        cells = [
            f"{found[w]['median']} ({found[w]['p10']} .. {found[w]['p90']})"
            for w in ("short", "long")
        ]
        reached = "[green]yes[/]" if found["ratio"] <= TARGET else "[red]no[/]"
        table.add_row(name, *cells, str(found["ratio"]), reached)
    console.print(table)
    many, listed = results["many"], results["listing"]
    console.print(
        f"{many['sinks']} sinks at once: {many['appends']:,} appends, {many['lost']} lost, "
        f"p50 {many['p50_ms']} ms, p99 {many['p99_ms']} ms. "
        f"{listed['sinks']:,} sinks listed in {listed['list_ms']} ms."
    )
