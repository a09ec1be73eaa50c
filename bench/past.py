"""The past of a topic: offloaded ledgers by each way, an archive, and SQL over both."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final
from unittest.mock import patch

import pyarrow as pa
import typer
from pyarrow import fs
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

import eos
from bench.environment import (
    BROKER,
    Environment,
    Spread,
    environment,
    interleaved_rates,
    interleaved_seconds,
    machine,
)
from bench.publish import OUT, OutFolder, Page, progress, publish
from bench.reading import read_all, read_next
from eos.client import PulsarClient
from eos.sources import PulsarDataSource
from eos.sources.archive import Archive
from eos.testing import offload, offloading_to_s3, rolling
from eos.wire.batch import Compression, Rows, encode_batches

_BUCKET: Final = "cold"
_VALUE_BYTES: Final = 100
_LEDGER_ENTRIES: Final = 500
_OFFLOADING_S: Final = 600.0
_LATENCY_S: Final = 0.03
_KEYS: Final = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "benchbench"}

SHAPES: Final = ("large", "LZ4", "single")
LATENCIES: Final = {"": 0.0, " +30 ms": _LATENCY_S}
WAYS: Final = {
    "direct": "**eos**, from the bucket",
    "broker": "eos, through the broker",
    "two_direct": "**eos**, from the bucket, two processes",
    "two_broker": "eos, through the broker, two processes",
    "client": "`pulsar-client`, `read_next`",
    "spark_direct": "**eos** in Spark, from the bucket, two tasks",
    "spark_broker": "eos in Spark, through the broker, two tasks",
}


class Store:
    """An S3 server: moto while ledgers are offloaded, then a small one that is no bottleneck."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / _BUCKET).mkdir(parents=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.set_latency(0)

    def set_latency(self, seconds: float) -> None:
        """Let each answer wait."""
        (self._folder / "latency").write_text(str(seconds))

    def start(self, *module: str) -> None:
        """Start a module with its arguments, in place of the one that runs."""
        self.stop()
        self._process = subprocess.Popen(
            [sys.executable, "-m", *module, str(self._port)],
            cwd=Path(__file__).parents[1],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=5).close()
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def create_bucket(self) -> None:
        """Create the bucket of the offloaded ledgers."""
        self._files().create_dir(_BUCKET)

    def _files(self) -> Any:
        host = self.url.partition("://")[2]
        return fs.S3FileSystem(endpoint_override=host, scheme="http", allow_bucket_creation=True)

    def serve_copies(self) -> None:
        """Copy all objects, and serve them by the small server."""
        fs.copy_files(_BUCKET, str(self._folder / _BUCKET), source_filesystem=self._files())
        self.start("bench", "object-server", str(self._folder))

    def stop(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _keys(url: str) -> AbstractContextManager[Any]:
    """The keys, for this process, its tasks and the broker, while it lasts."""
    given = {**_KEYS, "AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}
    given |= {"ACCESS_KEY_ID": "bench", "ACCESS_KEY_SECRET": "benchbench"}
    return patch.dict(os.environ, given)


def fill(env: Environment, topic: str, rows: int, shape: str) -> None:
    """Write ``rows`` values, and offload all full ledgers."""
    path = f"/v2/persistent/public/default/{topic}"
    per_entry = 1 if shape == "single" else 1000
    codec = Compression.LZ4 if shape == "LZ4" else Compression.NONE
    values = [os.urandom(_VALUE_BYTES // 2).hex().encode() for _ in range(20_000)]
    with PulsarClient(env.broker.service_url) as client:
        producer = client.entry_producer(topic, create=True)
        first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        env.broker.admin("PUT", f"{path}/subscription/keeps-it", first)
        for start in range(0, rows, len(values)):
            some = Rows(value=pa.array(values[: rows - start]))
            for encoded in encode_batches(some, max_batch_messages=per_entry, compression=codec):
                producer.send_batch(encoded)
        producer.close()
    offload(env.broker, f"persistent://public/default/{topic}", timeout_s=_OFFLOADING_S)


def _options(env: Environment, topic: str, *, is_direct: bool) -> dict[str, str]:
    broker = env.broker
    common = {"serviceUrl": broker.service_url, "adminUrl": broker.admin_url, "topic": topic}
    return common | ({"tieredStorage": f"s3://{_BUCKET}"} if is_direct else {})


def _by_eos(env: Environment, topic: str, rows: int, *, is_direct: bool) -> float:
    assert _read(_options(env, topic, is_direct=is_direct)) == rows
    return rows


def _read(options: dict[str, str], share: slice = slice(None)) -> int:
    """Read these of the source's tasks; return the rows."""
    reader = PulsarDataSource(options).reader(StructType().add("value", "binary"))
    found = 0
    for part in reader.partitions()[share]:
        batches: Iterator[Any] = iter(reader.read(part))
        found += sum(batch.num_rows for batch in batches)
    return found


def _by_two(two: ProcessPoolExecutor, options: dict[str, str], rows: int) -> float:
    given = options | {"minPartitions": "2"}
    halves = [two.submit(_read, given, slice(number, None, 2)) for number in range(2)]
    assert sum(half.result() for half in halves) == rows
    return rows


def _by_spark(env: Environment, topic: str, rows: int, *, is_direct: bool) -> float:
    given = _options(env, topic, is_direct=is_direct) | {"minPartitions": "2"}
    return read_all(env.spark.read.format("pulsar").options(**given).load(), rows)


def ledgers(
    env: Environment,
    store: Store,
    rows: Mapping[str, int],
    rounds: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Return rows per second of each way, and the broker's processor time for a million rows."""
    ways: dict[str, Callable[[], float]] = {}
    two = ProcessPoolExecutor(2, get_context("spawn"))  # not copies, with locks of threads
    used_s: dict[str, list[float]] = {}

    def counted(name: str, latency_s: float, way: Callable[[], float]) -> float:
        store.set_latency(latency_s)
        before = env.processor_s()[BROKER]
        done = way()
        used_s.setdefault(name, []).append((env.processor_s()[BROKER] - before) / done * 1e6)
        return done

    for shape, count in rows.items():
        plain = partial(read_next, env.broker.service_url, shape, count)
        by: dict[str, Callable[[], float]] = {"client": plain}
        for name, is_direct in (("direct", True), ("broker", False)):
            by[name] = partial(_by_eos, env, shape, count, is_direct=is_direct)
            if shape == "large":
                given = _options(env, shape, is_direct=is_direct)
                by[f"two_{name}"] = partial(_by_two, two, given, count)
                by[f"spark_{name}"] = partial(_by_spark, env, shape, count, is_direct=is_direct)
        for name, way in by.items():
            for text, latency_s in LATENCIES.items():
                key = f"{shape}/{name}{text}"
                ways[key] = partial(counted, key, latency_s, way)
    with two:
        rates = interleaved_rates(env, ways, rounds, tell)
    store.set_latency(0)
    cores = {name: vars(Spread.of(some, 3)) for name, some in used_s.items()}
    return {"rates": rates, "broker_s_per_million": cores}


def archived(env: Environment, rows: int, folder: Path) -> dict[str, Any]:
    """Archive the large topic; return the seconds, and MB of values in each."""
    began = time.monotonic()
    with Archive(_options(env, "large", is_direct=True), str(folder)) as archive:
        archive.limit()
        while archive.add() is not None:
            pass
    took_s = time.monotonic() - began
    return {"s": round(took_s, 2), "mb_per_s": round(rows * _VALUE_BYTES / 1e6 / took_s, 1)}


def sql(
    env: Environment, folder: Path, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Return the seconds of a query over the archive and the rest of its topic, in each way."""
    given: dict[str, Any] = {**_options(env, "large", is_direct=False)}
    table = env.spark.read.format("delta").load(str(folder))
    late = table.selectExpr("percentile(unix_millis(__publishTime), 0.99)").first()
    assert late is not None
    frames: dict[str, DataFrame] = {
        "delta": table,
        "history": eos.history(env.spark, str(folder), **given),
        "option": env.spark.read.format("pulsar")
        .options(**given, history=str(folder), metadata="true")
        .load(),
    }

    sums: dict[str, int] = {}

    def run(frame: DataFrame, where: str) -> float:
        began = time.perf_counter()
        ((total,),) = frame.where(where).agg(functions.expr("sum(length(value))")).collect()
        took_s = time.perf_counter() - began
        if sums.setdefault(where, total) != total:
            raise RuntimeError(f"A query found {total:,} bytes, another one {sums[where]:,}.")
        return took_s

    ways = {
        f"{name}/{what}": partial(run, frame, where)
        for name, frame in frames.items()
        for what, where in (
            ("all", "true"),
            ("last", f"__publishTime >= timestamp_millis({int(late[0])})"),
        )
    }
    for way in ways.values():
        way()
    return interleaved_seconds(env, ways, rounds, tell)


def tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    rates, cores = results["ledgers"]["rates"], results["ledgers"]["broker_s_per_million"]
    counts = results["rows"]
    columns = [shape + late for shape in SHAPES for late in LATENCIES]
    lines = [
        f"{counts['large']:,} values of {_VALUE_BYTES} bytes in offloaded ledgers of "
        f"{_LEDGER_ENTRIES} entries of 1,000 messages, also with LZ4, and {counts['single']:,} in "
        "entries of one. Million rows/s, without latency and with 30 ms for each answer of the "
        "bucket.",
        "",
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, way in WAYS.items():
        keys = [f"{shape}/{name}{late}" for shape in SHAPES for late in LATENCIES]
        cells = [f"{rates[key]['median'] / 1e6:.2f}" if key in rates else "" for key in keys]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    used = {name: cores[f"large/{name}"]["median"] for name in ("direct", "broker")}
    lines += [
        "",
        f"A million rows of large entries cost the broker {used['direct']:.2f} s of processor when "
        f"read from the bucket, {used['broker']:.2f} s through it.",
    ]
    found, took = results["sql"], results["archive"]
    lines += [
        "",
        f"The archive of the first of them: {took['mb_per_s']} MB/s of values. A sum over it:",
        "",
        "| s | all rows | the last 1 % by `__publishTime` |",
        "|---|---:|---:|",
    ]
    for name, text in (
        ("delta", "the table alone, by Spark"),
        ("history", "`eos.history`: table and topic"),
        ("option", "the source's option `history`"),
    ):
        cells = [f"{found[f'{name}/{what}']['median']:.2f}" for what in ("all", "last")]
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def past(
    rows: Annotated[int, typer.Option(help="Rows of the large topics.")] = 3_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 5,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Read offloaded ledgers and archives in each way; write past.json."""
    console, tell = progress()
    counts = {"large": rows, "LZ4": rows, "single": 30_000}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="eos-bench-")))
        store = Store(folder / "store")
        stack.callback(store.stop)
        stack.enter_context(_keys(store.url))
        store.start("examples.past.s3_server")
        store.create_bucket()
        config = offloading_to_s3(store.url, _BUCKET, folder) | rolling(_LEDGER_ENTRIES)
        # What was read once must not come from memory the next time.
        config |= {"managedLedgerCacheSizeMB": "0"}
        del config["managedLedgerOffloadMaxBlockSizeInBytes"]
        env = stack.enter_context(environment(config=config))
        for shape, count in counts.items():
            tell(f"writing and offloading: {shape}")
            fill(env, shape, count, shape)
        store.serve_copies()
        results: dict[str, Any] = {"machine": machine(), "rows": counts}
        results["ledgers"] = ledgers(env, store, counts, rounds, tell)
        results["archive"] = archived(env, rows, folder / "table")
        results["sql"] = sql(env, folder / "table", rounds, tell)
    text = tables(results)
    publish(results, out / "past.json", text, page)
    console.print(text)


# --- a server of objects ------------------------------------------------------------------------

_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a small body waits 40 ms for the headers' acknowledgement
    folder: Path

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def _answer(self, *, has_body: bool) -> None:
        time.sleep(float((self.folder / "latency").read_text()))
        name = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/")
        path = self.folder / name
        if not path.is_file():
            self.send_response(HTTPStatus.NOT_FOUND)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = path.stat().st_size
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(wanted[1]) if wanted else 0
        end = min(size, int(wanted[2]) + 1) if wanted and wanted[2] else size
        self.send_response(HTTPStatus.PARTIAL_CONTENT if wanted else HTTPStatus.OK)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - start))
        self.send_header("ETag", f'"{0:032x}"')  # the offloader parses it as an MD5
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 10:00:00 GMT")
        # The broker's offloader asks for it.
        self.send_header("x-amz-meta-s3managedledgeroffloaderformatversion", "1")
        self.end_headers()
        if has_body:
            self.wfile.flush()
            with path.open("rb") as file:
                while start < end:
                    start += os.sendfile(
                        self.connection.fileno(), file.fileno(), start, end - start
                    )

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def object_server(folder: Path, port: int) -> None:
    """Serve objects as S3 does, at little cost: ``folder/BUCKET/KEY`` is one, ``folder/latency``
    the seconds that each answer waits."""
    _Handler.folder = folder
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()
