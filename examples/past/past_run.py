"""The run: flights to a topic, to S3 and to a table; the same SQL before and after."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import fastavro
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import eos
from eos.chaos.cluster.spark_env import local_cluster, spark_env
from eos.testing import PulsarStandalone, offload, offloading_to_s3, rolling
from eos.testing.maven import delta_jars
from examples._demo.demo_command import DemoFailed, log_tail
from examples._demo.demo_topic import read_all
from examples.flights.flight_files import read_flights
from examples.past.s3_server import s3_server

ROUNDS: Final = 5
_TOPIC: Final = "flights"
_URL: Final = f"persistent://public/default/{_TOPIC}"
_PATH: Final = f"/v2/persistent/public/default/{_TOPIC}"
_COLUMNS: Final = {"time_hour": "TIMESTAMP", "carrier": "STRING", "arr_delay": "BIGINT"}
_BUCKET: Final = "cold"
_READER: Final = "dashboard"
# As of a producer that sends all the time: some forty flights in an entry.
_BATCH_BYTES: Final = 4096
_ENTRIES_PER_LEDGER: Final = 400
_PART_MB: Final = 2
_IDLE_S: Final = 3
_PATIENCE_S: Final = 120.0

ByCarrier = dict[str, tuple[int, int | None]]
"""By carrier: flights, and the sum of their minutes late."""


@dataclass(frozen=True)
class PastAndPresent:
    """The flights by time: those before the last week, and those in it.

    ``since``: the query needs those from then on; it is in the past.
    """

    past: pa.Table
    present: pa.Table
    since: datetime

    def answer(self, since: datetime | None = None) -> ByCarrier:
        """Return the query's answer by pyarrow; without ``since`` that over all flights."""
        return answer_in(pa.concat_tables([self.past, self.present]), since)


def split(rows: int | None = None) -> PastAndPresent:
    """Return all flights of the package, or the first ``rows``."""
    flights = read_flights().sort_by("time_hour").slice(0, rows)
    times = flights["time_hour"]
    first, last = times[0].as_py(), times[-1].as_py()
    is_past = pc.less(times, pa.scalar(last - timedelta(days=7), times.type))
    since = first + (last - first) * 5 / 6  # of the whole year: November and December
    return PastAndPresent(
        flights.filter(is_past),
        flights.filter(pc.invert(is_past)),
        since.replace(hour=0, minute=0, second=0, microsecond=0),
    )


def answer_in(flights: pa.Table, since: datetime | None = None) -> ByCarrier:
    """Return the query's answer over a table; without ``since`` that over all of it."""
    times = flights["time_hour"]
    if since is not None:
        flights = flights.filter(pc.greater_equal(times, pa.scalar(since, times.type)))
    grouped = flights.group_by("carrier").aggregate([("carrier", "count"), ("arr_delay", "sum")])
    rows = grouped.select(["carrier", "carrier_count", "arr_delay_sum"]).to_pylist()
    return {carrier: (count, late) for carrier, count, late in (row.values() for row in rows)}


def sql(since: datetime | None) -> str:
    """Return the query; without ``since`` that over all flights."""
    where = "" if since is None else f"WHERE time_hour >= '{since:%Y-%m-%d}'\n"
    select = "SELECT carrier, count(*) AS flights, sum(arr_delay) AS minutes_late\n"
    return f"{select}FROM flights\n{where}GROUP BY carrier"


def scans_of(plan: str) -> str:
    """Return the scans of a formatted plan of Spark: what they read, and the filters they take."""
    lines = []
    for scan, details in re.findall(r"^\(\d+\) (.*Scan.*)\n((?:.+\n)*)", plan, re.MULTILINE):
        kept = [one for one in details.splitlines() if one.startswith(("Pushed", "ReadSchema"))]
        lines += [scan.strip(), *(f"  {one}" for one in kept)]
    return "\n".join(lines)


@dataclass(frozen=True)
class AskedWay:
    """A way of asking.

    Attributes:
        answer, everything: with and without the WHERE clause.
        seconds, broker_s: of the rounds of the former: the median of their times, and the mean of
            the broker's processor times, which it counts in hundredths.
        idle: the broker's processor seconds in a second without a query.
    """

    answer: ByCarrier
    everything: ByCarrier
    seconds: float
    broker_s: float
    idle: float


@dataclass(frozen=True)
class PastRun:
    """What was written, found and measured.

    Attributes:
        by_others: the answer over all flights by deltalake and pulsar-client.
        ledgers, objects: in the topic and in the bucket, before and after archiving.
        files: of the table: those that the query read, and all.
    """

    flights: PastAndPresent
    topic: AskedWay
    history: AskedWay
    by_others: ByCarrier
    archived_rows: int
    ledgers: tuple[int, int]
    objects: tuple[int, int]
    files: tuple[int, int]
    plan: str


