"""``make demo-table``: a driver is killed between the two commits; recovery without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Final

import pulsar
from deltalake import DeltaTable, QueryBuilder
from rich.console import Console
from rich.table import Table

from eos.recovery.resolve import resolve
from eos.standalone import PulsarStandalone
from examples.flights.data import Flights, prepare

ROWS: Final = 60_000
EPOCHS: Final = 6
TOPIC: Final = "persistent://public/default/flights"
KILL: Final = "ending-part=kill@7"
"""Of the fourth epoch: its transaction is committed, and its files are not."""


def main() -> None:
    """Run it; exit code 1 when topic and table are not what went in, each flight once."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder, PulsarStandalone() as broker:
        flights = prepare(Path(folder, "input"), rows=ROWS, epochs=EPOCHS)
        shown = Table("", "in the topic", "in the table", title=f"{ROWS:,} flights")
        _drive(broker, folder, kill=True)
        _show(shown, "the driver was killed between the two commits", broker, folder)
        resolve("flights", commit_log=f"{folder}/log")
        _show(shown, "eos recovery has finished the epoch, without Spark", broker, folder)
        _drive(broker, folder, kill=False)
        topic, table = _show(shown, "a new driver has written the rest", broker, folder)
        console.print(shown)
        is_good = topic == table == Counter(_ids(flights))
    console.print("[green]each flight once in both[/]" if is_good else "[red]they differ[/]")
    sys.exit(0 if is_good else 1)


def _drive(broker: PulsarStandalone, folder: str, *, kill: bool) -> None:
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "EOS_FAILPOINTS": KILL if kill else "",
    }
    command = [sys.executable, "-m", "examples.topic_and_table.driver"]
    with Path(folder, "driver.log").open("ab") as log:
        ended = subprocess.run(
            [*command, broker.service_url, TOPIC, folder],
            env=environment,
            stdout=log,
            stderr=log,
            check=False,
        )
    if (ended.returncode != 0) is not kill:
        sys.stderr.write(Path(folder, "driver.log").read_text()[-4000:])
        sys.exit(f"the driver ended with {ended.returncode}")


def _show(
    shown: Table, when: str, broker: PulsarStandalone, folder: str
) -> tuple[Counter[int], Counter[int]]:
    topic, table = _in_topic(broker.service_url), _in_table(f"{folder}/table")
    shown.add_row(when, f"{topic.total():,}", f"{table.total():,}")
    return topic, table


def _in_topic(service_url: str) -> Counter[int]:
    """What a plain client reads."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(service_url, logger=logger)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found: Counter[int] = Counter()
    while reader.has_message_available():
        found[json.loads(reader.read_next(timeout_millis=10_000).data())["id"]] += 1
    client.close()
    return found


def _in_table(uri: str) -> Counter[int]:
    """What a plain reader of Delta finds."""
    rows = QueryBuilder().register("flights", DeltaTable(uri))
    batches = rows.execute("select id from flights").read_all()
    return Counter(batches["id"].to_pylist())


def _ids(flights: Flights) -> range:
    return range(flights.rows)


if __name__ == "__main__":
    main()
