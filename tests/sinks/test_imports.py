"""The packages that each process needs, checked by blocking all others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.spark_releases import HAS_DATA_SOURCES

BLOCK = "import sys\nfor name in {names!r}: sys.modules[name] = None\n"
ON_EXECUTORS = """
import eos.schemas, eos.sinks._topics, eos.sinks._stage_task, eos.sinks._task, eos.task_report
import pyarrow as pa
from eos.wire.batch import Rows, encode_batches
assert [b.num_messages for b in encode_batches(Rows(pa.array([b"x", b"y"])))] == [2]
from eos.client import PulsarClient
"""
# Without data sources, the import of PulsarCatalog is an error.
ON_DRIVERS = f"from eos import {'*' if HAS_DATA_SOURCES else 'PulsarSink, DeltaSink, IcebergSink'}"
EVERYTHING_BUT_SINKS = """
import importlib, pkgutil, eos

WITH_SPARK = ("eos.sinks", "eos.sources", "eos.catalog", "eos.chaos.cluster._driver")

def load(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name not in WITH_SPARK:
            found = importlib.import_module(module.name)
            if module.ispkg:
                load(found)

load(eos)
"""


@pytest.mark.parametrize(
    ("code", "blocked"),
    [
        (
            ON_EXECUTORS,
            [
                *("deltalake", "pydantic", "tenacity", "pulsar", "typer", "rich", "testcontainers"),
                *("prometheus_client", "opentelemetry", "pyiceberg"),
            ],
        ),
        (
            f"{ON_DRIVERS}\nimport eos.recovery.cli",
            ["prometheus_client", "opentelemetry", "pyiceberg"],
        ),
        (EVERYTHING_BUT_SINKS, ["pyspark", "py4j", "delta", "testcontainers"]),
    ],
    ids=["executor code", "without metrics and traces", "all but sinks"],
)
def test_imports_work_without_unneeded_packages(code, blocked):
    result = subprocess.run(
        [sys.executable, "-c", BLOCK.format(names=blocked) + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr


NEW_WORKER = """
import sys
from types import SimpleNamespace
import eos.sinks._task
for name in ("eos.schemas", "eos.admin", "http.client"):
    assert name not in sys.modules, name
import pyarrow as pa
from eos.wire.batch import (
    Hashing, Message, by_partition, check_rows, encode_batches, partitions_for_keys,
    rows_from_messages,
)
from eos.wire.from_python import text_row
message = Message(b"value", key="key", event_time_ms=5, properties={"name": "text"})
rows = rows_from_messages([message, message])
check_rows(rows, 1000)
by_key = partitions_for_keys(rows.key, 4, keyless_partition=0, hashing=Hashing.JAVA)
rows, _ = by_partition(rows, by_key)
assert [batch.num_messages for batch in encode_batches(rows)] == [2]
from eos.sinks._topics import TaskTopics
names = rows_from_messages([Message(b"", key=name) for name in ("one", "two", "one")]).key
client = SimpleNamespace(partition_count=lambda topic: 0)
topics = TaskTopics(client, (), creation=None, options=None)
cut = list(topics.split(pa.RecordBatch.from_arrays([names], ["topic"])))
assert [batch.num_rows for _, batch in cut] == [2, 1]
told = text_row(summary="tëxt", error=None)
assert told.to_pylist() == [{"summary": "tëxt", "error": None}]
assert "pandas" not in sys.modules
"""


def test_a_new_worker_imports_only_what_it_needs():
    """An installed pandas alone costs 140 ms: pyarrow imports it for some functions."""
    result = subprocess.run(
        [sys.executable, "-c", NEW_WORKER], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr


@pytest.mark.skipif(not HAS_DATA_SOURCES, reason="Spark has no data sources before 4.0")
def test_a_new_worker_of_the_source_does_without_pandas():
    code = "import sys, eos.sources.data_source; assert 'pandas' not in sys.modules"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
