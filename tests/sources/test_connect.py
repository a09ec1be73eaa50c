"""The source on Spark Connect: a real server, and a client that has nothing of Spark's JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_topic_is_read_in_batch_and_as_a_stream(send, pulsar_standalone, name, tmp_path):
    send(b"0", b"1", b"2")
    command = [sys.executable, "-m", "tests.sources.connect_job"]
    ended = subprocess.run(
        [*command, pulsar_standalone.service_url, name, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
        cwd=ROOT,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["batch"] == found["stream"] == ["0", "1", "2"]
    assert found["columns"][:2] == ["value", "__key"]
