"""Ways to ship the package to the executors of a standalone cluster, as in docs/deployment.md."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pyspark import SparkContext

from eos.chaos.cluster.processes import kill_session
from tests.support.judge import drain
from tests.support.spark_cluster import HOME, standalone_cluster
from tests.support.spark_releases import needs_data_sources
from tests.support.wheel import (
    ROOT,
    build_wheel,
    install,
    installed_environment,
    small_environment,
)
from tests.transport.scripted import wait_until

# A master, a worker, a driver and an executor: four JVMs start one after the other.
pytestmark = pytest.mark.timeout(400)

# Import names of the packages in docs/deployment.md, and other modules in their wheels.
NEEDED = ("google", "google_crc32c*", "numpy*", "pyarrow*")
SPARK = ("pyspark", "py4j")
JOB = """
import sys
from pyspark.sql import SparkSession
from eos import PulsarSink

service_url, commit_log, name = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
sink = PulsarSink(sink_id=name, service_url=service_url, topic=name, commit_log=commit_log,
                  create_topics=True, max_attempts=1)
rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS value", "CAST(id % 7 AS STRING) AS key")
print(sink.write(rows, epoch="a"))
"""
STREAM = """
import sys
from pyspark.sql import SparkSession
from eos import PulsarSink

service_url, commit_log, name = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
sink = PulsarSink(sink_id=name, service_url=service_url, topic=name, commit_log=commit_log,
                  create_topics=True)
lines = spark.readStream.option("maxFilesPerTrigger", 1).text("lines")
query = lines.writeStream.foreachBatch(sink).option("checkpointLocation", "checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""
FORMAT = """
import sys
import pyspark_pulsar
from pyspark.sql import SparkSession

service_url, commit_log, name = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
REGISTER
options = {"serviceUrl": service_url, "topic": name}
values = spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
topic = values.write.format("pulsar").mode("append").options(**options, createTopics=True)
topic.options(sinkId=name, commitLog=commit_log).save()
print("rows that were read:", spark.read.format("pulsar").options(**options).load().count())
"""
MORE = ("annotated_types*", "arro3*", "deltalake*", "pydantic*", "tenacity*", "typing_*")
FILES, LINES = 12, 100  # each file is an epoch


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def driver_programs(built, tmp_path_factory) -> Path:
    return installed_environment(tmp_path_factory.mktemp("driver"), built)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), cores=1, memory_mb=1024) as url:
        yield url


