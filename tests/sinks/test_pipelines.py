"""Spark Declarative Pipelines: ``format("pulsar")`` as a source and as a sink, over a kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eos.chaos.cluster.processes import kill_session
from eos.client import PulsarClient
from tests.support.judge import drain
from tests.support.spark_releases import HAS_READ_LIMITS
from tests.transport.scripted import wait_until

pytest.importorskip("pyspark.pipelines", reason="they came with PySpark 4.1")
pytestmark = [pytest.mark.release, pytest.mark.timeout(400)]

ROWS = 1_000
# One entry is an epoch: there are several, so that a kill finds some written and some not. Before
# PySpark 4.2 a run is one epoch.
EPOCHS = 10 if HAS_READ_LIMITS else 4
# The last run finds nothing to do.
RUNS = 2 if HAS_READ_LIMITS else EPOCHS + 1
PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
reading, writing = {reading}, {writing}


def topic():
    return spark.readStream.format("pulsar").options(**reading).load().select("value")


@dp.table
def kept():
    return topic()


dp.create_sink("copies", "pulsar", writing)


@dp.append_flow(target="copies")
def copied():
    return topic()
"""


@pytest.fixture
def project(tmp_path, pulsar_standalone, name) -> Path:
    """The folder of a pipeline from one topic into a table and another topic."""
    urls = {
        "serviceUrl": pulsar_standalone.service_url,
        "adminUrl": pulsar_standalone.admin_url,
    }
    limits = {"startingOffsets": "earliest", "maxEntriesPerTrigger": "1"}
    reading = urls | limits | {"topic": f"{name}-in"}
    log = {"commitLog": str(tmp_path / "log"), "createTopics": "true"}
    writing = urls | log | {"topic": name, "sinkId": name}
    (tmp_path / "steps").mkdir()
    (tmp_path / "steps/all.py").write_text(PIPELINE.format(reading=reading, writing=writing))
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\n"
        "libraries:\n  - glob:\n      include: steps/**\n"
    )
    with (
        PulsarClient(pulsar_standalone.service_url) as client,
        client.producer(
            f"{name}-in", create=True, linger_ms=60_000, max_batch_messages=ROWS // EPOCHS
        ) as producer,
    ):
        for number in range(ROWS):
            producer.send(b"%d" % number)
    return tmp_path


def started(project: Path) -> subprocess.Popen[bytes]:
    """``spark-pipelines run`` in a session of its own; its output is in a file."""
    command = Path(sys.executable).with_name("spark-pipelines")
    # Tables are known to the next run only through a catalog that is kept: Hive's, in a folder.
    hive = ("--conf", "spark.sql.catalogImplementation=hive", "--conf", "spark.ui.enabled=false")
    with (project / "run.log").open("ab") as log:
        return subprocess.Popen(
            [command, "run", *hive, "--spec", str(project / "spark-pipeline.yml")],
            cwd=project,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_TESTING": "1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def test_a_pipeline_that_is_killed_and_run_again_has_written_once(
    project: Path, pulsar_standalone, name: str, committed, spark: Any
) -> None:
    log = project / "run.log"

    def has_begun() -> bool:
        return committed() >= 2 if HAS_READ_LIMITS else "Flow copied is RUNNING" in log.read_text()

    first = started(project)
    try:
        wait_until(lambda: has_begun() or first.poll() is not None, timeout_s=150)
        assert first.poll() is None, log.read_text()[-3000:]
    finally:
        kill_session(first.pid)
        first.wait()
    assert committed() < EPOCHS
    for _ in range(RUNS):
        again = started(project)
        try:
            code = again.wait(150)
        finally:
            kill_session(again.pid)
        assert code == 0, log.read_text()[-3000:]
    expected = sorted(str(number) for number in range(ROWS))
    topic = f"persistent://public/default/{name}"
    assert sorted(seen.value.decode() for seen in drain(pulsar_standalone.service_url, topic)) == (
        expected
    )
    # By Spark, which leaves out the files of writes that were not finished.
    rows = spark.read.parquet(str(project / "spark-warehouse/kept")).collect()
    assert sorted(bytes(row.value).decode() for row in rows) == expected
