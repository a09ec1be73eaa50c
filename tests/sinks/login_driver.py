"""Writes and reads with secrets, also where it is refused, at log level DEBUG. See test_logins.py.

python -m tests.sinks.login_driver, with a ``Plan`` as JSON in the first line of its stdin
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from eos import Auth, PulsarSink
from eos.chaos.cluster.spark_env import local_cluster
from tests.support.spark_releases import HAS_DATA_SOURCES


@dataclass(frozen=True)
class Plan:
    """The topics and logins; ``closed_topic`` is one that the role may not write to."""

    service_url: str
    admin_url: str
    folder: str
    topic: str
    closed_topic: str
    logins: dict[str, dict[str, Any]]
    refused: dict[str, dict[str, Any]]


def main() -> None:
    """Write; print each error as a user sees it; keep Spark's UI up until stdin closes."""
    plan = Plan(**json.loads(sys.stdin.readline()))
    logging.basicConfig(level=logging.DEBUG)
    spark = _session(plan)
    rows = spark.range(100).selectExpr("cast(id as string) AS value")
    for way, login in plan.logins.items():
        sink = _sink(plan, way, topic=plan.topic, auth=Auth(**login))
        print(way, sink.write(rows, epoch="a").status, flush=True)
        _write_to_a_closed_topic(plan, way, rows, login)
        if HAS_DATA_SOURCES:
            _write_by_format(plan, way, rows, login)
    if HAS_DATA_SOURCES:
        _read_by_format(spark, plan, plan.logins["token"])
        _read_from_a_catalog(spark, plan, plan.logins["token"])
    slow = rows.selectExpr("repeat('x', 4000) AS value").mapInArrow(_slowly, "value string")
    long = _sink(
        plan, "long", topic=plan.topic, max_batch_bytes=4096, auth=Auth(**plan.logins["oauth2"])
    )
    print("long", long.write(slow, epoch="a").status, flush=True)
    for way, login in plan.refused.items():
        with _Shown(way):
            _sink(plan, way, topic=plan.topic, auth=Auth(**login)).write(rows, epoch="a")
    _stream_to_a_closed_topic(spark, plan)
    print("ui", spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId, flush=True)
    sys.stdin.read()
    spark.stop()


def _slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return rows that take five seconds in each task; the sink sends each row immediately."""
    for batch in batches:
        for row in range(5):
            yield batch.slice(row, 1)
            time.sleep(1)


def _write_to_a_closed_topic(plan: Plan, way: str, rows: DataFrame, login: dict[str, Any]) -> None:
    several = rows.selectExpr(
        "value", f"if(value = '77', '{plan.closed_topic}', '{plan.topic}') AS topic"
    )
    with _Shown(f"{way}-closed"):
        _sink(plan, f"{way}-closed", auth=Auth(**login)).write(several, epoch="a")


def _write_by_format(plan: Plan, way: str, rows: DataFrame, login: dict[str, Any]) -> None:
    """Write to the open topic, and to the closed one."""
    writers = {}
    # Users pass options to Spark through py4j in their own calls, and its log has them.
    with _py4j_at(logging.INFO):
        for name, topic in (("format", plan.topic), ("format-closed", plan.closed_topic)):
            options = {
                "serviceUrl": plan.service_url,
                "topic": topic,
                "sinkId": f"{way}-{name}",
                "commitLog": f"{plan.folder}/log",
                "receiptNamespace": "public/default",
            }
            writer = rows.write.format("pulsar").mode("append").options(**options, **login)
            writers[name] = writer
    writers["format"].save()
    with _Shown(f"{way}-format-closed"):
        writers["format-closed"].save()


def _read_by_format(spark: SparkSession, plan: Plan, login: dict[str, Any]) -> None:
    """Read in batch and as a stream, and print what Spark shows."""
    with _py4j_at(logging.INFO):
        options = {"serviceUrl": plan.service_url, "topic": plan.topic, **login}
        batch = spark.read.format("pulsar").options(**options).load()
        stream = spark.readStream.format("pulsar").options(**options).load()
    said = [repr(batch), batch._jdf.queryExecution().toString(), str(batch.count())]
    writing = stream.writeStream.format("noop").trigger(availableNow=True)
    query = writing.option("checkpointLocation", f"{plan.folder}/checkpoint/read").start()
    query.awaitTermination()
    said += [str(query.recentProgress), str(query.lastProgress), str(query.status)]
    print("read", json.dumps(said), flush=True)
    with _py4j_at(logging.INFO):
        wrong = spark.read.format("pulsar").options(**options | plan.refused["wrong-token"])
    with _Shown("wrong-token-read"):
        wrong.load().count()


def _read_from_a_catalog(spark: SparkSession, plan: Plan, login: dict[str, Any]) -> None:
    """Read by SQL, and print what it shows of tables; the role may not write receipts there."""
    from eos import PulsarCatalog  # which 3.5 can't import

    catalog = PulsarCatalog(
        spark,
        plan.service_url,
        plan.admin_url,
        commit_log=f"{plan.folder}/log",
        auth=Auth(**login),
    )
    catalog.mount("secured")
    namespace, _, topic = plan.topic.removeprefix("persistent://").rpartition("/")
    table = f"secured.`{namespace}`.`{topic}`"
    said = [repr(vars(catalog))]
    for statement in (
        "SELECT count(*) FROM", "DESCRIBE TABLE EXTENDED", "SHOW CREATE TABLE",
        "EXPLAIN EXTENDED SELECT * FROM",
    ):  # fmt: skip
        said.append(str(spark.sql(f"{statement} {table}").collect()))
    print("mounted", json.dumps(said), flush=True)
    with _Shown("mounted-insert"):
        spark.sql(f"INSERT INTO {table} SELECT CAST('x' AS BINARY) AS value")


@contextmanager
def _py4j_at(level: int) -> Iterator[None]:
    logger = logging.getLogger("py4j")
    before = logger.level
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.setLevel(before)


def _stream_to_a_closed_topic(spark: SparkSession, plan: Plan) -> None:
    source = Path(plan.folder) / "source"
    source.mkdir()
    (source / "0.txt").write_text("a")
    way, login = next(iter(plan.logins.items()))
    sink = _sink(plan, f"{way}-stream", topic=plan.closed_topic, auth=Auth(**login))
    query = (
        spark.readStream.text(str(source))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(Path(plan.folder) / "checkpoint"))
        .start()
    )
    with _Shown(f"{way}-stream"):
        query.awaitTermination()


class _Shown:
    """Prints the error of its block."""

    def __init__(self, way: str) -> None:
        self._way = way

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> bool:
        text = "nothing" if error is None else "".join(traceback.format_exception(error))
        print(f"{self._way} failed of {json.dumps(text)} {error!r}".replace("\n", " "), flush=True)
        return True


def _sink(plan: Plan, name: str, **options: Any) -> PulsarSink:
    return PulsarSink(
        sink_id=name,
        service_url=plan.service_url,
        commit_log=f"{plan.folder}/log",
        receipt_namespace="public/default",
        **options,
    )


def _session(plan: Plan) -> SparkSession:
    events = Path(plan.folder) / "events"
    events.mkdir()
    session = (
        local_cluster("logins", plan.folder, rows_per_step=100)
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .config("spark.eventLog.compress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("DEBUG")
    return session


if __name__ == "__main__":
    main()