def play(
    flights: PastAndPresent, folder: Path, spark_log: Path, log: Callable[[str], None]
) -> PastRun:
    """Run the demo's job.

    Raises:
        DemoFailed: a part of it failed.
    """
    with ExitStack() as stack:
        log("starting an S3 server, a Pulsar broker that offloads to it, and Spark")
        url, bucket = stack.enter_context(_s3_server())
        broker = stack.enter_context(_broker(url, folder))
        try:
            spark = stack.enter_context(_spark(folder, spark_log))
            return _Scenario(broker, spark, bucket, folder, log).play(flights)
        except PySparkException as error:
            raise DemoFailed(f"{error}.\n{log_tail(spark_log)}") from None


@contextmanager
def _s3_server() -> Iterator[tuple[str, Any]]:
    """Yield the URL and the files of an S3 server with an empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs each request
    server = s3_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"127.0.0.1:{server.port}"
        files = fs.S3FileSystem(
            access_key="demo",
            secret_key="demodemo",
            endpoint_override=address,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        files.create_dir(_BUCKET)
        yield f"http://{address}", files
    finally:
        server.shutdown()
        server.server_close()


def _broker(s3_url: str, folder: Path) -> PulsarStandalone:
    # In Docker it would find neither the offloader nor the S3 server.
    os.environ |= {"EOS_BROKER": "maven"}
    os.environ |= {"ACCESS_KEY_ID": "demo", "ACCESS_KEY_SECRET": "demodemo"}
    config = offloading_to_s3(s3_url, _BUCKET, folder / "offloader")
    return PulsarStandalone(config=config | rolling(_ENTRIES_PER_LEDGER))


@contextmanager
def _spark(folder: Path, log: Path) -> Iterator[SparkSession]:
    os.environ |= spark_env(folder, path=(Path(__file__).parents[2],))
    builder = (
        local_cluster("past", str(folder), rows_per_step=10_000)
        .master("local[2]")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        # The defaults, 200 and 50, are for clusters.
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.databricks.delta.snapshotPartitions", "2")
    )
    handler, errors = signal.getsignal(signal.SIGINT), os.dup(2)
    # The JVM inherits the file for its log. PySpark replaces the demo's handler of Ctrl-C.
    with log.open("w") as file:
        os.dup2(file.fileno(), 2)
        try:
            spark = builder.getOrCreate()
        finally:
            os.dup2(errors, 2)
            os.close(errors)
            signal.signal(signal.SIGINT, handler)
    try:
        yield spark
    finally:
        # In another thread: a signal may have left this one's connection with half an answer.
        stopping = threading.Thread(target=spark.stop)
        stopping.start()
        stopping.join()


@dataclass(frozen=True)
class _Scenario:
    broker: PulsarStandalone
    spark: SparkSession
    bucket: Any
    folder: Path
    log: Callable[[str], None]

    def play(self, flights: PastAndPresent) -> PastRun:
        with eos.PulsarClient(self.broker.service_url) as client:
            client.create_unpartitioned(_URL)
        # Until its messages are archived, another reader's subscription keeps them.
        first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        self.broker.admin("PUT", f"{_PATH}/subscription/{_READER}", first)
        self._write("past", flights.past)
        self._offload()
        until = datetime.now(UTC)
        self._write("present", flights.present)
        urls = {"serviceUrl": self.broker.service_url, "adminUrl": self.broker.admin_url}
        # Two tasks, one for each core.
        options = {**urls, "topic": _TOPIC, "schema": "auto", "minPartitions": "2"}
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        self.log("the query over the topic, through the broker")
        source = self.spark.read.format("pulsar").options(**options).schema(columns)
        topic = self._ask(source.load(), flights.since)
        before = self._kept()
        self._archive(until)
        after = self._kept()
        self.log("the query over the table and the rest of the topic, by eos.history")
        frame = eos.history(self.spark, self._table, columns=columns, **options)
        history = self._ask(frame, flights.since)
        recent = self.spark.sql(sql(flights.since))
        plan = self.spark.sql(f"EXPLAIN FORMATTED {sql(flights.since)}").collect()[0][0]
        self.log("deltalake and pulsar-client count all flights")
        archived, rest = self._read_plainly()
        return PastRun(
            flights,
            topic,
            history,
            answer_in(pa.concat_tables([archived, rest])),
            archived.num_rows,
            ledgers=(before[0], after[0]),
            objects=(before[1], after[1]),
            files=(len(recent.inputFiles()), len(DeltaTable(self._table).file_uris())),
            plan=scans_of(plan),
        )

    @property
    def _table(self) -> str:
        return str(self.folder / "table")

    def _write(self, name: str, flights: pa.Table) -> None:
        self.log(f"writing {len(flights):,} flights, the {name}, to the topic")
        file = self.folder / f"{name}.parquet"
        pyarrow.parquet.write_table(flights, file)
        options = {
            "serviceUrl": self.broker.service_url,
            "topic": _TOPIC,
            "schema": "avro",
            "maxBatchBytes": str(_BATCH_BYTES),
            "commitLog": str(self.folder / "log"),
            "sinkId": "flights",
            "epoch": name,
        }
        frame = self.spark.read.parquet(str(file)).coalesce(1)  # one task keeps the order
        frame.write.format("pulsar").mode("append").options(**options).save()

    def _offload(self) -> None:
        offload(self.broker, _URL, timeout_s=_PATIENCE_S)
        self.log(f"the broker has offloaded its old ledgers: {self._kept()[1]} objects in S3")

    def _kept(self) -> tuple[int, int]:
        """Return the ledgers of the topic, and the objects in the bucket."""
        ledgers = self.broker.admin("GET", f"{_PATH}/internalStats")["ledgers"]
        return len(ledgers), len(self.bucket.get_file_info(fs.FileSelector(_BUCKET)))

    def _archive(self, until: datetime) -> None:
        command = ["eos", "catalog", "archive", _TOPIC, self._table, "--part-mb", str(_PART_MB)]
        command += ["--until", until.isoformat(timespec="milliseconds"), "--trim"]
        self.log(" ".join(command))
        urls = ["--service-url", self.broker.service_url, "--admin-url", self.broker.admin_url]
        ended = subprocess.run(
            [sys.executable, "-m", *command, *urls], capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise DemoFailed(f"eos catalog archive failed: {ended.stderr}")
        self.log(ended.stdout.partition(": ")[0])
        self.broker.admin("POST", f"{_PATH}/subscription/{_READER}/skip_all")
        self.log("the other reader has read all: the broker deletes the archived messages")
        # Ledger by ledger, over seconds. The archive ends after the last one that is in S3.
        _await(lambda: not self._kept()[1], "The broker has not deleted what is archived")

    def _ask(self, frame: DataFrame, since: datetime) -> AskedWay:
        frame.createOrReplaceTempView("flights")
        everything = self._answer(None)  # to warm up, too
        used_s = [self._used_s()]
        for _ in range(_IDLE_S):
            time.sleep(1)
            used_s.append(self._used_s())
        seconds = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            answer = self._answer(since)
            seconds.append(time.perf_counter() - began)
        broker_s = (self._used_s() - used_s[-1]) / ROUNDS
        # Earlier work may go on in the broker for a while.
        idle = min(later - before for before, later in pairwise(used_s))
        return AskedWay(answer, everything, statistics.median(seconds), broker_s, idle)

    def _answer(self, since: datetime | None) -> ByCarrier:
        rows = self.spark.sql(sql(since)).collect()
        return {row.carrier: (row.flights, row.minutes_late) for row in rows}

    def _used_s(self) -> float:
        assert self.broker.pid is not None
        used = psutil.Process(self.broker.pid).cpu_times()
        return float(used.user + used.system)

    def _read_plainly(self) -> tuple[pa.Table, pa.Table]:
        """Return the table by deltalake, and the later messages by pulsar-client."""
        names = list(_COLUMNS)
        table = DeltaTable(self._table).to_pyarrow_table(columns=[*names, "__ledger", "__entry"])
        places = zip(table["__ledger"].to_pylist(), table["__entry"].to_pylist(), strict=True)
        end = max(places)
        schema = self.broker.admin("GET", f"/v2/schemas/public/default/{_TOPIC}/schema")["data"]
        parsed = fastavro.parse_schema(json.loads(schema))
        later = []
        for message in read_all(self.broker.service_url, _URL):
            place = message.message_id()
            if (place.ledger_id(), place.entry_id()) > end:
                row = fastavro.schemaless_reader(io.BytesIO(message.data()), parsed, None)
                later.append({name: row[name] for name in names})
        archived = table.select(names)
        return archived, pa.Table.from_pylist(later, archived.schema)


def _await(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise DemoFailed(f"{otherwise} after {_PATIENCE_S:.0f} s")
        time.sleep(0.5)
