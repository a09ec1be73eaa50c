"""The writer on Spark Connect: a real server, and a client without a JVM."""

from __future__ import annotations

import json

from tests.support.connect import run_connect_job
from tests.support.judge import drain


def test_batch_stream_and_sql_write_a_topic(pulsar_standalone, writer_options, name, tmp_path):
    run_connect_job("tests.sinks.connect_job", json.dumps(writer_options), str(tmp_path))
    seen = drain(pulsar_standalone.service_url, name)
    assert sorted(one.value for one in seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]