@pytest.fixture
def start(driver_programs, pulsar_standalone, tmp_path, name):
    """Starts a job with ``spark-submit``, in a session of its own and in ``tmp_path``."""
    processes: list[subprocess.Popen[str]] = []

    def start(job: str, url: str, executor_python: Path, *options: str) -> subprocess.Popen[str]:
        (tmp_path / "job.py").write_text(job)
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env |= {
            "SPARK_HOME": str(HOME),
            # For data sources, too, as PYSPARK_DRIVER_PYTHON would be.
            "PYSPARK_PYTHON": str(executor_python),
        }
        del env["PYSPARK_DRIVER_PYTHON"]
        conf = (
            f"spark.pyspark.driver.python={driver_programs / 'python'}",
            "spark.executor.memory=512m",
            "spark.ui.enabled=false",
            "spark.task.maxFailures=1",
        )
        settings = [word for pair in conf for word in ("--conf", pair)]
        command = [str(HOME / "bin" / "spark-submit"), "--master", url, *settings, *options]
        args = ["job.py", pulsar_standalone.service_url, str(tmp_path / "log"), name]
        process = subprocess.Popen(
            [*command, *args],
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        kill_session(process.pid)
        process.communicate()


@pytest.fixture
def submit(cluster, start):
    """Run a job with ``spark-submit``; return its exit code and output."""

    def run(executor_python: Path, *options: str, job: str = JOB) -> tuple[int, str]:
        process = start(job, cluster, executor_python, *options)
        out, _ = process.communicate(timeout=180)
        return process.returncode, out

    return run


@pytest.fixture(scope="module")
def small_python(tmp_path_factory) -> Path:
    """The Python of an executor with PySpark and the four packages only."""
    return small_environment(tmp_path_factory.mktemp("executor"), NEEDED + SPARK)


def check_written(ended: tuple[int, str], service_url: str, name: str) -> None:
    code, out = ended
    assert code == 0, out[-3000:]
    assert "status='written', records=1000" in out
    assert len(drain(service_url, f"persistent://public/default/{name}")) == 1000


def test_the_wheel_can_be_shipped_as_a_zip(
    submit, small_python, built, tmp_path, pulsar_standalone, name
):
    # Spark adds archives to the workers' path by their extension, which must not be .whl.
    archive = shutil.copy(built, tmp_path / "eos.zip")
    ended = submit(small_python, "--py-files", str(archive))
    check_written(ended, pulsar_standalone.service_url, name)


def test_an_installed_package_is_enough(submit, built, tmp_path, pulsar_standalone, name):
    python = small_environment(tmp_path / "executor", NEEDED + SPARK)
    install(built, tmp_path / "executor")
    check_written(submit(python), pulsar_standalone.service_url, name)


@needs_data_sources
@pytest.mark.release
def test_format_of_a_zip_works_once_it_is_registered(
    submit, built, tmp_path, pulsar_standalone, name
):
    archive = shutil.copy(built, tmp_path / "eos.zip")
    python = small_environment(tmp_path / "executor", NEEDED + SPARK + MORE)
    register = "spark.dataSource.register(pyspark_pulsar.DefaultSource)"
    code, out = submit(python, "--py-files", str(archive), job=FORMAT.replace("REGISTER", register))
    assert code == 0, out[-3000:]
    assert "rows that were read: 1000" in out
    assert len(drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")) == 1000


@needs_data_sources
@pytest.mark.release
def test_a_package_that_format_lacks_is_named(submit, built, tmp_path):
    python = small_environment(tmp_path / "executor", NEEDED + SPARK)
    install(built, tmp_path / "executor")
    code, out = submit(python, job=FORMAT.replace("REGISTER", ""))
    assert code != 0
    assert "can't run in the Python of Spark's workers: No module named 'pydantic'" in out


@pytest.mark.release
def test_a_driver_that_is_killed_and_started_again_writes_each_row_once(
    start, built, tmp_path_factory, tmp_path, pulsar_standalone, name, committed
):
    """Two workers in processes of their own, executors with the zip; a supervisor restarts it."""
    (tmp_path / "lines").mkdir()
    for number in range(FILES):
        lines = "".join(f"{number}-{line}\n" for line in range(LINES))
        (tmp_path / "lines" / f"{number}.txt").write_text(lines)
    archive = shutil.copy(built, tmp_path / "eos.zip")
    python = small_environment(tmp_path / "executor", NEEDED + SPARK)

    folder = tmp_path_factory.mktemp("two-workers")
    with standalone_cluster(folder, cores=1, memory_mb=1024, workers=2) as url:
        killed = start(STREAM, url, python, "--py-files", str(archive))
        wait_until(lambda: committed() >= 2 or killed.poll() is not None, timeout_s=120)
        kill_session(killed.pid)
        assert 2 <= committed() < FILES, killed.communicate()[0][-3000:]
        again = start(STREAM, url, python, "--py-files", str(archive))
        out, _ = again.communicate(timeout=180)
        assert again.returncode == 0, out[-3000:]
    seen = drain(pulsar_standalone.service_url, f"persistent://public/default/{name}")
    assert sorted(one.value.decode() for one in seen) == sorted(
        f"{number}-{line}" for number in range(FILES) for line in range(LINES)
    )


@pytest.mark.release
def test_spark_takes_no_python_driver_into_a_standalone_cluster(start, small_python):
    options = ("--deploy-mode", "cluster", "--supervise")
    refused = start(JOB, "spark://127.0.0.1:7077", small_python, *options)
    out, _ = refused.communicate(timeout=60)
    # Else docs/deployment.md must change.
    assert "not supported for python applications on standalone clusters" in out


def test_spark_does_not_accept_a_wheel_file():
    assert ".whl" not in SparkContext.PACKAGE_EXTENSIONS  # else the docs must change
    assert ".zip" in SparkContext.PACKAGE_EXTENSIONS


def test_the_docs_name_the_same_packages():
    text = (ROOT / "docs" / "deployment.md").read_text()
    (line,) = re.findall(r"^pip install (pyarrow.*)$", text, re.M)
    assert set(line.split()) == {"pyarrow", "numpy", "protobuf", "google-crc32c"}
