"""The S3 server of the commit log's tests, for tables; and delta-spark, in another process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.commit_log.test_s3 import bucket, server, where
from tests.recovery.conftest import recovery
from tests.support.delta_spark import delta_spark_jars
from tests.support.processes import driver

__all__ = ["bucket", "recovery", "server", "where"]


@pytest.fixture(scope="session")
def ask(tmp_path_factory) -> Iterator[Callable[..., list]]:
    """Asks delta-spark, in a separate process."""
    warehouse = str(tmp_path_factory.mktemp("warehouse"))
    with driver("tests.delta.spark_reader", delta_spark_jars(), warehouse) as process:

        def asked(*questions: str) -> list:
            process.stdin.write(json.dumps(questions) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line.startswith("["):  # a vacuum prints its own lines
                    return json.loads(line)
            raise AssertionError(process.stderr.read()[-3000:])

        yield asked
