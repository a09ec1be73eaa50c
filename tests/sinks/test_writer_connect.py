"""The writer on Spark Connect: a real server, and a client that has nothing of Spark's JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.judge import drain

ROOT = Path(__file__).parents[2]


def test_a_topic_is_written_in_batch_as_a_stream_and_by_sql(
    pulsar_standalone, writer_options, name, tmp_path
):
    command = [sys.executable, "-m", "tests.sinks.connect_job"]
    ended = subprocess.run(
        [*command, json.dumps(writer_options), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=180,
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    seen = drain(pulsar_standalone.service_url, name)
    assert sorted(one.value for one in seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]
