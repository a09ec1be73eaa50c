"""Writer and source on Spark Connect: a real server, and a client without a JVM."""

from __future__ import annotations

import json

from tests.support.connect import run_connect_job
from tests.support.judge import drain


def test_batch_stream_and_sql_write_and_read_a_topic(
    pulsar_standalone, writer_options, name, tmp_path
):
    out = run_connect_job("tests.sinks.connect_job", json.dumps(writer_options), str(tmp_path))
    seen = drain(pulsar_standalone.service_url, name)
    assert sorted(one.value for one in seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    found = json.loads(out.splitlines()[-1])
    assert found["batch"] == found["stream"] == ["0", "1", "2", "3", "4", "5"]
    assert found["columns"][:2] == ["value", "__key"]
